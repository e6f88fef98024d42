"""AlterPartition (CT-42): every step of its validation in order, and what is written (CT-40, CT-41)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.controller.operations.alter_partition import alter_partition
from kraftlog.controller.rules.partition_change import RECOVERED, RECOVERING
from kraftpb.v1.admin_pb2 import AlteredPartition, AlterPartitionRequest, AlterPartitionResult, IsrMember
from kraftpb.v1.metadata_pb2 import MetadataRecord, PartitionRecord
from statemachine.words.limits import RECORDS_PER_BATCH_MAX
from tests.statemachine.builders import an_id
from tests.statemachine.partitions import NUMBER, a_cluster, a_partition, the_partition
from tests.statemachine.states import Metadata


def asked(
    isr: Sequence[int | tuple[int, int]],
    *,
    partition_id: int = 0,
    topic_id: bytes = an_id(NUMBER),
    leader_epoch: int = 5,
    partition_epoch: int = 7,
    recovery_state: int = RECOVERED,
) -> AlteredPartition:
    """A new ISR; a member is a broker, or a broker and the epoch that the leader gives for it."""
    members = [(member, -1) if isinstance(member, int) else member for member in isr]
    return AlteredPartition(
        topic_id=topic_id,
        partition_id=partition_id,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        leader_recovery_state=recovery_state,
        new_isr=[IsrMember(broker_id=broker_id, broker_epoch=epoch) for broker_id, epoch in members],
    )


def run(
    state: Metadata, *partitions: AlteredPartition, broker_id: int = 1, epoch: int = 0
) -> tuple[list[MetadataRecord], list[AlterPartitionResult]]:
    request = AlterPartitionRequest(broker_id=broker_id, broker_epoch=epoch, partitions=partitions)
    records, response = alter_partition(state, request)
    return records, list(response.partitions)


def refused(state: Metadata, altered: AlteredPartition, code: ErrorCode, words: str, broker_id: int = 1) -> None:
    """The change is refused in these words, and nothing is written."""
    records, answers = run(state, altered, broker_id=broker_id)
    assert records == []
    assert ErrorCode(answers[0].error_code) is code
    assert words in answers[0].error_message
    assert (answers[0].topic_id, answers[0].partition_id) == (altered.topic_id, altered.partition_id)
    assert not answers[0].isr


@pytest.fixture
def state() -> Metadata:
    return a_cluster(a_partition((1, 2, 3), (1, 2)))


@pytest.mark.parametrize(("broker_id", "epoch"), [(1, 4), (9, 0)])
def test_step1_a_stale_broker_epoch_refuses_the_whole_request(state: Metadata, broker_id: int, epoch: int) -> None:
    with pytest.raises(ApiError, match=f"broker {broker_id} names the epoch {epoch}") as raised:
        run(state, asked([1, 2, 3]), broker_id=broker_id, epoch=epoch)
    assert raised.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_step2_an_unknown_topic_or_partition(state: Metadata) -> None:
    refused(state, asked([1], topic_id=an_id(9)), ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with the id")
    refused(state, asked([1], topic_id=b"short"), ErrorCode.UNKNOWN_TOPIC_ID, "an id has 16 bytes")
    refused(
        state, asked([1], partition_id=4), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 'clicks' has no partition 4"
    )


def test_step3_an_epoch_that_is_not_known_yet_means_that_this_controller_is_behind(state: Metadata) -> None:
    refused(state, asked([1], leader_epoch=6), ErrorCode.NOT_CONTROLLER, "has the leader epoch 5 here")
    refused(state, asked([1], partition_epoch=8), ErrorCode.NOT_CONTROLLER, "has the partition epoch 7 here")
    # Before step 4.
    refused(state, asked([1], leader_epoch=4, partition_epoch=8), ErrorCode.NOT_CONTROLLER, "the request names 8")


def test_step4_an_old_leader_epoch_is_fenced(state: Metadata) -> None:
    refused(state, asked([9], leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH, "the leader epoch 5, and the request")
    # Before steps 5 and 6.
    altered = asked([9], leader_epoch=4, partition_epoch=6)
    refused(state, altered, ErrorCode.FENCED_LEADER_EPOCH, "names 4", broker_id=2)


def test_step5_only_the_leader_alters_a_partition(state: Metadata) -> None:
    altered = asked([1, 2, 3], partition_epoch=6)
    refused(state, altered, ErrorCode.INVALID_REQUEST, "is led by broker 1, not by broker 2", broker_id=2)


def test_step6_an_old_partition_epoch(state: Metadata) -> None:
    refused(state, asked([9], partition_epoch=6), ErrorCode.INVALID_UPDATE_VERSION, "the partition epoch 7")


def test_step7_the_isr_is_of_replicas_each_once(state: Metadata) -> None:
    refused(state, asked([2, 4]), ErrorCode.INVALID_REQUEST, "has broker 4, which has no replica of it")
    refused(state, asked([1, 2, 2]), ErrorCode.INVALID_REQUEST, "has broker 2 more than once")


def test_step8_the_isr_has_the_leader(state: Metadata) -> None:
    refused(state, asked([2, 3], recovery_state=1), ErrorCode.INVALID_REQUEST, "lacks its leader, broker 1")


def test_step9_a_recovering_leader_is_alone(state: Metadata) -> None:
    recovering = a_cluster(a_partition((1, 2, 3), (1,), recovery_state=RECOVERING), fenced=[2])
    altered = asked([1, 2], recovery_state=RECOVERING)
    refused(recovering, altered, ErrorCode.INVALID_REQUEST, "only the leader")
    refused(state, asked([1], recovery_state=RECOVERING), ErrorCode.INVALID_REQUEST, "it cannot be recovering again")
    refused(state, asked([1], recovery_state=2), ErrorCode.INVALID_REQUEST, "2 is not a leader recovery state")


@pytest.mark.parametrize(
    ("member", "words"),
    [
        (2, "broker 2 is fenced"),
        (3, "broker 3 is shutting down"),
        (5, "broker 5 is not registered"),
        ((4, 8), "broker 4 is registered with the epoch 0, not 8"),
    ],
)
def test_step10_members_are_active_and_have_the_epoch_that_is_said(member: int | tuple[int, int], words: str) -> None:
    state = a_cluster(a_partition((1, 2, 3, 4, 5), (1,)), fenced=[2], shutting_down=[3])
    refused(state, asked([1, member]), ErrorCode.INELIGIBLE_REPLICA, words)


def test_step10_minus_one_skips_the_brokers_epoch(state: Metadata) -> None:
    records, answers = run(state, asked([(1, 0), (2, -1), (3, 0)]))
    assert (len(records), answers[0].error_code) == (1, 0)


def test_ct40_a_success_writes_the_isr_and_answers_with_the_partition(state: Metadata) -> None:
    records, answers = run(state, asked([1, 2, 3]))
    assert records[0].version == 2
    assert not records[0].partition_change.HasField("leader")
    after = the_partition(state.append(records))
    assert (list(after.isr), after.leader, after.leader_epoch, after.partition_epoch) == ([1, 2, 3], 1, 5, 8)
    answer = answers[0]
    assert (list(answer.isr), answer.leader, answer.leader_epoch, answer.partition_epoch) == ([1, 2, 3], 1, 5, 8)
    assert (answer.error_code, answer.leader_recovery_state) == (0, RECOVERED)


def test_ct40_before_3_6_a_shrink_answers_with_the_new_leader_epoch() -> None:
    records, answers = run(a_cluster(a_partition((1, 2, 3)), version=11), asked([1, 2]))
    assert (answers[0].error_code, answers[0].leader, answers[0].leader_epoch) == (0, 1, 6)
    assert records[0].version == 0


def test_ct40_a_leader_that_recovered_says_so() -> None:
    state = a_cluster(a_partition((1, 2), (1,), recovery_state=RECOVERING))
    records, answers = run(state, asked([1]))
    assert records[0].partition_change.leader_recovery_state == RECOVERED
    assert records[0].partition_change.HasField("leader_recovery_state")
    assert answers[0].leader_recovery_state == RECOVERED
    assert answers[0].partition_epoch == 8


def test_ct40_a_shrink_below_min_isr_makes_who_left_eligible() -> None:
    state = a_cluster(a_partition((1, 2, 3), (1, 2)), min_isr=2)
    records, _ = run(state, asked([1]))
    assert the_partition(state.append(records)).eligible_leader_replicas == [2]


def test_ct41_completing_a_reassignment_that_moves_the_leader_is_an_error_and_written() -> None:
    state = a_cluster(a_partition((2, 3, 1), (1, 2), adding=[3], removing=[1]))
    records, answers = run(state, asked([1, 2, 3]))
    assert ErrorCode(answers[0].error_code) is ErrorCode.NEW_LEADER_ELECTED
    assert "is led by broker 2 from now on" in answers[0].error_message
    after = the_partition(state.append(records))
    assert (list(after.replicas), list(after.isr), after.leader, after.leader_epoch) == ([2, 3], [2, 3], 2, 6)


def test_ct41_completing_a_reassignment_whose_leader_stays_is_a_success() -> None:
    state = a_cluster(a_partition((1, 3, 2), (1, 2), adding=[3], removing=[2]))
    records, answers = run(state, asked([1, 2, 3]))
    assert (answers[0].error_code, list(answers[0].isr), answers[0].leader_epoch) == (0, [1, 3], 6)
    assert the_partition(state.append(records)).replicas == [1, 3]


def test_ct41_a_leader_whose_directory_failed_is_replaced() -> None:
    partition = a_partition((1, 2), directories=[an_id(77), an_id(902)])
    records, answers = run(a_cluster(partition), asked([1, 2]))
    assert ErrorCode(answers[0].error_code) is ErrorCode.NEW_LEADER_ELECTED
    assert records[0].partition_change.leader == 2


@pytest.mark.parametrize(("unclean", "leader", "isr"), [(True, 2, [2]), (False, -1, [1])])
def test_ct41_the_election_is_unclean_only_if_the_topic_allows_it(unclean: bool, leader: int, isr: list[int]) -> None:
    partition = a_partition((1, 2), (1,), directories=[an_id(77), an_id(902)])
    state = a_cluster(partition, unclean=unclean)
    records, answers = run(state, asked([1]))
    assert ErrorCode(answers[0].error_code) is ErrorCode.NEW_LEADER_ELECTED
    after = the_partition(state.append(records))
    assert (after.leader, list(after.isr)) == (leader, isr)
    assert not after.last_known_elr  # a replica is in sync


def test_ct58_the_isr_that_it_has_makes_no_record(state: Metadata) -> None:
    records, answers = run(state, asked([1, 2]))
    assert records == []
    assert (answers[0].error_code, list(answers[0].isr), answers[0].partition_epoch) == (0, [1, 2], 7)


def test_partitions_are_answered_one_by_one_and_twice_the_same_is_refused() -> None:
    state = a_cluster(a_partition((1, 2), (1,)), a_partition((1, 2), (1,), partition_id=1))
    records, answers = run(state, asked([1, 2]), asked([1, 2], partition_id=1), asked([1], partition_id=1))
    assert [record.partition_change.partition_id for record in records] == [0]
    assert [answer.error_code for answer in answers] == [0, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]
    assert "more than once" in answers[1].error_message


def test_ct12_too_many_partitions_are_refused_as_a_whole(state: Metadata) -> None:
    with pytest.raises(ApiError, match="at most 10000 fit") as raised:
        run(state, *[asked([1])] * (RECORDS_PER_BATCH_MAX + 1))
    assert raised.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_the_state_is_left_as_it_is(state: Metadata) -> None:
    before = PartitionRecord.FromString(the_partition(state).SerializeToString())
    run(state, asked([1, 2, 3]))
    assert the_partition(state) == before
