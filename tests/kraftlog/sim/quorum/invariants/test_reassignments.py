"""No in-sync replica is passed over, replicas are removed when the others are in sync, reassignments are accepted."""

from __future__ import annotations

from typing import Any

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.sim.quorum.invariants.reassignments import InSyncLead, ReassignmentsAreTaken, ReplicasGoWhenDone
from kraftlog.sim.quorum.observation.call import Call
from kraftpb.v1.admin_pb2 import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    Operation,
    OperationResult,
    PartitionReassignment,
    PartitionResult,
)
from kraftpb.v1.metadata_pb2 import BrokerIds, MetadataRecord
from tests.kraftlog.sim.quorum.invariants.builders import violates
from tests.kraftlog.sim.quorum.invariants.metadata import MetadataCluster, change, fenced, partition

MOVING = partition([3, 1, 2], [1], 1, adding_replicas=[3], removing_replicas=[1])
"""From 1 and 2 to 3 and 2; only 1 is in sync."""


def cluster_with(record: MetadataRecord, *fenced_ids: int) -> MetadataCluster:
    cluster = MetadataCluster().with_brokers()
    cluster.records(record)
    epochs = {broker_id: broker.epoch for broker_id, broker in cluster.metadata.brokers.items()}
    for broker_id in fenced_ids:
        cluster.records(fenced(broker_id, epochs[broker_id]))
    return cluster


ALL_IN_SYNC = partition([1, 2, 3], [1, 2, 3], 1)
ONE_IN_SYNC = partition([1, 2, 3], [1], 1)
ELIGIBLE = partition([1, 2, 3], [], -1, eligible_leader_replicas=[2])


@pytest.mark.parametrize(
    ("before", "absent", "record"),
    [
        (ALL_IN_SYNC, [1], change(isr=[2, 3], leader=2)),
        (ONE_IN_SYNC, [1], change(isr=[3], leader=3)),
        (ONE_IN_SYNC, [], change(isr=[1, 2])),
        (ELIGIBLE, [1], change(isr=[2], leader=2, eligible_leader_replicas=[])),
        (ELIGIBLE, [2], change(isr=[3], leader=3, eligible_leader_replicas=[])),
        (MOVING, [], change(replicas=[3, 2], isr=[2, 3], leader=3, adding_replicas=[], removing_replicas=[])),
        (
            partition([3, 1, 2], [3], 3, adding_replicas=[3], removing_replicas=[1]),
            [],
            change(replicas=[1, 2], isr=[1], leader=1, adding_replicas=[], removing_replicas=[]),
        ),
    ],
)
def test_elections_that_may_be(before: MetadataRecord, absent: list[int], record: MetadataRecord) -> None:
    cluster = cluster_with(before, *absent)
    InSyncLead(cluster).after_step(cluster.records(record))


@pytest.mark.parametrize(
    ("before", "absent", "record"),
    [
        (ONE_IN_SYNC, [2], change(isr=[3], leader=3)),
        (ELIGIBLE, [1], change(isr=[3], leader=3, eligible_leader_replicas=[])),
        (MOVING, [], change(isr=[3], leader=3)),
        (MOVING, [], change(replicas=[3, 2], isr=[3], leader=3)),
    ],
)
def test_elections_that_may_not_be(before: MetadataRecord, absent: list[int], record: MetadataRecord) -> None:
    cluster = cluster_with(before, *absent)
    invariant = InSyncLead(cluster)
    step = cluster.records(record)
    with violates(invariant):
        invariant.after_step(step)


@pytest.mark.parametrize(
    "record",
    [
        change(replicas=[3, 2], isr=[3, 2], leader=3, adding_replicas=[], removing_replicas=[]),
        change(replicas=[3, 2], isr=[3], leader=3, adding_replicas=[], removing_replicas=[]),
        change(replicas=[1, 2], isr=[1], adding_replicas=[], removing_replicas=[]),
        change(replicas=[2, 3, 1], adding_replicas=[], removing_replicas=[1, 3]),
        change(replicas=[2, 3, 1], adding_replicas=[], removing_replicas=[]),
        change(isr=[1, 2]),
    ],
)
def test_what_may_become_of_replicas(record: MetadataRecord) -> None:
    cluster = cluster_with(MOVING)
    ReplicasGoWhenDone(cluster).after_step(cluster.records(record))


@pytest.mark.parametrize(
    "record",
    [
        change(replicas=[3, 2], isr=[2], leader=2, adding_replicas=[], removing_replicas=[]),
        change(replicas=[2, 1], adding_replicas=[2], removing_replicas=[]),
        change(replicas=[1], adding_replicas=[]),
        change(replicas=[2, 3, 1], isr=[2], leader=2, adding_replicas=[], removing_replicas=[1, 3]),
    ],
)
def test_what_may_not_become_of_replicas(record: MetadataRecord) -> None:
    cluster = cluster_with(MOVING)
    invariant = ReplicasGoWhenDone(cluster)
    step = cluster.records(record)
    with violates(invariant):
        invariant.after_step(step)


def test_who_stays_is_in_sync_if_fewer_come_than_go() -> None:
    cluster = cluster_with(partition([3, 2, 1, 4], [1, 4], 1, adding_replicas=[3], removing_replicas=[1, 4]))
    invariant = ReplicasGoWhenDone(cluster)
    step = cluster.records(change(replicas=[3, 2], isr=[3], leader=3, adding_replicas=[], removing_replicas=[]))
    with violates(invariant):
        invariant.after_step(step)


def asked_for(cluster: MetadataCluster, replicas: list[int], error: ErrorCode) -> Call:
    """A call that the cluster remembers, answered with that error for the partition."""
    request = AlterPartitionReassignmentsRequest(
        partitions=[PartitionReassignment(topic="clicks", partition_id=0, replicas=BrokerIds(ids=replicas))]
    )
    answer = AlterPartitionReassignmentsResponse(partitions=[PartitionResult(topic="clicks", error_code=error)])
    end_offset = cluster.committed_end_offset
    call = Call(301, Operation(alter_partition_reassignments=request), 0, end_offset)
    call.result = OperationResult(alter_partition_reassignments=answer, state_end_offset=end_offset)
    cluster.calls.append(call)
    return call


def watching(cluster: MetadataCluster) -> ReassignmentsAreTaken:
    """An invariant that has seen all that is committed."""
    invariant = ReassignmentsAreTaken(cluster)
    again: Any = MetadataCluster()
    for batch in cluster.metadata_log:
        again.records(*batch.records)
        cluster.metadata_changes[:] = again.metadata_changes
        invariant.after_step(cluster.step(1))
    return invariant


@pytest.mark.parametrize(
    ("replicas", "error", "record"),
    [
        ([2, 3], ErrorCode.NONE, change(replicas=[2, 3, 1], adding_replicas=[], removing_replicas=[1])),
        ([3, 1, 2], ErrorCode.NONE, None),
        ([9], ErrorCode.INVALID_REPLICA_ASSIGNMENT, None),
    ],
)
def test_reassignments_that_are_answered_rightly(
    replicas: list[int], error: ErrorCode, record: MetadataRecord | None
) -> None:
    cluster = cluster_with(partition([3, 1, 2], [1], 1))
    asked_for(cluster, replicas, error)
    if record is not None:
        cluster.records(record)
    watching(cluster).at_end()


@pytest.mark.parametrize(
    ("replicas", "error", "record"),
    [
        ([2, 3], ErrorCode.INVALID_REPLICA_ASSIGNMENT, None),
        ([2, 3], ErrorCode.NONE, None),
        ([2, 3], ErrorCode.NONE, change(replicas=[3, 2, 1], adding_replicas=[], removing_replicas=[1])),
    ],
)
def test_reassignments_that_are_answered_wrongly(
    replicas: list[int], error: ErrorCode, record: MetadataRecord | None
) -> None:
    cluster = cluster_with(partition([3, 1, 2], [1], 1))
    asked_for(cluster, replicas, error)
    if record is not None:
        cluster.records(record)
    invariant = watching(cluster)
    with violates(invariant):
        invariant.at_end()
