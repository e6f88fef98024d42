"""Partitions are in states that they may be in, and epochs go up."""

from __future__ import annotations

import pytest

from kraftlog.sim.quorum.invariants.partition_states import BrokerEpochs, PartitionEpochs, PartitionStates
from kraftpb.v1.metadata_pb2 import MetadataRecord
from tests.kraftlog.sim.quorum.invariants.builders import violates
from tests.kraftlog.sim.quorum.invariants.metadata import MetadataCluster, change, fenced, partition, register


@pytest.mark.parametrize(
    "record",
    [
        change(isr=[1, 2]),
        change(isr=[2, 3], leader=2),
        change(isr=[], leader=-1, eligible_leader_replicas=[1]),
        change(isr=[], leader=-1, last_known_elr=[1]),
        change(isr=[3], leader=-1),
        change(replicas=[1, 2], isr=[1, 2], leader=1),
    ],
)
def test_what_a_partition_may_become(record: MetadataRecord) -> None:
    cluster = MetadataCluster().with_brokers()
    states, epochs = PartitionStates(cluster), PartitionEpochs(cluster)
    for step in (cluster.records(partition()), cluster.records(record)):
        states.after_step(step)
        epochs.after_step(step)


@pytest.mark.parametrize(
    "record",
    [
        change(isr=[1, 4]),
        change(isr=[1, 2, 2]),
        change(isr=[2, 3]),
        change(isr=[1, 2], leader=3),
        change(isr=[1, 2], eligible_leader_replicas=[3]),
        change(isr=[], leader=-1, eligible_leader_replicas=[4]),
        change(isr=[1], eligible_leader_replicas=[1, 2]),
        change(isr=[], leader=-1),
        change(replicas=[1, 1], isr=[1], leader=1),
    ],
)
def test_what_it_may_not_become(record: MetadataRecord) -> None:
    cluster = MetadataCluster().with_brokers()
    invariant = PartitionStates(cluster)
    invariant.after_step(cluster.records(partition()))
    step = cluster.records(record)
    with violates(invariant):
        invariant.after_step(step)


def test_who_is_fenced_may_stay_for_a_while_and_not_come_in() -> None:
    cluster = MetadataCluster().with_brokers()
    invariant = PartitionStates(cluster)
    invariant.after_step(cluster.records(partition(isr=[1, 2])))
    epochs = {broker_id: broker.epoch for broker_id, broker in cluster.metadata.brokers.items()}
    invariant.after_step(cluster.records(fenced(2, epochs[2]), fenced(3, epochs[3])))
    invariant.after_step(cluster.records(change(isr=[2, 1])))
    step = cluster.records(change(isr=[1, 2, 3]))
    with violates(invariant):
        invariant.after_step(step)
    step = cluster.records(change(isr=[2, 1], leader=2))
    with violates(invariant):
        invariant.after_step(step)


def test_a_new_partition_begins_at_0() -> None:
    cluster = MetadataCluster().with_brokers()
    invariant = PartitionEpochs(cluster)
    step = cluster.records(partition(leader_epoch=1))
    with violates(invariant):
        invariant.after_step(step)


@pytest.mark.parametrize(
    "record", [partition(), partition(leader=2, partition_epoch=1), partition([1, 2], partition_epoch=1)]
)
def test_epochs_do_not_go_back_and_rise_with_a_leader_and_without_replicas(record: MetadataRecord) -> None:
    cluster = MetadataCluster().with_brokers()
    invariant = PartitionEpochs(cluster)
    invariant.after_step(cluster.records(partition()))
    step = cluster.records(record)
    with violates(invariant):
        invariant.after_step(step)


def test_replicas_that_go_without_a_leader_epoch_are_found() -> None:
    cluster = MetadataCluster().with_brokers()
    invariant = PartitionEpochs(cluster)
    invariant.after_step(cluster.records(partition()))
    step = cluster.records(change(replicas=[1, 2], isr=[1, 2]))
    with violates(invariant):
        invariant.after_step(step)


def test_a_broker_comes_back_with_a_higher_epoch_and_fenced() -> None:
    cluster = MetadataCluster().with_brokers()
    invariant = BrokerEpochs(cluster)
    present = cluster.metadata.brokers[2].epoch
    invariant.after_step(cluster.records(register(2, present, is_fenced=False)))  # the same incarnation
    invariant.after_step(cluster.records(register(2, cluster.committed_end_offset, b"j" * 16)))
    for record in (
        register(2, present, b"k" * 16),
        register(2, cluster.committed_end_offset + 1, b"l" * 16, is_fenced=False),
        register(2, cluster.committed_end_offset + 2, b"l" * 16),
    ):
        step = cluster.records(record)
        with violates(invariant):
            invariant.after_step(step)
