"""The share of the broker's loop that each client may have (DB-94): around the handlers of all requests.

A request's time is what its handler takes, with its work in slices. What is left for later, when a disk or another
broker has answered, is not counted, as Kafka does not count it either. A Produce with acks=0 has no answer to be
throttled by, and is free.
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
"""How much of a second a percent is."""


class RequestQuota:
    """A handler around another one."""

    def __init__(self, handler: Handler, usage: QuotaUsage, runtime: Runtime) -> None:
        self._handler = handler
        self._usage = usage
        self._runtime = runtime

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Have the request handled; its client is let wait if it has had more than its share. Raises as the handler."""
        if not self._usage.quotas.is_set(QuotaKind.REQUEST):
            self._handler(request, reply)
            return
        timed = _TimedReply(request.context.quota_client, reply, request.slices, self._usage, self._runtime)
        request.slices = timed
        self._handler(request, timed)
        timed.stop()


class _TimedReply:
    """Knows how long the handler has taken: the reply of a request, and its slices."""

    def __init__(self, client: QuotaClient, reply: Reply, slices: Slices, usage: QuotaUsage, runtime: Runtime) -> None:
        self._client = client
        self._reply = reply
        self._usage = usage
        self._runtime = runtime
        self._slices = slices
        self._began_ms: float | None = runtime.now_ms()
        self._taken_ms = 0.0

    def stop(self) -> None:
        """The handler has returned, or a slice is done."""
        if self._began_ms is not None:
            self._taken_ms += self._runtime.now_ms() - self._began_ms
            self._began_ms = None

    def run(self, steps: Steps) -> None:
        """Have them gone through; their time counts."""
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
        """Answer; the longer of both waits counts."""
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
    """The same with the time in its field, if it has one. A copy: handlers keep answers that they give to many."""
    if not hasattr(response, "throttle_time_ms"):
        return response
    changed = copy(response)
    changed.throttle_time_ms = throttle_ms
    return changed
