"""A replica whose broker says that its log is damaged, and that no other can replace it (DB-88)."""

from __future__ import annotations

import pytest

from kraftbase.ids import DAMAGED_DIRECTORY, LOST_DIRECTORY
from kraftbase.sentinels import NO_LEADER
from kraftlog.controller.operations.directories import assign_replicas_to_dirs
from kraftlog.controller.operations.elections import elect_leaders, elect_unclean_where_allowed
from kraftlog.controller.operations.leader_and_isr import leaders_where_none
from kraftpb.v1.admin_pb2 import (
    AssignReplicasToDirsRequest,
    DirectoryAssignment,
    ElectLeadersRequest,
    PartitionReference,
    PartitionReferences,
)
from kraftpb.v1.metadata_pb2 import MetadataRecord, PartitionRecord, RegisterBrokerRecord
from tests.statemachine.builders import an_id
from tests.statemachine.partitions import NUMBER, TOPIC, a_cluster, a_partition, the_partition
from tests.statemachine.states import Metadata

OWN = an_id(901)
"""The directory of broker 1."""


def assigned(state: Metadata, directory: bytes) -> PartitionRecord:
    """Broker 1 says that its replica is in that directory."""
    assignment = DirectoryAssignment(topic_id=an_id(NUMBER), partition_id=0, directory_id=directory)
    request = AssignReplicasToDirsRequest(broker_id=1, broker_epoch=0, assignments=[assignment])
    records, response = assign_replicas_to_dirs(state, request)
    assert [answer.error_code for answer in response.assignments] == [0]
    return the_partition(state.append(records))


def elected_uncleanly(state: Metadata) -> tuple[PartitionRecord, str]:
    references = PartitionReferences(partitions=[PartitionReference(topic=TOPIC, partition_id=0)])
    records, response = elect_leaders(
        state, ElectLeadersRequest(election_type=ElectLeadersRequest.UNCLEAN, partitions=references)
    )
    return the_partition(state.append(records)), response.partitions[0].error_message


@pytest.mark.parametrize("elr", [True, False])
def test_db88_the_only_replica_in_sync_stands_down_and_is_as_it_was_when_its_log_is_put_back(elr: bool) -> None:
    state = a_cluster(a_partition((1, 2), (1,)), elr=elr)
    damaged = assigned(state, DAMAGED_DIRECTORY)
    assert damaged.leader == NO_LEADER
    assert 1 in (damaged.eligible_leader_replicas if elr else damaged.isr)
    assert leaders_where_none(state, [damaged]) == []
    mended = assigned(state, OWN)
    assert (mended.leader, list(mended.isr), mended.leader_recovery_state) == (1, [1], 0)


def test_db88_an_unclean_election_takes_another_replica_first() -> None:
    state = a_cluster(a_partition((1, 2), (1,)))
    assigned(state, DAMAGED_DIRECTORY)
    elected, note = elected_uncleanly(state)
    assert (elected.leader, list(elected.isr), elected.leader_recovery_state, note) == (2, [2], 1, "")


def test_db88_an_unclean_election_takes_the_damaged_replica_if_no_other_is_active_and_says_so() -> None:
    state = a_cluster(a_partition((1, 2), (1,)), fenced=[2])
    assigned(state, DAMAGED_DIRECTORY)
    elected, note = elected_uncleanly(state)
    assert (elected.leader, list(elected.isr), elected.leader_recovery_state) == (1, [1], 1)
    assert "its log is damaged" in note
    accepted = assigned(state, OWN)
    assert (accepted.leader, list(accepted.isr), list(accepted.directories)) == (1, [1], [OWN, an_id(902)])


@pytest.mark.parametrize("unclean", [True, False])
def test_db88_it_is_elected_without_anybody_asking_only_if_the_topic_allows_it(unclean: bool) -> None:
    state = a_cluster(a_partition((1, 2), (1,)), fenced=[2], unclean=unclean)
    damaged = assigned(state, DAMAGED_DIRECTORY)
    assert damaged.leader == NO_LEADER
    records = elect_unclean_where_allowed(state, [damaged], limit=10)
    assert [record.partition_change.leader for record in records] == ([1] if unclean else [])


def test_db88_what_was_in_no_directory_is_damaged_and_does_not_begin_anew_by_saying_so() -> None:
    """It was the last known leader, and its broker has found out that nobody else can lead."""
    lost = a_partition((1, 2), (), leader=NO_LEADER, last_known=[1], directories=[LOST_DIRECTORY, an_id(902)])
    state = a_cluster(lost, fenced=[2])
    damaged = assigned(state, DAMAGED_DIRECTORY)
    assert (damaged.leader, list(damaged.last_known_elr)) == (NO_LEADER, [1])


def test_db88_a_broker_that_has_named_no_directories_can_be_damaged_too() -> None:
    state = a_cluster(a_partition((1, 2), (1,)))
    record = state.broker(1)
    assert record is not None
    nameless = RegisterBrokerRecord()
    nameless.CopyFrom(record)
    del nameless.log_dirs[:]
    state.append([MetadataRecord(register_broker=nameless)])
    assert assigned(state, DAMAGED_DIRECTORY).leader == NO_LEADER
