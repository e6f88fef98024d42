"""The active controller fences brokers whose processes have ended, before their sessions do (CT-65).

`kraftlog.controller.rules.broker_evidence` decides; this module has its timers, connections and the fence. If anything
fails here, the broker's session decides (CT-30).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

import structlog

from kraftbase.endpoint import Endpoint, Reply
from kraftlog.controller.broker_control import fence_dead
from kraftlog.controller.decisions import Decision, DecisionContext
from kraftlog.controller.rules.broker_evidence import BrokerEvidence, Endpoints, Probe
from kraftpb.v1.admin_pb2 import BrokerHeartbeatRequest
from kraftpb.v1.metadata_pb2 import RegisterBrokerRecord
from statemachine.metadata.state import MetadataState

Replies: TypeAlias = Mapping[Endpoint, Reply]
Connect: TypeAlias = Callable[[Endpoints, Callable[[Replies], None]], None]
"""Connects to each endpoint, closes the connections, and calls back once with the replies, later."""

FENCED_BY_EVIDENCE: Final = "fenced broker whose process has ended"
"""The log line of such a fence."""

logger = structlog.get_logger(__name__)


def log_fenced(broker: RegisterBrokerRecord) -> None:
    """Log that a broker was fenced by evidence."""
    logger.warning(FENCED_BY_EVIDENCE, broker_id=broker.broker_id, epoch=broker.broker_epoch)


class ActiveController(Protocol):
    """The part of the controller that this module uses."""

    @property
    def state(self) -> MetadataState:
        """The latest metadata."""
        ...

    @property
    def is_active(self) -> bool:
        """Whether the controller is active."""
        ...

    def execute(self, decision: Decision) -> bool:
        """Append the records of a decision; return False if it has to wait."""
        ...


class DeadBrokers:
    """Fences dead brokers, for one controller. Used on its event loop only."""

    def __init__(self, controller: ActiveController, context: DecisionContext, connect: Connect | None) -> None:
        self.on_fenced: Callable[[RegisterBrokerRecord], None] = log_fenced
        """Called with the registration that is fenced by evidence."""
        self._controller = controller
        self._context = context
        self._connect: Final = connect if context.config.broker_fence_by_evidence_enable else None
        self._evidence = BrokerEvidence()

    def clear(self) -> None:
        """The controller becomes active or inactive: forget all earlier streams."""
        self._evidence.clear()

    def heartbeat(self, stream: int, request: BrokerHeartbeatRequest) -> None:
        """A heartbeat has arrived over the stream with that unique number."""
        if self._connect is None or not self._controller.is_active:
            return
        broker = self._controller.state.broker(request.broker_id)
        if broker is None or broker.broker_epoch != request.broker_epoch:
            return
        endpoints = tuple(Endpoint(at.host, at.port) for at in broker.end_points)
        now_ms = self._context.runtime.now_ms()
        self._execute(self._evidence.heartbeat(stream, broker.broker_id, broker.broker_epoch, endpoints, now_ms))

    def stream_ended(self, stream: int, *, by_peer: bool) -> None:
        """A stream has ended: closed or broken at the other side, or ended by this node."""
        if self._connect is not None:
            now_ms = self._context.runtime.now_ms()
            self._execute(self._evidence.stream_ended(stream, now_ms, by_peer=by_peer))

    def _execute(self, probe: Probe | None) -> None:
        if probe is not None:
            delay_ms = max(0.0, probe.at_ms - self._context.runtime.now_ms())
            self._context.runtime.call_later(delay_ms, lambda: self._connect_to(probe))

    def _connect_to(self, probe: Probe) -> None:
        if self._connect is not None and self._evidence.is_wanted(probe):
            began_ms = self._context.runtime.now_ms()
            self._connect(probe.endpoints, lambda replies: self._replied(probe, replies, began_ms))

    def _replied(self, probe: Probe, replies: Replies, began_ms: float) -> None:
        now_ms = self._context.runtime.now_ms()
        following = self._evidence.replied(probe, replies, began_ms, now_ms)
        if following is not None:
            self._execute(following)
        elif self._evidence.has_ended(probe.broker_id, probe.broker_epoch, now_ms):
            # A heartbeat may have arrived that is not yet read, if this process was late.
            self._context.runtime.call_after_requests(lambda: self._fence(probe.broker_id, probe.broker_epoch))

    def _fence(self, broker_id: int, broker_epoch: int) -> None:
        if not self._evidence.has_ended(broker_id, broker_epoch, self._context.runtime.now_ms()):
            return
        self._evidence.remove(broker_id)
        broker = self._controller.state.broker(broker_id)
        decision = fence_dead(self._controller.state, broker_id, broker_epoch, self._context)
        if broker is not None and decision.records and self._controller.execute(decision):
            self.on_fenced(broker)
