"""Leaders wait for every replica that the controller counts as in sync."""

from __future__ import annotations

from kraftlog.sim.quorum.invariants.maximal_isr import LeadersKnowTheirIsr
from kraftlog.sim.quorum.observation.broker_view import Led
from tests.kraftlog.sim.quorum.invariants.builders import violates
from tests.kraftlog.sim.quorum.invariants.metadata import KEY, MetadataCluster, change, partition


def test_what_a_leader_asked_for_counts_until_it_hears_of_a_later_epoch() -> None:
    led = Led(leader_epoch=0, partition_epoch=3, isr=frozenset({1}))
    led.asked += [(3, frozenset({1, 2})), (3, frozenset({1, 3}))]
    assert led.maximal_isr == {1, 2, 3}
    led.learn(3, frozenset({1, 2}))
    assert led.isr == {1}
    led.asked.append((4, frozenset({1, 3})))
    led.learn(4, frozenset({1, 2}))
    assert (led.isr, led.maximal_isr) == ({1, 2}, {1, 2, 3})
    led.learn(5, frozenset({1}))
    assert led.maximal_isr == {1}


def test_an_isr_that_the_leader_does_not_wait_for_is_found() -> None:
    cluster = MetadataCluster().with_brokers()
    invariant = LeadersKnowTheirIsr(cluster)
    invariant.after_step(cluster.records(partition()))
    led = cluster.stand_ins[0].led[KEY] = Led(0, 0, frozenset({1, 2, 3}))
    invariant.after_step(cluster.records(change(isr=[1, 2])))
    led.learn(1, frozenset({1, 2}))
    led.asked.append((1, frozenset({1, 2, 3})))
    invariant.after_step(cluster.records(change(isr=[1, 2, 3])))
    led.learn(3, frozenset({1, 2}))
    step = cluster.records(change(isr=[1, 3]))
    with violates(invariant):
        invariant.after_step(step)


def test_a_leader_of_another_epoch_is_not_asked() -> None:
    cluster = MetadataCluster().with_brokers()
    invariant = LeadersKnowTheirIsr(cluster)
    invariant.after_step(cluster.records(partition()))
    cluster.stand_ins[0].led[KEY] = Led(0, 0, frozenset({1}))
    invariant.after_step(cluster.records(change(isr=[1, 2], leader=1)))
    cluster.stand_ins[0].led[KEY] = Led(1, 1, frozenset({1}))
    step = cluster.records(change(isr=[1, 2, 3]))
    with violates(invariant):
        invariant.after_step(step)
