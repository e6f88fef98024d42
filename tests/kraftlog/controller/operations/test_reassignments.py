"""AlterPartitionReassignments and the list of them (CT-25, CT-26, CT-54, CT-55)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.sentinels import NO_LEADER
from kraftlog.controller.operations.alter_partition import alter_partition
from kraftlog.controller.operations.reassignments import alter_partition_reassignments
from kraftlog.controller.rules.partition_change import RECOVERED, RECOVERING
from kraftpb.v1.admin_pb2 import (
    AlteredPartition,
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    IsrMember,
    OngoingReassignment,
    PartitionReassignment,
    PartitionResult,
)
from kraftpb.v1.metadata_pb2 import BrokerIds, MetadataRecord, PartitionChangeRecord, PartitionRecord
from statemachine.query import reassignments
from statemachine.query.reassignments import list_reassignments
from statemachine.words.names import NAME_LENGTH_TAKEN_MAX
from tests.effort import examples
from tests.statemachine.builders import an_id, topic
from tests.statemachine.partitions import NUMBER, TOPIC, a_cluster, a_partition, the_partition
from tests.statemachine.states import Metadata


def to(replicas: Sequence[int] | None, partition_id: int = 0, name: str = TOPIC) -> PartitionReassignment:
    """A reassignment to these replicas; None cancels."""
    ids = None if replicas is None else BrokerIds(ids=replicas)
    return PartitionReassignment(topic=name, partition_id=partition_id, replicas=ids)


def run(state: Metadata, *asked: PartitionReassignment) -> tuple[list[MetadataRecord], list[PartitionResult]]:
    records, response = alter_partition_reassignments(state, AlterPartitionReassignmentsRequest(partitions=asked))
    return records, list(response.partitions)


def reassigned(state: Metadata, replicas: Sequence[int] | None) -> PartitionRecord:
    """Partition 0 after the reassignment was begun, which must be possible."""
    records, answers = run(state, to(replicas))
    assert answers == [PartitionResult(topic=TOPIC, partition_id=0)]
    return the_partition(state.append(records))


def refused(state: Metadata, asked: PartitionReassignment, code: ErrorCode, words: str) -> None:
    """The reassignment is refused in these words, and nothing is written."""
    records, answers = run(state, asked)
    assert records == []
    assert (answers[0].topic, answers[0].partition_id) == (asked.topic, asked.partition_id)
    assert ErrorCode(answers[0].error_code) is code
    assert words in answers[0].error_message


def altered_by_leader(state: Metadata, isr: Sequence[int]) -> int:
    """The leader of partition 0 reports this ISR; returns the error of the answer."""
    before = the_partition(state)
    altered = AlteredPartition(
        topic_id=an_id(NUMBER),
        leader_epoch=before.leader_epoch,
        partition_epoch=before.partition_epoch,
        leader_recovery_state=RECOVERED,
        new_isr=[IsrMember(broker_id=broker_id, broker_epoch=-1) for broker_id in isr],
    )
    records, response = alter_partition(state, AlterPartitionRequest(broker_id=before.leader, partitions=[altered]))
    state.append(records)
    return response.partitions[0].error_code


def lists(partition: PartitionRecord) -> tuple[list[int], list[int], list[int], list[int]]:
    return (
        list(partition.replicas),
        list(partition.adding_replicas),
        list(partition.removing_replicas),
        list(partition.isr),
    )


# --- beginning and completing -----------------------------------------------------------------------------------------


def test_ct54_new_replicas_come_beside_the_old_ones_with_the_target_first() -> None:
    after = reassigned(a_cluster(a_partition((1, 2))), [4, 3, 2])
    assert lists(after) == ([4, 3, 2, 1], [3, 4], [1], [1, 2])
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (1, 5, 8)
    assert after.directories == [an_id(904), an_id(903), an_id(902), an_id(901)]


def test_ct54_when_the_new_ones_are_in_sync_the_old_ones_go() -> None:
    state = a_cluster(a_partition((1, 2)))
    reassigned(state, [4, 3])
    assert altered_by_leader(state, [1, 2, 3]) == 0
    assert lists(the_partition(state)) == ([4, 3, 1, 2], [3, 4], [1, 2], [1, 2, 3])
    assert altered_by_leader(state, [1, 2, 3, 4]) == ErrorCode.NEW_LEADER_ELECTED
    after = the_partition(state)
    assert lists(after) == ([4, 3], [], [], [3, 4])
    assert (after.leader, after.leader_epoch) == (4, 6)
    assert list_reassignments(state) == []


def test_ct54_what_is_in_sync_already_is_done_at_once() -> None:
    after = reassigned(a_cluster(a_partition((1, 2, 3))), [3, 2])
    assert lists(after) == ([3, 2], [], [], [2, 3])
    assert (after.leader, after.leader_epoch) == (3, 6)


def test_ct54_another_order_is_no_new_epoch() -> None:
    after = reassigned(a_cluster(a_partition((1, 2, 3))), [3, 1, 2])
    assert lists(after) == ([3, 1, 2], [], [], [1, 2, 3])
    assert (after.leader, after.leader_epoch) == (1, 5)


def test_ct54_fenced_brokers_may_be_assigned() -> None:
    assert lists(reassigned(a_cluster(a_partition((1,)), fenced=[2]), [1, 2])) == ([1, 2], [2], [], [1])


def test_ct58_the_present_replicas_are_no_reassignment() -> None:
    records, answers = run(a_cluster(a_partition((1, 2, 3), (1, 2))), to([1, 2, 3]))
    assert records == []
    assert answers[0].error_code == 0


STRANDED = a_partition((3, 1, 2), (3,), adding=[3], removing=[1, 2])


# --- over one that is in progress -------------------------------------------------------------------------------------


@pytest.mark.parametrize("elr", [True, False])
@pytest.mark.parametrize("unclean", [True, False])
def test_ct55_over_another_nobody_is_dropped_and_the_leader_stays_until_the_new_ones_are_in_sync(
    unclean: bool, elr: bool
) -> None:
    """Only 2, which the first one brought, has the data when the second begins; 4 and 5 have nothing."""
    state = a_cluster(a_partition((0, 1)), brokers=range(6), unclean=unclean, elr=elr)
    reassigned(state, [2, 3])
    assert altered_by_leader(state, [0, 1, 2]) == 0
    led = led_by(state, 2)
    after = reassigned(state, [4, 5])
    assert lists(after) == ([4, 5, 0, 1, 2, 3], [4, 5], [0, 1, 2, 3], [0, 1, 2])
    assert (after.leader, after.leader_epoch) == (2, led.leader_epoch)
    assert altered_by_leader(state, [2]) == 0
    assert lists(the_partition(state))[1:] == ([4, 5], [0, 1, 2, 3], [2])
    assert altered_by_leader(state, [2, 4]) == 0
    assert altered_by_leader(state, [2, 4, 5]) == ErrorCode.NEW_LEADER_ELECTED
    complete = the_partition(state)
    assert lists(complete) == ([4, 5], [], [], [4, 5])
    assert (complete.leader, complete.leader_recovery_state) == (4, RECOVERED)


def led_by(state: Metadata, leader: int) -> PartitionRecord:
    """Partition 0 with another leader, as by a preferred election."""
    change = PartitionChangeRecord(topic_id=an_id(NUMBER), partition_id=0, leader=leader)
    return the_partition(state.append([MetadataRecord(partition_change=change)]))


@pytest.mark.parametrize("unclean", [True, False])
@pytest.mark.parametrize("replicas", [[1, 2], [4, 1], [4]])
def test_ct55_who_alone_has_the_data_stays_though_the_first_reassignment_brought_it(
    replicas: list[int], unclean: bool
) -> None:
    after = reassigned(a_cluster(STRANDED, unclean=unclean), replicas)
    assert set(after.replicas) == {1, 2, 3, *replicas}
    assert list(after.replicas)[: len(replicas)] == replicas
    assert list(after.removing_replicas) == sorted({1, 2, 3} - set(replicas))
    assert (after.leader, list(after.isr), after.leader_epoch) == (3, [3], STRANDED.leader_epoch)


@pytest.mark.parametrize("elr", [True, False])
@pytest.mark.parametrize("unclean", [True, False])
def test_ct55_who_has_the_data_is_waited_for(unclean: bool, elr: bool) -> None:
    """Its broker is down for a moment. 4 is active, with nothing."""
    stranded = a_partition((3, 1, 2), (3,), NO_LEADER, adding=[3], removing=[1, 2])
    after = reassigned(a_cluster(stranded, unclean=unclean, elr=elr, fenced=[3]), [4])
    assert (after.leader, after.leader_recovery_state, list(after.isr)) == (NO_LEADER, RECOVERED, [3])


def test_ct55_the_old_replicas_named_again_are_done_at_once_when_they_are_in_sync() -> None:
    state = a_cluster(a_partition((1, 2)))
    reassigned(state, [3, 4])
    altered_by_leader(state, [1, 2, 3])
    assert lists(reassigned(state, [1, 2])) == ([1, 2], [], [], [1, 2])


def test_ct55_who_is_named_by_the_new_one_is_not_removed_by_the_old_one() -> None:
    """Kafka's controller keeps the list of those to remove if the new target removes none: 1 and 2 would be removed."""
    state = a_cluster(a_partition((1, 2)))
    reassigned(state, [3, 4])
    after = reassigned(state, [1, 2, 3, 4])
    assert lists(after) == ([1, 2, 3, 4], [], [], [1, 2])
    assert altered_by_leader(state, [1, 2, 3, 4]) == 0
    assert lists(the_partition(state)) == ([1, 2, 3, 4], [], [], [1, 2, 3, 4])


def test_ct55_cancelling_goes_back_to_the_replicas_before_the_last_one() -> None:
    state = a_cluster(a_partition((0, 1)), brokers=range(6))
    reassigned(state, [2, 3])
    reassigned(state, [4, 5])
    assert lists(reassigned(state, None)) == ([0, 1, 2, 3], [], [], [0, 1])
    state = a_cluster(a_partition((0, 1)), brokers=range(6))
    reassigned(state, [2, 3])
    assert lists(reassigned(state, [0, 1, 2])) == ([0, 1, 2, 3], [], [3], [0, 1])
    assert lists(reassigned(state, None)) == ([0, 1, 2, 3], [], [], [0, 1])


# --- cancelling -------------------------------------------------------------------------------------------------------


def test_ct54_cancelling_takes_back_what_was_being_added() -> None:
    state = a_cluster(a_partition((1, 2)))
    reassigned(state, [4, 3, 2])
    altered_by_leader(state, [1, 2, 3])
    after = reassigned(state, None)
    assert sorted(after.replicas) == [1, 2]
    assert lists(after)[1:] == ([], [], [1, 2])
    assert (after.leader, after.leader_epoch) == (1, 6)
    refused(state, to(None), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "partition 0 of topic 'clicks' is not being")


def test_ct54_reverting_to_replicas_that_are_not_in_sync_is_refused() -> None:
    refused(
        a_cluster(STRANDED),
        to(None),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "would keep no replica that is in sync; wait until one of",
    )


@pytest.mark.parametrize("elr", [True, False])
def test_ct54_reverting_uncleanly_needs_the_topics_leave_and_somebody_there(elr: bool) -> None:
    after = reassigned(a_cluster(STRANDED, unclean=True, fenced=[1], elr=elr), None)
    assert lists(after) == ([1, 2], [], [], [2])
    assert (after.leader, after.leader_recovery_state) == (2, RECOVERING)
    nobody = a_cluster(STRANDED, unclean=True, fenced=[1, 2], elr=elr)
    refused(nobody, to(None), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "on an active broker; start one of [1, 2]")


@pytest.mark.parametrize("elr", [True, False])
def test_ct54_new_replicas_are_not_elected_while_somebody_who_stays_has_the_data(elr: bool) -> None:
    """They are empty. The controller waits for replicas with the data, even if the topic allows an unclean election."""
    stopped = a_partition((1, 2), (1,), leader=NO_LEADER)
    after = reassigned(a_cluster(stopped, unclean=True, fenced=[1, 2], elr=elr), [3, 4])
    assert lists(after) == ([3, 4, 1, 2], [3, 4], [1, 2], [1])
    assert (after.leader, after.leader_recovery_state) == (NO_LEADER, RECOVERED)


def test_ct54_the_last_leader_is_not_dropped_while_nobody_else_has_the_data() -> None:
    lost = a_partition((3, 1, 2), (), last_known=[3], adding=[3])
    refused(a_cluster(lost), to(None), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "would keep no replica that is in sync")
    kept = reassigned(a_cluster(a_partition((3, 1, 2), (), last_known=[1], adding=[3]), fenced=[1]), None)
    assert (kept.leader, list(kept.replicas), list(kept.last_known_elr)) == (NO_LEADER, [1, 2], [1])


def test_ct54_reverting_to_an_eligible_replica_is_clean() -> None:
    partition = a_partition((3, 1, 2), (3,), adding=[3], removing=[1, 2], elr=[2])
    after = reassigned(a_cluster(partition, min_isr=2), None)
    assert lists(after) == ([1, 2], [], [], [2])
    assert (after.leader, after.leader_recovery_state) == (2, RECOVERED)


def test_a_partition_that_nobody_has_in_sync_may_be_cancelled() -> None:
    partition = a_partition((3, 1, 2), (), leader=NO_LEADER, adding=[3], removing=[1, 2])
    assert lists(reassigned(a_cluster(partition), None)) == ([1, 2], [], [], [])


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replicas", "words"),
    [
        ([], "would have no replicas"),
        ([1, 2, 1], "would have broker 1 more than once"),
        ([1, 9], "broker 9, which is not registered"),
        ([-1], "broker -1, which is not registered"),
    ],
)
def test_replicas_that_cannot_be(replicas: list[int], words: str) -> None:
    refused(a_cluster(a_partition((1, 2))), to(replicas), ErrorCode.INVALID_REPLICA_ASSIGNMENT, words)


def test_unknown_topics_and_partitions() -> None:
    state = a_cluster(a_partition((1, 2)))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    refused(state, to([1], name="views"), unknown, "there is no topic 'views'")
    refused(state, to(None, partition_id=5), unknown, "topic 'clicks' has no partition 5")


def test_nothing_to_cancel() -> None:
    refused(a_cluster(a_partition()), to(None), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "there is nothing to cancel")


def test_partitions_are_answered_one_by_one_and_twice_the_same_is_refused() -> None:
    state = a_cluster(a_partition((1, 2)), a_partition((1, 2), partition_id=1))
    records, answers = run(state, to([1, 3]), to([1, 3], 1), to([2, 3]))
    assert [record.partition_change.partition_id for record in records] == [1]
    assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]
    assert "partition 0 of topic 'clicks' is in the request more than once" in answers[2].error_message


def test_a_request_that_cannot_be_is_refused_as_a_whole() -> None:
    state = a_cluster(a_partition())
    with pytest.raises(ApiError, match="at most 1000 are accepted"):
        run(state, to([1], name="x" * (NAME_LENGTH_TAKEN_MAX + 1)))
    with pytest.raises(ApiError, match="divide it") as raised:
        run(state, *[to([1])] * 10_001)
    assert raised.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


# --- the list ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [1, 2, 1_000])
def test_the_reassignments_under_way_are_listed_by_topic_and_partition(
    monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(reassignments, "PARTITIONS_PER_PAGE", page)
    state = a_cluster(
        a_partition((1, 2)),
        a_partition((1, 2), (1,), removing=[2], partition_id=1),
        a_partition((1, 2, 3), (1, 2), adding=[3], partition_id=2),
    ).commit(topic("apples", 2), MetadataRecord(partition=a_partition((4, 1), (1,), adding=[4], number=2)))
    assert list_reassignments(state) == [
        OngoingReassignment(topic="apples", partition_id=0, replicas=[4, 1], adding_replicas=[4], isr=[1]),
        OngoingReassignment(topic=TOPIC, partition_id=1, replicas=[1, 2], removing_replicas=[2], isr=[1]),
        OngoingReassignment(topic=TOPIC, partition_id=2, replicas=[1, 2, 3], adding_replicas=[3], isr=[1, 2]),
    ]


# --- property ---------------------------------------------------------------------------------------------------------

ASSIGNMENTS = st.lists(st.integers(1, 4), min_size=1, unique=True)


@settings(max_examples=examples(100), deadline=None)
@given(first=ASSIGNMENTS, targets=st.lists(ASSIGNMENTS | st.none(), min_size=1, max_size=4), data=st.data())
def test_every_reassignment_converges(first: list[int], targets: list[list[int] | None], data: st.DataObject) -> None:
    """However targets follow each other, the last that was taken is reached once its replicas are in sync."""
    state = a_cluster(a_partition(first), min_isr=data.draw(st.integers(1, 3)), elr=data.draw(st.booleans()))
    goal = set(first)
    original = set(first)
    for target in targets:
        records, answers = run(state, to(target))
        state.append(records)
        if answers[0].error_code == 0:
            goal = original if target is None else set(target)
        partition = the_partition(state)
        original = set(partition.replicas) - set(partition.adding_replicas)
        isr = [b for b in partition.replicas if b in partition.isr or data.draw(st.booleans())]
        altered_by_leader(state, isr)
        partition = the_partition(state)
        original = set(partition.replicas) - set(partition.adding_replicas)
    altered_by_leader(state, the_partition(state).replicas)
    after = the_partition(state)
    assert set(after.replicas) == set(after.isr) == goal
    assert not after.adding_replicas and not after.removing_replicas
    assert after.leader in after.isr
    assert len(after.directories) == len(after.replicas)
