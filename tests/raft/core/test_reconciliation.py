"""How a follower's log is brought in line with its leader's (RF-50 to RF-54, SN-20 and SN-21 without snapshots)."""

from __future__ import annotations

import pytest

from kraftbase.errors import ErrorCode
from kraftbase.types import Offset
from raft.core.actions import Action, AdvanceHighWatermark, AppendBatches, FlushLog, LogRange, Send, TruncateLog
from raft.core.states import Follower
from raft.core.types import Batch
from tests.raft.core.builders import Harness, batch, endpoint, fetch, fetch_response, log_state, of_type, replica
from tests.raft.core.fetching import fetch_request, follower, kinds, point, the_fetch

LEADER_LOG = ((1, 5), (2, 3), (4, 2))
"""Epoch 1 from 0, epoch 2 from 5, epoch 4 from 8; the leader change of epoch 5 follows at 10."""


def diverging(harness: Harness, epoch: int, offset: int, leader_epoch: int = 5) -> list[Action]:
    """The leader answers the fetch in progress with a diverging epoch; return every action that is ordered then."""
    answer = fetch_response(2, leader_epoch, diverging_epoch=point(epoch, offset))
    return harness.answer(the_fetch(harness), answer)


def following(harness: Harness) -> Follower:
    assert isinstance(harness.state, Follower)
    return harness.state


def what_it_has(harness: Harness) -> tuple[object, ...]:
    """Everything that a bad answer must not change."""
    log, state = harness.replica_state.log, following(harness)
    ends = (log.end_offset, log.flushed_end_offset, harness.replica.high_watermark)
    return (*ends, log.epochs.entries(), state.has_fetched, state.fetch_deadline_ms)


def asks_another(harness: Harness, actions: list[Action]) -> bool:
    """Whether the only actions are to back off from the leader and ask another server (RF-64)."""
    return [action.destination for action in actions if isinstance(action, Send)] == [endpoint(3)] and len(actions) == 1


# --- the leader's answer ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fetch_offset", "last_fetched_epoch", "expected"),
    [
        pytest.param(0, 0, None, id="an empty log"),
        pytest.param(0, 3, None, id="offset 0 needs no epoch"),
        pytest.param(3, 1, None, id="within the first epoch"),
        pytest.param(5, 1, None, id="the end of the first epoch"),
        pytest.param(8, 2, None, id="the end of the second epoch"),
        pytest.param(11, 5, None, id="the end of the log"),
        pytest.param(6, 1, (1, 5), id="too long in its epoch"),
        pytest.param(11, 4, (4, 10), id="too long in the epoch before the last"),
        pytest.param(12, 5, (5, 11), id="longer than the leader"),
        pytest.param(9, 3, (2, 8), id="an epoch that the leader does not have"),
        pytest.param(3, 3, (2, 8), id="such an epoch, although it is shorter"),
        pytest.param(2, 0, (0, 0), id="records of no epoch"),
    ],
)
def test_rf50_a_fetch_is_answered_with_where_the_logs_may_diverge(
    fetch_offset: int, last_fetched_epoch: int, expected: tuple[int, int] | None
) -> None:
    harness = replica(log=LEADER_LOG).make_leader()
    assert harness.epoch == 5
    answer = harness.ask(fetch(2, 5, fetch_offset, last_fetched_epoch, max_wait_ms=0))
    assert answer.error is ErrorCode.NONE
    assert answer.diverging_epoch == (None if expected is None else point(*expected))
    if expected is not None:
        assert harness.reads is None
    elif fetch_offset < 11:
        assert harness.reads == LogRange(start_offset=Offset(fetch_offset), max_bytes=1024 * 1024)


def test_rf50_a_fetch_that_diverges_is_not_parked() -> None:
    harness = replica(log=LEADER_LOG).make_leader()
    answer = harness.ask(fetch(2, 5, 9, 3, max_wait_ms=500))
    assert answer.diverging_epoch == point(2, 8)


# --- the follower's truncation ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "epoch", "offset", "expected"),
    [
        pytest.param(((1, 5), (2, 3)), 0, 4, 4, id="epoch 0: where the leader says"),
        pytest.param(((1, 5), (2, 3)), 0, 99, 8, id="epoch 0: at most its own end"),
        pytest.param(((1, 5), (2, 3)), 1, 3, 3, id="epoch known, leader's is shorter"),
        pytest.param(((1, 5), (2, 3)), 1, 7, 5, id="epoch known, its own is shorter"),
        pytest.param(((1, 5), (2, 3)), 2, 6, 6, id="last epoch, leader's is shorter"),
        pytest.param(((1, 5), (4, 3)), 3, 7, 5, id="epoch unknown: the end of the one below"),
        pytest.param(((1, 5), (4, 3)), 3, 2, 5, id="epoch unknown: the leader's offset says nothing"),
        pytest.param(((3, 4),), 2, 4, 0, id="epoch below all its own: everything goes"),
    ],
)
def test_rf51_where_a_log_is_cut(log: tuple[tuple[int, int], ...], epoch: int, offset: int, expected: int) -> None:
    assert log_state(log).truncation_point(point(epoch, offset)) == expected


def test_rf51_a_follower_cuts_its_log_and_fetches_from_there() -> None:
    harness = follower(5, log=[(1, 5), (3, 4)])
    actions = diverging(harness, 1, 7)
    assert actions[0] == TruncateLog(Offset(5))
    assert kinds(actions) == [TruncateLog, Send]
    request = fetch_request(the_fetch(harness))
    assert (request.fetch_offset, request.last_fetched_epoch) == (5, 1)


def test_rf51_what_was_cut_is_durable_so_nothing_waits_for_a_flush() -> None:
    harness = follower(5, log=[(1, 5), (3, 4)])
    diverging(harness, 1, 7)
    assert harness.replica_state.log.flushed_end_offset == harness.replica.log_end_offset == 5


def test_rf51_a_log_may_be_cut_at_the_high_watermark() -> None:
    harness = follower(5, log=[(1, 5), (3, 4)])
    harness.replica_state.high_watermark = Offset(5)
    assert TruncateLog(Offset(5)) in diverging(harness, 1, 7)


def test_rf51_an_answer_that_cuts_says_nothing_of_what_is_committed() -> None:
    """What is left after the first cut may diverge still: the leader's high watermark is for its own log there."""
    harness = follower(6, log=[(1, 5), (3, 4), (5, 2)])
    answer = fetch_response(2, 6, diverging_epoch=point(4, 9), high_watermark=12)
    actions = harness.answer(the_fetch(harness), answer)
    assert kinds(actions) == [TruncateLog, Send]
    assert harness.replica.high_watermark == -1
    answer = fetch_response(2, 6, diverging_epoch=point(2, 7), high_watermark=12)
    assert TruncateLog(Offset(5)) in harness.answer(the_fetch(harness), answer)


@pytest.mark.parametrize(("epoch", "offset"), [(3, 9), (3, 99), (7, 9), (0, 9), (-1, 3), (1, -3)])
def test_rf51_an_answer_that_cuts_nothing_changes_nothing(epoch: int, offset: int) -> None:
    harness = follower(5, log=[(1, 5), (3, 4)])
    before = what_it_has(harness)
    assert asks_another(harness, diverging(harness, epoch, offset))
    assert what_it_has(harness) == before


def test_rf30_an_answer_that_diverges_counts_as_a_fetch_from_the_leader() -> None:
    harness = follower(5, log=[(1, 5), (3, 4)])
    harness.advance(100)
    diverging(harness, 1, 7)
    assert following(harness).has_fetched
    assert following(harness).fetch_deadline_ms == harness.now_ms + 2000


# --- the follower's append --------------------------------------------------------------------------------------------


def test_rf53_batches_that_go_on_where_the_log_ends_are_appended_as_they_came() -> None:
    harness = follower(5, log=[(1, 5)])
    batches = (batch(5, 2, 1), batch(7, 1, 3), batch(8, 4, 5))
    actions = harness.answer(the_fetch(harness), fetch_response(2, 5, *batches, high_watermark=7))
    assert actions == [AppendBatches(batches), FlushLog(Offset(12)), AdvanceHighWatermark(Offset(7))]
    assert harness.replica_state.log.epochs.entries() == [(1, 0), (3, 7), (5, 8)]


def test_rf53_an_append_stops_before_a_batch_of_a_higher_epoch_than_the_leader_has() -> None:
    harness = follower(5, log=[(1, 5)])
    good, too_new = batch(5, 2, 5), batch(7, 1, 6)
    actions = harness.answer(the_fetch(harness), fetch_response(2, 5, good, too_new, high_watermark=8))
    assert of_type(AppendBatches, actions) == [AppendBatches((good,))]
    assert harness.replica.log_end_offset == 7
    assert harness.replica.high_watermark == 7


@pytest.mark.parametrize(
    "batches",
    [
        pytest.param((batch(4, 2, 5),), id="before the end"),
        pytest.param((batch(6, 2, 5),), id="after the end"),
        pytest.param((batch(5, 2, 5), batch(8, 1, 5)), id="a gap"),
        pytest.param((batch(5, 2, 5), batch(6, 1, 5)), id="an overlap"),
        pytest.param((batch(5, 0, 5),), id="no record"),
        pytest.param((batch(5, 1, 1),), id="an epoch below the last"),
        pytest.param((batch(5, 1, 4), batch(6, 1, 3)), id="epochs that go back"),
        pytest.param((batch(5, 1, 6),), id="nothing but a batch of a higher epoch"),
    ],
)
def test_rf53_batches_that_do_not_fit_change_nothing(batches: tuple[Batch, ...]) -> None:
    harness = follower(5, log=[(2, 5)])
    before = what_it_has(harness)
    harness.advance(100)
    answer = fetch_response(2, 5, high_watermark=5, records=batches)
    assert asks_another(harness, harness.answer(the_fetch(harness), answer))
    assert what_it_has(harness) == before


def test_rf53_a_leader_that_sent_garbage_is_asked_again_after_the_back_off() -> None:
    harness = follower(5, voter_count=2, log=[(1, 5)])
    harness.answer(the_fetch(harness), fetch_response(2, 5, batch(9, 2, 5)))
    assert harness.sent == []
    harness.advance(20)
    assert the_fetch(harness).destination == endpoint(2)


def test_rf53_epoch_zero_belongs_to_no_batch() -> None:
    harness = follower(5)
    assert of_type(AppendBatches, harness.answer(the_fetch(harness), fetch_response(2, 5, batch(0, 1, 0)))) == []
    assert harness.replica.log_end_offset == 0
