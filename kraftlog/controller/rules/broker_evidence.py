"""Whether a broker's process has ended, by evidence: a killed broker can be fenced before its session ends (CT-65).

The evidence is about one incarnation, its broker epoch. There are two parts, and both are needed:

1. The last stream that carried its heartbeats has ended at its side. The kernel closes the sockets of a process that
ends. gRPC does not always report whether a stream was closed or reset, so both count. 2. From then on its listeners
refuse every connection for 100 ms in a row: nothing listens there.

A heartbeat of that incarnation, over any stream, ends the suspicion. An accepted connection, or any other result than a
refusal, starts the 100 ms again, and after a second without 100 ms of refusals the session decides.

A refusal counts only at a listener that has accepted a connection since the stream began. Consider a broker that
advertises localhost to its clients: on the controller's machine nothing listens there, which is no evidence about the
broker. A stream that carries heartbeats of several brokers is not a broker's process: its end is no evidence.

Times are arguments: monotonic, in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kraftbase.endpoint import Endpoint, Reply

REFUSED_MS: Final = 100
"""How long a broker's listeners must refuse every connection: a firewall that reloads refuses for a shorter time."""

REFUSALS_MIN: Final = 4
"""How many connections must be refused in that time: two refusals could also result from a late controller."""

INTERVAL_MS: Final = 30
"""Between two connections to a broker under suspicion, after a refusal. Each connection that is not refused doubles it:
most such brokers live, and others wait for a slot."""

SUSPICION_MS: Final = 1_000
"""How long after its stream has ended a broker is under suspicion, at most."""

LOOK_AGAIN_MS: Final = 10_000
"""How long a broker whose listeners did not accept a connection is not tried again: they may be unreachable from here.
"""

SLOT_MS: Final = 10
"""The least time between two orders to connect to brokers under suspicion: a registration is only a claim. Orders that
follow a refusal have slots of their own: brokers that accept connections do not delay them. Fewer than 64
(`listener_probe.LOOKS_MAX`) are open at a time then, although each may get no reply for 250 ms.
"""

LOOK_SLOT_MS: Final = 20
"""The same for other orders, for which no broker under suspicion waits."""

SLOTS_AHEAD_MS: Final = LOOK_AGAIN_MS
"""A check that would have to wait longer is not ordered; the broker's next heartbeat orders it again. Otherwise a
client that opens streams without end would have more and more orders wait.
"""

ENDPOINTS_MAX: Final = 4
"""How many of a broker's listeners are checked: the first ones."""

Endpoints = tuple[Endpoint, ...]


class Probe(NamedTuple):
    """An order: connect to `endpoints` at `at_ms`, and report each one's reply."""

    broker_id: int
    broker_epoch: int
    endpoints: Endpoints
    at_ms: float
    number: int


@dataclass(slots=True)
class _Suspicion:
    until_ms: float
    not_refused: int = 0
    refused_since_ms: float | None = None
    refusals: int = 0


@dataclass(slots=True)
class _Incarnation:
    """A broker with an open stream, or under suspicion."""

    broker_epoch: int
    endpoints: Endpoints
    streams: set[int] = field(default_factory=set)
    accepting: Endpoints = ()
    """The listeners that have accepted a connection."""
    look_at_ms: float = float("-inf")
    """When its listeners may be checked again."""
    probe_number: int | None = None
    """Of the order that is not reported yet."""
    suspicion: _Suspicion | None = None


class _Carried(NamedTuple):
    """The broker whose heartbeats a stream carries; a `broker_id` of None: several brokers."""

    broker_id: int | None
    broker_epoch: int


@dataclass(slots=True)
class _Slots:
    """When orders are due."""

    interval_ms: int
    next_ms: float = float("-inf")

    def reserve(self, at_ms: float) -> float:
        """The first slot from that time on."""
        at_ms = max(at_ms, self.next_ms)
        self.next_ms = at_ms + self.interval_ms
        return at_ms


class BrokerEvidence:
    """What the active controller knows of the streams and listeners of brokers. Its size follows the open streams."""

    def __init__(self) -> None:
        self._streams: dict[int, _Carried] = {}
        self._incarnations: dict[int, _Incarnation] = {}
        """By broker id."""
        self._probes = 0
        self._looks = _Slots(LOOK_SLOT_MS)
        self._suspicions = _Slots(SLOT_MS)
        self._rows = _Slots(SLOT_MS)

    def clear(self) -> None:
        """The controller becomes active or inactive: forget all evidence."""
        self._streams.clear()
        self._incarnations.clear()

    # --- streams ------------------------------------------------------------------------------------------------------

    def heartbeat(
        self, stream: int, broker_id: int, broker_epoch: int, endpoints: Endpoints, now_ms: float
    ) -> Probe | None:
        """A heartbeat of the present incarnation of a broker arrived over `stream`; return the first order, if any.

        `endpoints` are the listeners of its registration.
        """
        self._carries(stream, broker_id, broker_epoch)
        present = self._incarnations.get(broker_id)
        if present is not None and present.broker_epoch == broker_epoch and present.suspicion is not None:
            present.suspicion = present.probe_number = None
            self._forget_if_idle(broker_id)
        if self._streams[stream].broker_id is None:
            return None
        endpoints = endpoints[:ENDPOINTS_MAX]
        present = self._incarnations.get(broker_id)
        if present is None or present.broker_epoch != broker_epoch:
            present = self._incarnations[broker_id] = _Incarnation(broker_epoch, endpoints)
        if present.endpoints != endpoints:  # the same incarnation has registered again, with other listeners
            present = self._incarnations[broker_id] = _Incarnation(broker_epoch, endpoints, present.streams)
        present.streams.add(stream)
        if present.accepting or present.probe_number is not None or now_ms < present.look_at_ms or not endpoints:
            return None
        if self._looks.next_ms > now_ms + SLOTS_AHEAD_MS:
            return None
        return self._order(broker_id, present, endpoints, self._looks.reserve(now_ms))

    def stream_ended(self, stream: int, now_ms: float, *, by_peer: bool) -> Probe | None:
        """A stream has ended: closed or broken at the other side, or ended by this node, which is no evidence."""
        carried = self._streams.pop(stream, None)
        if carried is None or carried.broker_id is None:
            return None
        present = self._incarnations.get(carried.broker_id)
        if present is None or stream not in present.streams:
            return None  # it carried an older incarnation
        present.streams.discard(stream)
        if present.streams:
            return None
        if not by_peer or not present.accepting:
            self._forget_if_idle(carried.broker_id)
            return None
        if self._suspicions.next_ms > now_ms + SUSPICION_MS:
            self._forget_if_idle(carried.broker_id)
            return None
        at_ms = self._suspicions.reserve(now_ms)
        present.suspicion = _Suspicion(at_ms + SUSPICION_MS)
        return self._order(carried.broker_id, present, present.accepting, at_ms)

    def _carries(self, stream: int, broker_id: int, broker_epoch: int) -> None:
        before = self._streams.get(stream)
        if before == (broker_id, broker_epoch) or (before is not None and before.broker_id is None):
            return
        self._streams[stream] = _Carried(broker_id, broker_epoch)
        if before is None or before.broker_id is None:
            return
        present = self._incarnations.get(before.broker_id)
        if present is not None:
            present.streams.discard(stream)
            self._forget_if_idle(before.broker_id)
        if before.broker_id != broker_id:
            self._streams[stream] = _Carried(None, broker_epoch)

    # --- listeners ----------------------------------------------------------------------------------------------------

    def is_wanted(self, probe: Probe) -> bool:
        """Whether an order is still to be carried out, or its report still of use."""
        present = self._incarnations.get(probe.broker_id)
        return present is not None and present.probe_number == probe.number

    def replied(self, probe: Probe, replies: Mapping[Endpoint, Reply], began_ms: float, now_ms: float) -> Probe | None:
        """The report on an order that was begun at `began_ms`; returns the next one. See `has_ended`."""
        present = self._incarnations.get(probe.broker_id)
        if present is None or present.probe_number != probe.number:
            return None
        present.probe_number = None
        suspicion = present.suspicion
        if suspicion is None:
            accepted = (endpoint for endpoint, reply in replies.items() if reply is Reply.ACCEPTED)
            present.accepting = tuple(accepted)
            present.look_at_ms = now_ms + LOOK_AGAIN_MS
            return None
        if any(replies.get(endpoint) is not Reply.REFUSED for endpoint in present.accepting):
            suspicion.refused_since_ms, suspicion.refusals = None, 0
            suspicion.not_refused += 1
        else:
            # A slow refusal, as over a long link, starts the 100 ms again: it may describe an earlier moment.
            if suspicion.refused_since_ms is None or now_ms - began_ms >= REFUSED_MS:
                suspicion.refused_since_ms, suspicion.refusals = began_ms, 0
            suspicion.refusals += 1
            if self.has_ended(probe.broker_id, probe.broker_epoch, now_ms):
                return None
        delay_ms = INTERVAL_MS if suspicion.refusals else INTERVAL_MS << suspicion.not_refused
        if now_ms + delay_ms >= suspicion.until_ms:
            present.suspicion = None
            self._forget_if_idle(probe.broker_id)
            return None
        slots = self._rows if suspicion.refusals else self._suspicions
        return self._order(probe.broker_id, present, present.accepting, slots.reserve(now_ms + delay_ms))

    def has_ended(self, broker_id: int, broker_epoch: int, now_ms: float) -> bool:
        """Whether the process of that incarnation has ended, by the evidence."""
        present = self._incarnations.get(broker_id)
        suspicion = None if present is None or present.broker_epoch != broker_epoch else present.suspicion
        return (
            suspicion is not None
            and suspicion.refused_since_ms is not None
            and suspicion.refusals >= REFUSALS_MIN
            and now_ms - suspicion.refused_since_ms >= REFUSED_MS
        )

    def remove(self, broker_id: int) -> None:
        """Drop the evidence about the broker, until its next stream."""
        self._incarnations.pop(broker_id, None)

    # --- both ---------------------------------------------------------------------------------------------------------

    def _order(self, broker_id: int, present: _Incarnation, endpoints: Endpoints, at_ms: float) -> Probe:
        self._probes += 1
        present.probe_number = self._probes
        return Probe(broker_id, present.broker_epoch, endpoints, at_ms, self._probes)

    def _forget_if_idle(self, broker_id: int) -> None:
        present = self._incarnations.get(broker_id)
        if present is not None and not present.streams and present.suspicion is None:
            del self._incarnations[broker_id]
