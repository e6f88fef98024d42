"""The share of the event loop's time that each client may use (DB-94): wraps the handlers of all requests.

The time of a request is what its handler takes, including its work in slices. Work after an answer of a disk or of
another broker is not counted, as in Kafka. A Produce with acks=0 is not counted, because it has no answer that could be
throttled.
"""

from __future__ import annotations

from copy import copy
from typing import Final

from kraftbase.runtime import Runtime
from kraftlog.broker.quotas.client_quotas import QuotaKind
from kraftlog.broker.quotas.quota_usage import QuotaUsage
from kraftlog.kafka.notation import Message
from kraftlog.network.requests import ClientRequest, Handler, QuotaClient, Reply, Slices, Steps

MS_PER_PERCENT: Final = 10
"""How many milliseconds of a second are a percent."""


class RequestQuota:
    """A handler that wraps another one."""

    def __init__(self, handler: Handler, usage: QuotaUsage, runtime: Runtime) -> None:
        self._handler = handler
        self._usage = usage
        self._runtime = runtime

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Handle the request; throttle its client if it is over its share. Raises as the wrapped handler does."""
        if not self._usage.quotas.is_set(QuotaKind.REQUEST):
            self._handler(request, reply)
            return
        timed = _TimedReply(request.context.quota_client, reply, request.slices, self._usage, self._runtime)
        request.slices = timed
        self._handler(request, timed)
        timed.stop()


class _TimedReply:
    """The reply and the slices of a request, which measure how long the handler works."""

    def __init__(self, client: QuotaClient, reply: Reply, slices: Slices, usage: QuotaUsage, runtime: Runtime) -> None:
        self._client = client
        self._reply = reply
        self._usage = usage
        self._runtime = runtime
        self._slices = slices
        self._began_ms: float | None = runtime.now_ms()
        self._taken_ms = 0.0

    def stop(self) -> None:
        """The handler has returned, or a step has ended."""
        if self._began_ms is not None:
            self._taken_ms += self._runtime.now_ms() - self._began_ms
            self._began_ms = None

    def run(self, steps: Steps) -> None:
        """Go through `steps`, and count their time."""
        self._slices.run(self._timed(steps))

    @property
    def answer_room_bytes(self) -> int:
        """How many bytes of answers there is room for now."""
        return self._slices.answer_room_bytes

    def _timed(self, steps: Steps) -> Steps:
        while True:
            self._began_ms = self._runtime.now_ms()
            try:
                next(steps)
            except StopIteration:
                return
            finally:
                self.stop()
            yield

    def __call__(self, response: Message | None, throttle_ms: int = 0) -> None:
        """Send the answer with the longer of the two throttle times."""
        self.stop()
        if response is None:
            self._reply(response, throttle_ms)
            return
        percent = self._taken_ms / MS_PER_PERCENT
        request_throttle_ms = self._usage.record(QuotaKind.REQUEST, self._client, percent, self._runtime.now_ms())
        if request_throttle_ms > throttle_ms:
            response, throttle_ms = _throttled(response, request_throttle_ms), request_throttle_ms
        self._reply(response, throttle_ms)


def _throttled(response: Message, throttle_ms: int) -> Message:
    """Return a copy with the throttle time, if the message has that field: an answer may go to many clients."""
    if not hasattr(response, "throttle_time_ms"):
        return response
    changed = copy(response)
    changed.throttle_time_ms = throttle_ms
    return changed
