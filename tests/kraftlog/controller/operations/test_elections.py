"""ElectLeaders (CT-24), leader balancing and unclean elections (CT-19)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.sentinels import NO_LEADER
from kraftlog.controller.operations.elections import (
    ElectionPages,
    elect_leaders,
    elect_preferred_where_needed,
    elect_unclean_where_allowed,
    without_eligible,
)
from kraftlog.controller.rules.partition_change import RECOVERED, RECOVERING
from kraftpb.v1.admin_pb2 import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionReference,
    PartitionReferences,
    PartitionResult,
)
from kraftpb.v1.metadata_pb2 import MetadataRecord
from statemachine.words.names import NAME_LENGTH_TAKEN_MAX
from tests.statemachine.builders import an_id
from tests.statemachine.partitions import TOPIC, a_cluster, a_partition, the_partition
from tests.statemachine.states import Metadata

PREFERRED, UNCLEAN = ElectLeadersRequest.PREFERRED, ElectLeadersRequest.UNCLEAN


def run(
    state: Metadata, kind: ElectLeadersRequest.ElectionType.ValueType, *named: tuple[str, int]
) -> tuple[list[MetadataRecord], ElectLeadersResponse]:
    references = [PartitionReference(topic=topic, partition_id=partition_id) for topic, partition_id in named]
    partitions = PartitionReferences(partitions=references)
    return elect_leaders(state, ElectLeadersRequest(election_type=kind, partitions=partitions))


def run_everywhere(
    state: Metadata, kind: ElectLeadersRequest.ElectionType.ValueType
) -> tuple[list[list[MetadataRecord]], ElectLeadersResponse]:
    """The pages with elections, all of them appended, and the answer to all."""
    response = ElectLeadersResponse()
    pages = ElectionPages(state, ElectLeadersRequest(election_type=kind), response)
    found = []
    while (records := pages.next_page()) is not None:
        if records:
            found.append(records)
            pages.appended()
    return found, response


def refused(
    state: Metadata,
    kind: ElectLeadersRequest.ElectionType.ValueType,
    code: ErrorCode,
    words: str,
    named: tuple[str, int] = (TOPIC, 0),
) -> None:
    """The election is refused in these words, and nothing is written."""
    records, response = run(state, kind, named)
    assert records == []
    (answer,) = response.partitions
    assert (answer.topic, answer.partition_id) == named
    assert ErrorCode(answer.error_code) is code
    assert words in answer.error_message


def leaders(records: Sequence[MetadataRecord]) -> dict[int, int]:
    """The leader that each partition gets."""
    return {record.partition_change.partition_id: record.partition_change.leader for record in records}


def test_a_preferred_election_brings_the_first_replica_back() -> None:
    state = a_cluster(a_partition((1, 2, 3), (3, 1, 2), leader=3))
    records, response = run(state, PREFERRED, (TOPIC, 0))
    assert list(response.partitions) == [PartitionResult(topic=TOPIC, partition_id=0)]
    assert records[0].version == 2
    after = the_partition(state.append(records))
    assert (after.leader, after.leader_epoch, list(after.isr)) == (1, 6, [3, 1, 2])


def test_an_unclean_election_takes_who_is_there() -> None:
    state = a_cluster(a_partition((1, 2, 3), (), leader=NO_LEADER, elr=[1]), fenced=[1, 2], min_isr=2)
    records, response = run(state, UNCLEAN, (TOPIC, 0))
    assert response.partitions[0].error_code == 0
    after = the_partition(state.append(records))
    assert (after.leader, list(after.isr), after.leader_recovery_state) == (3, [3], RECOVERING)


def test_an_unclean_election_is_clean_if_it_can_be() -> None:
    state = a_cluster(a_partition((1, 2, 3), (), leader=NO_LEADER, elr=[3]), min_isr=2)
    records, _ = run(state, UNCLEAN, (TOPIC, 0))
    after = the_partition(state.append(records))
    assert (after.leader, after.leader_recovery_state) == (3, RECOVERED)


def test_an_election_that_is_not_needed() -> None:
    state = a_cluster(a_partition((1, 2)), a_partition((2, 1), (1, 2), partition_id=1))
    refused(state, PREFERRED, ErrorCode.ELECTION_NOT_NEEDED, "has its preferred leader, broker 1")
    refused(state, UNCLEAN, ErrorCode.ELECTION_NOT_NEEDED, "has a leader, broker 1", (TOPIC, 1))


@pytest.mark.parametrize(("isr", "fenced"), [((2, 3), ()), ((2, 3), (1,)), ((1, 2), (1,))])
def test_a_preferred_leader_that_is_not_available(isr: Sequence[int], fenced: Sequence[int]) -> None:
    state = a_cluster(a_partition((1, 2, 3), isr, leader=2), fenced=fenced)
    refused(
        state,
        PREFERRED,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        "the preferred leader of partition 0 of topic 'clicks', broker 1,",
    )


def test_a_preferred_election_of_a_partition_without_a_leader_takes_who_is_in_sync() -> None:
    records, response = run(a_cluster(a_partition((1, 2), (2,), leader=NO_LEADER)), PREFERRED, (TOPIC, 0))
    assert (leaders(records), response.partitions[0].error_code) == ({0: 2}, 0)


def test_ct24_an_election_that_completes_a_reassignment_is_none_that_has_failed() -> None:
    """Found beside a stock Kafka: broker 1, which was being added, was elected uncleanly; broker 3 is shutting down."""
    state = a_cluster(
        a_partition((3, 1, 2), (1,), leader=1, removing=[2], adding=[1], recovery_state=RECOVERING), shutting_down=[3]
    )
    records, response = run(state, PREFERRED, (TOPIC, 0))
    assert [list(record.partition_change.replicas.ids) for record in records] == [[3, 1]]
    assert (leaders(records), response.partitions[0].error_code) == ({0: 1}, 0)


def test_a_preferred_election_never_takes_the_leader_away() -> None:
    state = a_cluster(a_partition((1, 2), (2,), leader=2), fenced=[2])
    refused(state, PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "is not active or not in sync")


def test_an_unclean_election_that_finds_nobody() -> None:
    state = a_cluster(a_partition((1, 2), (), leader=NO_LEADER), fenced=[1], brokers=[1, 3])
    refused(state, UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "start one of [1, 2]")


def test_unknown_topics_and_partitions() -> None:
    state = a_cluster(a_partition())
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    refused(state, PREFERRED, unknown, "there is no topic 'views'", ("views", 0))
    refused(state, UNCLEAN, unknown, "topic 'clicks' has no partition 3", (TOPIC, 3))


def test_twice_the_same_is_refused_and_the_others_are_done() -> None:
    state = a_cluster(a_partition((1, 2), (2, 1)), a_partition((1, 2), (2, 1), partition_id=1))
    records, response = run(state, PREFERRED, (TOPIC, 0), (TOPIC, 1), (TOPIC, 0))
    assert leaders(records) == {1: 1}
    codes = [answer.error_code for answer in response.partitions]
    assert codes == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]
    assert "more than once" in response.partitions[0].error_message


def test_a_request_that_cannot_be_is_refused_as_a_whole() -> None:
    state = a_cluster(a_partition())
    with pytest.raises(ApiError, match="7 is not a type of election") as raised:
        elect_leaders(state, ElectLeadersRequest(election_type=7))  # type: ignore[arg-type]
    assert raised.value.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(ApiError, match="7 is not a type of election"):
        ElectionPages(state, ElectLeadersRequest(election_type=7), ElectLeadersResponse())  # type: ignore[arg-type]
    with pytest.raises(ApiError, match="at most 1000 are accepted"):
        run(state, PREFERRED, ("x" * (NAME_LENGTH_TAKEN_MAX + 1), 0))
    with pytest.raises(ApiError, match="divide it") as raised:
        run(state, PREFERRED, *[(TOPIC, 0)] * 10_001)
    assert raised.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_no_partitions_named_is_none_and_not_all() -> None:
    request = ElectLeadersRequest(election_type=PREFERRED, partitions=PartitionReferences())
    records, response = elect_leaders(a_cluster(a_partition((1, 2), (2, 1))), request)
    assert (records, list(response.partitions)) == ([], [])


@pytest.fixture
def five() -> Metadata:
    """Partition 0 has its preferred leader, 1 and 3 have not, 2 has no active replica, and 4 has no leader."""
    return a_cluster(
        a_partition((1, 2)),
        a_partition((1, 2), (2, 1), partition_id=1),
        a_partition((3, 2), (2,), partition_id=2),
        a_partition((4, 2), (2, 4), partition_id=3),
        a_partition((3, 4), (), leader=NO_LEADER, partition_id=4),
        fenced=[3],
    )


@pytest.mark.parametrize("page", [1, 2, 5, 1_000])
def test_all_partitions_are_answered_only_where_something_was_done_or_failed(
    five: Metadata, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr("kraftlog.controller.rules.pages.PAGE_PARTITIONS", page)
    pages, response = run_everywhere(five, PREFERRED)
    assert leaders([record for records in pages for record in records]) == {1: 1, 3: 4}
    unavailable = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    answers = [(answer.topic, answer.partition_id, answer.error_code) for answer in response.partitions]
    assert answers == [(TOPIC, 1, 0), (TOPIC, 2, unavailable), (TOPIC, 3, 0), (TOPIC, 4, unavailable)]
    pages, response = run_everywhere(five, UNCLEAN)
    assert [leaders(records) for records in pages] == [{4: 4}]
    assert [(answer.partition_id, answer.error_code) for answer in response.partitions] == [(4, 0)]


def test_ct12_elections_of_all_partitions_come_in_pages(five: Metadata, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraftlog.controller.rules.pages.PAGE_PARTITIONS", 1)
    pages, _ = run_everywhere(five, PREFERRED)
    assert [leaders(records) for records in pages] == [{1: 1}, {3: 4}]


def test_ct12_a_page_that_the_log_did_not_take_is_decided_anew_and_answered_once() -> None:
    state = a_cluster(a_partition((1, 2), (2, 1)), a_partition((1, 2), (2, 1), partition_id=1))
    response = ElectLeadersResponse()
    pages = ElectionPages(state, ElectLeadersRequest(election_type=PREFERRED), response)
    assert leaders(pages.next_page() or []) == {0: 1, 1: 1}
    assert list(response.partitions) == []
    state.append([MetadataRecord(partition=a_partition((1, 2), (2,), partition_id=1))])  # broker 1 falls behind there
    assert leaders(pages.next_page() or []) == {0: 1}
    pages.appended()
    answers = [(answer.partition_id, answer.error_code) for answer in response.partitions]
    assert answers == [(0, 0), (1, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]


def test_ct19_balancing_elects_the_preferred_where_that_is_possible(five: Metadata) -> None:
    partitions = five.partitions(an_id(1))
    assert leaders(elect_preferred_where_needed(five, partitions, 1_000)) == {1: 1, 3: 4}
    assert leaders(elect_preferred_where_needed(five, partitions, 1)) == {1: 1}
    assert elect_preferred_where_needed(five, partitions, 0) == []


def test_ct19_balancing_elects_nobody_else() -> None:
    state = a_cluster(a_partition((1, 2, 3), (3, 2), leader=3), fenced=[3])
    assert elect_preferred_where_needed(state, state.partitions(an_id(1)), 10) == []


@pytest.mark.parametrize("unclean", [True, False])
def test_ct19_unclean_elections_are_held_where_the_topic_allows_it(unclean: bool) -> None:
    partitions = [
        a_partition((1, 2)),
        a_partition((2, 1), (), leader=NO_LEADER, partition_id=1),
        a_partition((3,), (), leader=NO_LEADER, partition_id=2),
        a_partition((1, 2), (), leader=NO_LEADER, partition_id=3),
        a_partition((3, 1), (3,), partition_id=4),  # its leader is only just leaving
    ]
    state = a_cluster(*partitions, fenced=[3], unclean=unclean)
    found = state.partitions(an_id(1))
    assert leaders(elect_unclean_where_allowed(state, found, 10)) == ({1: 2, 3: 1} if unclean else {})
    assert leaders(elect_unclean_where_allowed(state, found, 1)) == ({1: 2} if unclean else {})


def test_ct56_the_eligible_are_forgotten_before_min_isr_is_lowered() -> None:
    partitions = [
        a_partition((1, 2, 3), (1,), elr=[2]),
        a_partition((1, 2, 3), (), elr=[2], leader=NO_LEADER, partition_id=1),
        a_partition((1, 2, 3), partition_id=2),
        a_partition((2, 1), (2, 1), partition_id=3),  # its leader is only just leaving
    ]
    state = a_cluster(*partitions, fenced=[2], min_isr=2)
    records = without_eligible(state, state.partitions(an_id(1)))
    assert [record.partition_change.partition_id for record in records] == [0]
    after = the_partition(state.append(records))
    assert (list(after.isr), after.leader, list(after.eligible_leader_replicas)) == ([1], 1, [])
    assert after.leader_epoch == 5
    assert without_eligible(state, state.partitions(an_id(1))) == []
