"""Only a broker whose process has ended is fenced before its session has."""

from __future__ import annotations

from kraftlog.sim.quorum.invariants.live_brokers import LiveBrokersKeepTheirSession
from kraftlog.sim.quorum.observation.service import FencedByEvidence
from tests.kraftlog.sim.quorum.invariants.builders import violates
from tests.kraftlog.sim.quorum.invariants.metadata import MetadataCluster, partition


def test_a_broker_whose_incarnation_runs_must_not_be_fenced_by_evidence() -> None:
    cluster = MetadataCluster().with_brokers()
    invariant = LiveBrokersKeepTheirSession(cluster)
    broker, step = cluster.stand_ins[0], cluster.records(partition())

    def fences(incarnation_id: bytes, *, is_clock_right: bool = True) -> None:
        step.fenced[:] = [FencedByEvidence(broker.broker_id, incarnation_id, is_clock_right=is_clock_right)]
        invariant.after_step(step)

    broker.running_incarnation = None
    fences(b"one")
    broker.running_incarnation = b"two"
    fences(b"one")
    fences(b"two", is_clock_right=False)
    with violates(invariant):
        fences(b"two")
