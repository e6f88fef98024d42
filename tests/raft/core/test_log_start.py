"""A log that starts where a snapshot ends: its epochs, its cuts, and a replica that has one (SN-14, SN-20, SN-21)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftbase.errors import InvariantViolation
from kraftbase.sentinels import UNKNOWN_HIGH_WATERMARK
from kraftbase.types import Epoch, Offset
from raft.core.actions import Send
from raft.core.epochs import LOG_BEGINNING, EpochCache
from raft.core.log import LogState
from raft.core.messages import VoteRequest
from raft.core.states import Role
from raft.core.types import OffsetAndEpoch
from tests.raft.core.builders import batch, election_state, log_state, of_type, replica, vote
from tests.raft.core.fetching import point

START = point(4, 10)


def cache(*entries: tuple[int, int], start: OffsetAndEpoch = START) -> EpochCache:
    return EpochCache(((Epoch(epoch), Offset(offset)) for epoch, offset in entries), start=start)


def log(*runs: tuple[int, int], start: tuple[int, int] = (4, 10)) -> LogState:
    return log_state(runs, start=start)


# --- epochs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        pytest.param(0, (0, 10), id="of no epoch"),
        pytest.param(3, (0, 10), id="below the start's"),
        pytest.param(4, (4, 13), id="the start's"),
        pytest.param(5, (4, 13), id="unknown, between"),
        pytest.param(6, (6, 17), id="behind the start"),
        pytest.param(7, (6, 17), id="unknown, between others"),
        pytest.param(8, (8, 20), id="the last"),
        pytest.param(9, (8, 20), id="above all"),
    ],
)
def test_sn21_where_an_epoch_ends(epoch: int, expected: tuple[int, int]) -> None:
    assert cache((6, 13), (8, 17)).end_offset_for_epoch(Epoch(epoch), Offset(20)) == point(*expected)


@pytest.mark.parametrize(("epoch", "expected"), [(3, (0, 10)), (4, (4, 10)), (5, (4, 10))])
def test_sn21_an_empty_log_ends_in_the_epoch_of_the_snapshot(epoch: int, expected: tuple[int, int]) -> None:
    assert cache().end_offset_for_epoch(Epoch(epoch), Offset(10)) == point(*expected)
    assert cache().last_epoch == 4


def test_sn21_a_batch_of_the_starts_own_epoch_makes_no_entry() -> None:
    epochs = cache()
    epochs.assign(Epoch(4), Offset(10))
    assert epochs.entries() == []
    epochs.assign(Epoch(5), Offset(12))
    assert (epochs.entries(), epochs.last_epoch) == ([(5, 12)], 5)


def test_sn21_another_epoch_may_begin_at_the_start() -> None:
    epochs = cache((5, 10))
    assert epochs.end_offset_for_epoch(Epoch(4), Offset(20)) == point(4, 10)
    assert epochs.end_offset_for_epoch(Epoch(5), Offset(20)) == point(5, 20)


@pytest.mark.parametrize(("epoch", "offset"), [(3, 12), (5, 9), (5, 0)])
def test_sn21_nothing_is_noted_that_is_before_the_start(epoch: int, offset: int) -> None:
    epochs = cache()
    with pytest.raises(InvariantViolation, match="increase along the log"):
        epochs.assign(Epoch(epoch), Offset(offset))
    assert epochs.entries() == []


@pytest.mark.parametrize(("offset", "expected"), [(10, 4), (11, 4), (13, 4), (14, 6), (17, 6), (18, 8), (20, 8)])
def test_the_epoch_of_the_record_before_an_offset(offset: int, expected: int) -> None:
    assert cache((6, 13), (8, 17)).epoch_before(Offset(offset)) == expected


def test_the_epoch_before_the_first_record_is_the_starts() -> None:
    assert cache((6, 10)).epoch_before(Offset(10)) == 4
    assert cache((1, 0), start=LOG_BEGINNING).epoch_before(Offset(0)) == 0


def test_a_copy_keeps_the_start_and_changes_on_its_own() -> None:
    epochs = cache((6, 13))
    copied = epochs.copy()
    assert (copied.start, copied.entries()) == (START, [(6, 13)])
    copied.advance_start(point(6, 15))
    copied.assign(Epoch(7), Offset(20))
    assert (epochs.start, epochs.entries()) == (START, [(6, 13)])
    assert EpochCache().copy().start == LOG_BEGINNING


@pytest.mark.parametrize(
    ("start", "entries"),
    [
        pytest.param(START, [(6, 13), (8, 17)], id="where it is"),
        pytest.param(point(4, 12), [(6, 13), (8, 17)], id="within the same epoch"),
        pytest.param(point(4, 13), [(6, 13), (8, 17)], id="at the end of the same epoch"),
        pytest.param(point(6, 14), [(8, 17)], id="within another epoch"),
        pytest.param(point(6, 17), [(8, 17)], id="at the end of another epoch"),
        pytest.param(point(8, 18), [], id="within the last epoch"),
    ],
)
def test_an_advanced_start_forgets_the_epochs_that_end_there(
    start: OffsetAndEpoch, entries: list[tuple[int, int]]
) -> None:
    epochs = cache((6, 13), (8, 17))
    epochs.advance_start(start)
    assert (epochs.start, epochs.entries(), epochs.last_epoch) == (start, entries, 8)


def test_a_start_does_not_go_back() -> None:
    epochs = cache((6, 13))
    with pytest.raises(InvariantViolation, match="does not go back"):
        epochs.advance_start(point(4, 9))
    assert (epochs.start, epochs.entries()) == (START, [(6, 13)])


@dataclass
class AdvancedLog:
    """Batches of a log as (epoch, base offset), its end, and where it starts now."""

    batches: list[tuple[int, int]]
    end_offset: int
    start: OffsetAndEpoch


@st.composite
def advanced_logs(draw: st.DrawFn) -> AdvancedLog:
    epoch, end_offset, batches = 1, 0, []
    for jump, record_count in draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=12)):
        epoch += jump
        batches.append((epoch, end_offset))
        end_offset += record_count
    starts = [LOG_BEGINNING]
    for index, (batch_epoch, _) in enumerate(batches):
        starts.append(point(batch_epoch, batches[index + 1][1] if index + 1 < len(batches) else end_offset))
    return AdvancedLog(batches, end_offset, draw(st.sampled_from(starts)))


@given(advanced_logs(), st.data())
def test_sn21_an_advanced_cache_answers_like_one_made_of_what_is_left(
    given_log: AdvancedLog, data: st.DataObject
) -> None:
    whole = cache(*given_log.batches, start=LOG_BEGINNING)
    start, end_offset = given_log.start, Offset(given_log.end_offset)
    left = [one for one in given_log.batches if one[1] >= start.offset]
    rebuilt = cache(*left, start=start)
    advanced = whole.copy()
    for step in sorted({start.offset, data.draw(st.integers(0, start.offset))}):
        before = [epoch for epoch, base_offset in given_log.batches if base_offset < step]
        advanced.advance_start(point(before[-1] if before else 0, step))
    assert (advanced.start, advanced.entries()) == (rebuilt.start, rebuilt.entries())
    for epoch in range(start.epoch, given_log.batches[-1][0] + 2):
        answer = advanced.end_offset_for_epoch(Epoch(epoch), end_offset)
        assert answer == rebuilt.end_offset_for_epoch(Epoch(epoch), end_offset)
        assert answer == whole.end_offset_for_epoch(Epoch(epoch), end_offset)
    for epoch in range(start.epoch):
        assert advanced.end_offset_for_epoch(Epoch(epoch), end_offset) == point(0, start.offset)
    cut = data.draw(st.integers(start.offset, given_log.end_offset))
    advanced.truncate(Offset(cut))
    assert advanced.entries() == cache(*(one for one in left if one[1] < cut), start=start).entries()


# --- the log ----------------------------------------------------------------------------------------------------------


def test_rf14_an_empty_log_ends_where_its_snapshot_does() -> None:
    made = log()
    assert (made.start, made.start_offset, made.end, made.last_epoch) == (START, 10, START, 4)
    assert made.append(Epoch(5), 2) == 10
    assert (made.end, made.epochs.entries()) == (point(5, 12), [(5, 10)])


def test_fetched_batches_of_the_starts_epoch_go_on_in_it() -> None:
    made = log()
    made.append_batches((batch(10, 2, 4), batch(12, 3, 6)))
    assert (made.end, made.epochs.entries()) == (point(6, 15), [(6, 12)])


@pytest.mark.parametrize(
    ("runs", "epoch", "offset", "expected"),
    [
        pytest.param(((4, 3), (6, 4)), 0, 4, 10, id="epoch 0: at least its own start"),
        pytest.param(((4, 3), (6, 4)), 0, 12, 12, id="epoch 0: where the leader says"),
        pytest.param(((4, 3), (6, 4)), 0, 99, 17, id="epoch 0: at most its own end"),
        pytest.param(((4, 3), (6, 4)), 3, 7, 10, id="epoch below the start's: everything behind the start"),
        pytest.param(((4, 3), (6, 4)), 3, 99, 10, id="the same, whatever the leader's offset"),
        pytest.param(((4, 3), (6, 4)), 4, 12, 12, id="the start's, leader's is shorter"),
        pytest.param(((4, 3), (6, 4)), 4, 9, 10, id="the start's, leader's ends before the start"),
        pytest.param(((4, 3), (6, 4)), 4, 99, 13, id="the start's, its own is shorter"),
        pytest.param(((4, 3), (6, 4)), 5, 12, 13, id="unknown: the end of the one below"),
        pytest.param(((6, 4),), 5, 12, 10, id="unknown: the start"),
        pytest.param(((4, 3), (6, 4)), 6, 15, 15, id="the last, leader's is shorter"),
        pytest.param(((4, 3), (6, 4)), 6, 9, 10, id="the last, leader's ends before the start"),
        pytest.param((), 4, 10, 10, id="nothing behind the start"),
    ],
)
def test_rf51_where_a_log_that_starts_later_is_cut(
    runs: tuple[tuple[int, int], ...], epoch: int, offset: int, expected: int
) -> None:
    made = log(*runs)
    found = made.truncation_point(point(epoch, offset))
    assert found == expected
    made.truncate(found)
    assert (made.end_offset, made.start) == (expected, START)


def test_a_log_is_not_cut_below_its_start() -> None:
    made = log((4, 3))
    with pytest.raises(InvariantViolation, match="within itself"):
        made.truncate(Offset(9))
    made.truncate(Offset(10))
    assert (made.end, made.flushed_end_offset) == (START, 10)


@pytest.mark.parametrize(
    ("offset", "epoch", "expected"),
    [
        (10, 4, None),
        (13, 4, None),
        (14, 4, (4, 13)),
        (17, 6, None),
        (18, 6, (6, 17)),
        (12, 5, (4, 13)),
        (12, 3, (0, 10)),
    ],
)
def test_sn20_where_a_log_that_starts_later_may_diverge(
    offset: int, epoch: int, expected: tuple[int, int] | None
) -> None:
    found = log((4, 3), (6, 4)).divergence(Offset(offset), Epoch(epoch))
    assert found == (None if expected is None else point(*expected))


def test_a_log_may_start_up_to_where_it_is_durable() -> None:
    made = log_state([(4, 3), (6, 4)], 15, start=(4, 10))
    with pytest.raises(InvariantViolation, match="starts at what is durable"):
        made.advance_start(point(6, 16))
    assert made.start == START
    made.advance_start(point(6, 15))
    assert (made.start, made.end, made.flushed_end_offset) == (point(6, 15), point(6, 17), 15)


@pytest.mark.parametrize(
    ("snapshot_id", "is_replaced"),
    [
        (point(6, 18), True),
        (point(5, 18), True),
        (point(6, 17), False),
        (point(5, 16), False),
        (point(7, 12), True),
        (point(7, 17), True),
        (point(4, 10), False),
    ],
)
def test_sn14_which_snapshots_take_the_place_of_a_log(snapshot_id: OffsetAndEpoch, is_replaced: bool) -> None:
    made = log((4, 3), (6, 4))
    assert made.is_replaced_by(snapshot_id) is is_replaced
    if is_replaced:
        made.truncate_fully_and_start_at(snapshot_id)
        assert (made.start, made.end, made.flushed_end_offset) == (snapshot_id, snapshot_id, snapshot_id.offset)
        assert (made.latest_snapshot, made.epochs.entries()) == (snapshot_id, [])
    else:
        with pytest.raises(InvariantViolation, match="past it"):
            made.truncate_fully_and_start_at(snapshot_id)
        assert (made.start, made.end) == (START, point(6, 17))


# --- a replica that has one -------------------------------------------------------------------------------------------


def test_what_is_in_a_snapshot_is_known_to_be_committed_at_the_start() -> None:
    assert replica(start=(4, 10), log=[(4, 5)]).replica.high_watermark == 10
    assert replica(start=(4, 10), log=[(4, 5)], latest_snapshot=point(4, 13)).replica.high_watermark == 13
    assert replica(log=[(4, 5)], latest_snapshot=point(4, 3)).replica.high_watermark == 3
    assert replica(log=[(4, 5)]).replica.high_watermark == UNKNOWN_HIGH_WATERMARK


def test_a_damaged_snapshot_leaves_what_is_below_the_start_committed() -> None:
    made = log_state([(4, 5)], start=(4, 10))
    made.latest_snapshot = None
    assert made.known_committed_offset == 10


@pytest.mark.parametrize(
    ("log_runs", "found", "expected"),
    [((), None, 4), ((), 3, 4), ((), 4, 4), ((), 7, 7), (((6, 1),), None, 6), (((6, 1),), 5, 6)],
)
def test_rf10_its_epoch_is_at_least_that_of_the_logs_start(
    log_runs: tuple[tuple[int, int], ...], found: int | None, expected: int
) -> None:
    state = None if found is None else election_state(found)
    assert replica(start=(4, 10), log=log_runs, election_state=state).epoch == expected


@pytest.mark.parametrize("pre_vote", [False, True])
@pytest.mark.parametrize(
    ("last_epoch", "last_offset", "is_granted"),
    [(4, 10, True), (4, 11, True), (5, 10, True), (5, 1, False), (4, 9, False), (3, 99, False), (0, 0, False)],
)
def test_rf14_an_empty_log_at_a_snapshot_is_as_new_as_the_snapshot(
    last_epoch: int, last_offset: int, is_granted: bool, pre_vote: bool
) -> None:
    harness = replica(start=(4, 10))
    answer = harness.ask(vote(2, 6, last_epoch=last_epoch, last_offset=last_offset, pre_vote=pre_vote))
    assert answer.vote_granted is is_granted


def test_rf14_a_candidate_names_the_end_of_the_snapshot() -> None:
    harness = replica(start=(4, 10))
    requests = [send.request for send in of_type(Send, harness.time_out())]
    votes = [request for request in requests if isinstance(request, VoteRequest)]
    assert {(request.last_epoch, request.last_offset) for request in votes} == {(4, 10)}
    assert len(votes) == 2


def test_rf40_a_leader_opens_its_epoch_behind_the_snapshot() -> None:
    harness = replica(start=(4, 10)).make_leader()
    assert (harness.role, harness.epoch) == (Role.LEADER, 5)
    assert (harness.leading.epoch_start_offset, harness.replica.log_end_offset) == (10, 11)
    assert harness.replica_state.log.epochs.entries() == [(5, 10)]


def test_rf04_a_sole_voter_commits_behind_its_snapshot() -> None:
    harness = replica(voter_count=1, start=(4, 10))
    assert (harness.role, harness.replica.high_watermark) == (Role.LEADER, 10)
    harness.flush()
    assert harness.replica.high_watermark == 11
