"""Bugs of the evidence that a broker's process has ended: accepted too early, or wrong (CT-65)."""

from __future__ import annotations

from typing import Any

from kraftbase.endpoint import Reply
from kraftlog.controller.rules import broker_evidence
from kraftlog.controller.rules.broker_evidence import BrokerEvidence, Endpoints, Probe
from kraftlog.sim.engine.mutation import instead, mutation

BROKERS = 3


@mutation("a refused connection is enough", "CT-65", brokers=BROKERS)
def one_refusal_is_enough() -> list[Any]:
    """A restarted middlebox causes the fencing of a live broker."""
    return [instead(broker_evidence, "REFUSED_MS", 0), instead(broker_evidence, "REFUSALS_MIN", 1)]


@mutation("a timeout counts as a refused connection", "CT-65", brokers=BROKERS)
def timeout_is_refusal() -> list[Any]:
    """A broker that is cut off is fenced as if its process had ended."""
    replied = BrokerEvidence.replied

    def credulous(
        self: BrokerEvidence, probe: Probe, replies: dict[Any, Reply], began_ms: float, now_ms: float
    ) -> Probe | None:
        heard = {at: Reply.REFUSED if reply is Reply.UNKNOWN else reply for at, reply in replies.items()}
        return replied(self, probe, heard, began_ms, now_ms)

    return [instead(BrokerEvidence, "replied", credulous)]


@mutation("a heartbeat does not end the suspicion", "CT-65", brokers=BROKERS)
def heartbeat_is_no_contact() -> list[Any]:
    """A broker that has connected again is fenced, because its listener refuses connections."""
    heartbeat = BrokerEvidence.heartbeat

    def deaf(
        self: BrokerEvidence, stream: int, broker_id: int, broker_epoch: int, endpoints: Endpoints, now_ms: float
    ) -> Probe | None:
        present = self._incarnations.get(broker_id)
        if present is not None and present.suspicion is not None:
            return None
        return heartbeat(self, stream, broker_id, broker_epoch, endpoints, now_ms)

    return [instead(BrokerEvidence, "heartbeat", deaf)]


@mutation("a listener that has never accepted a connection counts", "CT-65", brokers=BROKERS)
def out_of_reach_counts() -> list[Any]:
    """A broker whose address belongs to another machine in the controller's network is fenced when it hangs."""
    replied = BrokerEvidence.replied

    def presuming(
        self: BrokerEvidence, probe: Probe, replies: dict[Any, Reply], began_ms: float, now_ms: float
    ) -> Probe | None:
        following = replied(self, probe, replies, began_ms, now_ms)
        present = self._incarnations.get(probe.broker_id)
        if present is not None and present.suspicion is None:
            present.accepting = present.endpoints
        return following

    return [instead(BrokerEvidence, "replied", presuming)]
