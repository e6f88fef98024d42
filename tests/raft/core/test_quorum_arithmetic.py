"""Majorities and the epoch cache, each against the plainest definition of its result."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftbase.errors import InvariantViolation
from kraftbase.types import Epoch, NodeId, Offset
from raft.core.epochs import EpochCache
from raft.core.quorum import VoteTally, majority_end_offset
from tests.raft.core.fetching import point

# --- majorities -------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-1, 20), min_size=1, max_size=9))
def test_rf41_the_majority_offset_is_the_largest_that_more_than_half_have_reached(end_offsets: list[int]) -> None:
    reached = [offset for offset in end_offsets if sum(other >= offset for other in end_offsets) * 2 > len(end_offsets)]
    assert majority_end_offset(Offset(offset) for offset in end_offsets) == max(reached)


@pytest.mark.parametrize(
    ("end_offsets", "expected"), [([7], 7), ([7, 3], 3), ([7, 5, 3], 5), ([7, 5, 3, 1], 3), ([9, 9, 1, 1, 1], 1)]
)
def test_rf41_the_majority_offset_of_small_quorums(end_offsets: list[int], expected: int) -> None:
    assert majority_end_offset(Offset(offset) for offset in end_offsets) == expected


def tally(voter_count: int, *, allows_change: bool = False) -> VoteTally:
    return VoteTally(tuple(NodeId(node_id) for node_id in range(voter_count)), allows_change)


ANSWERS = st.tuples(st.integers(1, 7), st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=15))


@given(ANSWERS)
def test_rf23_a_vote_is_won_by_a_majority_and_lost_when_none_is_left(
    voters_and_answers: tuple[int, list[tuple[int, bool]]],
) -> None:
    voter_count, answers = voters_and_answers
    votes, model = tally(voter_count, allows_change=True), dict[int, bool]()
    for voter_id, granted in answers:
        if voter_id < voter_count:
            votes.record(NodeId(voter_id), granted)
            model[voter_id] = granted
        granting = [voter for voter in range(voter_count) if model.get(voter) is True]
        rejecting = [voter for voter in range(voter_count) if model.get(voter) is False]
        assert votes.is_won is (len(granting) * 2 > voter_count)
        assert votes.is_lost is ((voter_count - len(rejecting)) * 2 <= voter_count)
        assert not (votes.is_won and votes.is_lost)
        assert votes.granting() == granting
        assert votes.unrecorded() == [voter for voter in range(voter_count) if not model.get(voter, False)]


def test_rf23_a_vote_that_was_granted_is_not_taken_back() -> None:
    votes = tally(3)
    votes.record(NodeId(1), True)
    votes.record(NodeId(1), True)
    with pytest.raises(InvariantViolation, match="cannot be taken back"):
        votes.record(NodeId(1), False)
    assert votes.granting() == [1]


def test_rf23_a_rejected_vote_may_still_be_granted() -> None:
    votes = tally(3)
    votes.record(NodeId(1), False)
    votes.record(NodeId(1), True)
    assert votes.granting() == [1]


def test_rf23_the_answer_of_no_voter_is_a_bug() -> None:
    with pytest.raises(InvariantViolation, match="only voters"):
        tally(3).record(NodeId(3), True)


# --- the epoch cache --------------------------------------------------------------------------------------------------

EPOCHS_OF_RECORDS = st.lists(st.integers(1, 9), max_size=25).map(sorted)


def cache_of(epochs_of_records: list[int]) -> EpochCache:
    """The cache of a log whose record at offset i has the i-th epoch."""
    cache = EpochCache()
    for offset, epoch in enumerate(epochs_of_records):
        cache.assign(Epoch(epoch), Offset(offset))
    return cache


def entries_of(epochs_of_records: list[int]) -> list[tuple[int, int]]:
    return [(epoch, epochs_of_records.index(epoch)) for epoch in sorted(set(epochs_of_records))]


@given(EPOCHS_OF_RECORDS)
def test_rf40_the_cache_holds_each_epoch_and_where_it_starts(epochs_of_records: list[int]) -> None:
    cache = cache_of(epochs_of_records)
    assert cache.entries() == entries_of(epochs_of_records)
    assert cache.last_epoch == (epochs_of_records[-1] if epochs_of_records else 0)


@given(EPOCHS_OF_RECORDS, st.integers(0, 10))
def test_sn21_the_end_of_an_epoch_is_where_the_first_higher_one_starts(epochs: list[int], asked: int) -> None:
    end_offset = sum(epoch <= asked for epoch in epochs)
    known = max((epoch for epoch in epochs if epoch <= asked), default=0)
    assert cache_of(epochs).end_offset_for_epoch(Epoch(asked), Offset(len(epochs))) == point(known, end_offset)


@given(EPOCHS_OF_RECORDS, st.integers(0, 30))
def test_rf51_a_cut_log_has_the_cache_of_what_is_left(epochs: list[int], end_offset: int) -> None:
    cache = cache_of(epochs)
    cache.truncate(Offset(end_offset))
    assert cache.entries() == entries_of(epochs[:end_offset])


@given(EPOCHS_OF_RECORDS)
def test_a_copy_of_the_cache_changes_on_its_own(epochs: list[int]) -> None:
    cache = cache_of(epochs)
    copy = cache.copy()
    copy.assign(Epoch(10), Offset(len(epochs)))
    assert cache.entries() == entries_of(epochs)
    assert copy.entries() == [*entries_of(epochs), (10, len(epochs))]


@pytest.mark.parametrize(("epoch", "start_offset"), [(2, 9), (3, 4), (4, 5), (4, 4)])
def test_an_epoch_or_offset_that_goes_back_is_a_bug(epoch: int, start_offset: int) -> None:
    cache = EpochCache([(Epoch(1), Offset(0)), (Epoch(3), Offset(5))])
    if epoch == 3:
        cache.assign(Epoch(epoch), Offset(start_offset))  # a later batch of the last epoch, wherever it is
    else:
        with pytest.raises(InvariantViolation, match="must increase"):
            cache.assign(Epoch(epoch), Offset(start_offset))
    assert cache.entries() == [(1, 0), (3, 5)]
