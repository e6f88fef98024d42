"""AssignReplicasToDirs, and the effect of a failed log directory (CT-27, KIP-858)."""

from __future__ import annotations

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.ids import DAMAGED_DIRECTORY, LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from kraftbase.sentinels import NO_LEADER
from kraftlog.controller.operations.directories import (
    assign_replicas_to_dirs,
    failed_directories,
    partitions_without_directories,
)
from kraftpb.v1.admin_pb2 import AssignReplicasToDirsRequest, DirectoryAssignment, DirectoryAssignmentResult
from kraftpb.v1.metadata_pb2 import MetadataRecord
from tests.statemachine.builders import an_id, broker
from tests.statemachine.partitions import NUMBER, a_cluster, a_partition, the_partition
from tests.statemachine.states import Metadata

OTHER = an_id(951)
"""Another directory of broker 1."""


def asked(directory: bytes = OTHER, partition_id: int = 0, topic_id: bytes = an_id(NUMBER)) -> DirectoryAssignment:
    return DirectoryAssignment(topic_id=topic_id, partition_id=partition_id, directory_id=directory)


def run(
    state: Metadata, *assignments: DirectoryAssignment, broker_id: int = 1, epoch: int = 0
) -> tuple[list[MetadataRecord], list[DirectoryAssignmentResult]]:
    request = AssignReplicasToDirsRequest(broker_id=broker_id, broker_epoch=epoch, assignments=assignments)
    records, response = assign_replicas_to_dirs(state, request)
    return records, list(response.assignments)


def refused(state: Metadata, assignment: DirectoryAssignment, code: ErrorCode, words: str, broker_id: int = 1) -> None:
    """The assignment is refused in these words, and nothing is written."""
    records, answers = run(state, assignment, broker_id=broker_id)
    assert records == []
    assert (answers[0].topic_id, answers[0].partition_id) == (assignment.topic_id, assignment.partition_id)
    assert ErrorCode(answers[0].error_code) is code
    assert words in answers[0].error_message


def two_directories() -> MetadataRecord:
    record = broker(1)
    record.register_broker.log_dirs.append(OTHER)
    return record


@pytest.fixture
def state() -> Metadata:
    return a_cluster(a_partition((1, 2)), a_partition((2, 3), partition_id=1)).commit(two_directories())


def test_an_assignment_is_written_and_nothing_else_changes(state: Metadata) -> None:
    records, answers = run(state, asked())
    assert answers == [DirectoryAssignmentResult(topic_id=an_id(NUMBER), partition_id=0)]
    assert records[0].version == 2
    after = the_partition(state.append(records))
    assert after.directories == [OTHER, an_id(902)]
    assert (after.leader, after.leader_epoch, list(after.isr), after.partition_epoch) == (1, 5, [1, 2], 8)


def test_ct58_the_directory_that_it_has_makes_no_record(state: Metadata) -> None:
    records, answers = run(state, asked(an_id(901)))
    assert (records, answers[0].error_code) == ([], 0)


@pytest.mark.parametrize("directory", [an_id(77), LOST_DIRECTORY])
def test_a_replica_in_a_directory_that_is_not_online_leaves_isr_and_leadership(
    state: Metadata, directory: bytes
) -> None:
    records, answers = run(state, asked(directory))
    assert answers[0].error_code == 0
    assert len(records) == 1
    after = the_partition(state.append(records))
    assert (list(after.directories), after.leader, list(after.isr)) == ([directory, an_id(902)], 2, [2])
    assert after.leader_epoch == 6


def test_a_last_member_in_a_failed_directory_leaves_nobody_to_lead() -> None:
    records, _ = run(a_cluster(a_partition((1, 2), (1,))), asked(LOST_DIRECTORY))
    change = records[0].partition_change
    assert (change.leader, list(change.isr.ids), list(change.eligible_leader_replicas.ids)) == (NO_LEADER, [], [1])


@pytest.mark.parametrize("before", [LOST_DIRECTORY, an_id(77)])
def test_ct56_a_replica_that_begins_anew_in_another_directory_is_not_eligible(before: bytes) -> None:
    lost = a_partition((1, 2), (), leader=NO_LEADER, elr=[1], directories=[before, an_id(902)])
    records, _ = run(a_cluster(lost, fenced=[2]).commit(two_directories()), asked())
    change = records[0].partition_change
    assert (list(change.eligible_leader_replicas.ids), change.directories.ids[0]) == ([], OTHER)
    assert change.HasField("eligible_leader_replicas")
    assert not change.HasField("leader")


@pytest.mark.parametrize("before", [LOST_DIRECTORY, an_id(77)])
def test_ct27_the_last_known_leader_that_begins_anew_is_not_elected(before: bytes) -> None:
    lost = a_partition((1, 2), (), leader=NO_LEADER, last_known=[1], directories=[before, an_id(902)])
    state = a_cluster(lost, fenced=[2]).commit(two_directories())
    records, _ = run(state, asked())
    after = the_partition(state.append(records))
    assert (after.leader, list(after.isr), list(after.last_known_elr)) == (NO_LEADER, [], [])
    assert after.directories[0] == OTHER


def test_ct27_a_sole_leader_that_begins_anew_is_not_remembered_as_the_last_known_one() -> None:
    partition = a_partition((1, 2), (1,), directories=[an_id(77), an_id(902)])
    state = a_cluster(partition).commit(two_directories())
    records, _ = run(state, asked())
    after = the_partition(state.append(records))
    assert (after.leader, list(after.isr), list(after.last_known_elr)) == (NO_LEADER, [], [])


def test_ct27_the_last_known_leader_that_is_moved_is_elected() -> None:
    lost = a_partition((1, 2), (), leader=NO_LEADER, last_known=[1], directories=[an_id(901), an_id(902)])
    state = a_cluster(lost, fenced=[2]).commit(two_directories())
    records, _ = run(state, asked())
    after = the_partition(state.append(records))
    assert (after.leader, list(after.isr), after.directories[0]) == (1, [1], OTHER)


@pytest.mark.parametrize("state_of_log", [LOST_DIRECTORY, DAMAGED_DIRECTORY])
def test_ct27_a_replica_that_is_in_no_directory_has_not_begun_anew(state_of_log: bytes) -> None:
    """Its directory may be here again at the next start."""
    waiting = a_partition((1, 2), (), leader=NO_LEADER, elr=[1, 2], directories=[an_id(77), an_id(902)])
    state = a_cluster(waiting, fenced=[2], min_isr=2)
    state.append(run(state, asked(state_of_log))[0])
    after = the_partition(state)
    assert (after.directories[0], list(after.eligible_leader_replicas)) == (state_of_log, [1, 2])


def test_a_failed_directory_that_is_named_again_changes_nothing() -> None:
    waiting = a_partition((1, 2), (), leader=NO_LEADER, elr=[1], directories=[an_id(77), an_id(902)])
    records, answers = run(a_cluster(waiting, fenced=[2]), asked(an_id(77)))
    assert (records, answers[0].error_code) == ([], 0)


def test_a_leader_that_begins_anew_leads_no_more() -> None:
    partition = a_partition((1, 2), directories=[an_id(77), an_id(902)])
    state = a_cluster(partition).commit(two_directories())
    records, _ = run(state, asked())
    after = the_partition(state.append(records))
    assert (after.leader, list(after.isr), after.directories[0]) == (2, [2], OTHER)


@pytest.mark.parametrize("before", [UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY, an_id(901)])
def test_an_eligible_replica_that_is_moved_or_says_where_it_is_may_lead(before: bytes) -> None:
    waiting = a_partition((1, 2), (), leader=NO_LEADER, elr=[1], directories=[before, an_id(902)])
    state = a_cluster(waiting).commit(two_directories())
    records, _ = run(state, asked())
    after = the_partition(state.append(records))
    assert (after.leader, list(after.isr), after.directories[0]) == (1, [1], OTHER)


def test_directories_need_metadata_version_17() -> None:
    with pytest.raises(ApiError, match=r"from metadata.version 17 on, and this cluster's is 16") as raised:
        run(a_cluster(a_partition((1, 2)), version=16), asked(), epoch=99)
    assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(("broker_id", "epoch"), [(1, 3), (8, 0)])
def test_a_stale_broker_epoch_refuses_the_whole_request(state: Metadata, broker_id: int, epoch: int) -> None:
    with pytest.raises(ApiError, match=f"broker {broker_id} names the epoch {epoch}") as raised:
        run(state, asked(), broker_id=broker_id, epoch=epoch)
    assert raised.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_unknown_topics_and_partitions(state: Metadata) -> None:
    refused(state, asked(topic_id=an_id(8)), ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with the id")
    refused(state, asked(partition_id=6), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "has no partition 6")


def test_a_broker_without_a_replica(state: Metadata) -> None:
    words = "broker 1 has no replica of partition 1 of topic 'clicks'"
    refused(state, asked(partition_id=1), ErrorCode.NOT_LEADER_OR_FOLLOWER, words)


def test_ct27_reserved_directories_have_kafkas_ids() -> None:
    reserved = (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, LOST_DIRECTORY)
    assert [int.from_bytes(directory, "big") for directory in reserved] == [0, 1, 2]


@pytest.mark.parametrize(
    "directory", [b"", b"short", UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY, (5).to_bytes(16, "big")]
)
def test_what_is_no_directory(state: Metadata, directory: bytes) -> None:
    refused(state, asked(directory), ErrorCode.INVALID_REQUEST, "is not the id of a log directory for partition 0")


def test_assignments_are_answered_one_by_one_and_twice_the_same_is_refused() -> None:
    state = a_cluster(a_partition((1, 2)), a_partition((1, 2), partition_id=1)).commit(two_directories())
    records, answers = run(state, asked(), asked(an_id(901)), asked(partition_id=1))
    assert [record.partition_change.partition_id for record in records] == [1]
    assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, 0]
    assert "more than once" in answers[0].error_message


def test_ct12_too_many_assignments_are_refused_as_a_whole(state: Metadata) -> None:
    with pytest.raises(ApiError, match="divide it") as raised:
        run(state, *[asked()] * 10_001)
    assert raised.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_failed_directory_takes_the_replicas_in_it_out_of_isr_and_leadership() -> None:
    partitions = [
        a_partition((1, 2)),
        a_partition((1, 2), partition_id=1, directories=[OTHER, an_id(902)]),
        a_partition((2, 1), partition_id=2),
        a_partition((1, 2), partition_id=3, directories=[UNASSIGNED_DIRECTORY, an_id(902)]),
        a_partition((2, 3), partition_id=4, directories=[an_id(901), an_id(903)]),
    ]
    state = a_cluster(*partitions).commit(two_directories())
    found = state.partitions(an_id(NUMBER))
    state.append(partitions_without_directories(state, 1, [an_id(901)], found))
    after = state.partitions(an_id(NUMBER))
    assert [list(partition.isr) for partition in after] == [[2], [1, 2], [2], [1, 2], [2, 3]]
    assert [partition.leader for partition in after] == [2, 1, 2, 1, 2]


def test_before_metadata_version_17_nobody_knows_what_failed() -> None:
    state = a_cluster(a_partition((1, 2)), version=16)
    assert partitions_without_directories(state, 1, [an_id(901)], state.partitions(an_id(NUMBER))) == []


def test_only_what_was_online_has_failed_now() -> None:
    registered = two_directories().register_broker
    assert failed_directories(registered, [OTHER, an_id(5)]) == {OTHER}
    assert failed_directories(registered, [an_id(5)]) == set()
