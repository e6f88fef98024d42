"""The readable state of a replica, in each role: values of other roles are empty, or not known."""

from __future__ import annotations

from kraftbase.sentinels import UNKNOWN_HIGH_WATERMARK
from raft.core.messages import FetchRequest
from tests.raft.core.builders import batch, fetch, fetch_response, replica


def test_a_voter_without_a_leader_has_no_part() -> None:
    view = replica(log=[(1, 3)]).replica
    assert (view.parked_fetches, view.pending_append_bytes, view.observer_count) == ((), 0, 0)
    assert (view.epoch_start_offset, view.high_watermark_of_epoch) == (None, UNKNOWN_HIGH_WATERMARK)
    assert (view.has_fetched, view.fetch_deadline_ms) == (False, None)
    assert view.may_be_elected
    assert not view.is_fetching_snapshot
    assert (view.log_start.offset, view.epoch_entries(), view.epoch_before(view.log_end_offset)) == (0, [(1, 0)], 1)


def test_a_follower_has_fetched_when_its_leader_has_answered() -> None:
    harness = replica().make_follower(2, 1)
    view = harness.replica
    (sent,) = view.requests_under_way
    assert isinstance(sent.request, FetchRequest)
    assert not view.has_fetched
    harness.now_ms += 100
    harness.answer(harness.sent[-1], fetch_response(2, 1, batch(0, 2, 1)))
    assert view.has_fetched
    assert view.fetch_deadline_ms == view.now_ms + view.config.fetch_timeout_ms == harness.now_ms + 2_000
    assert view.parked_fetches == ()


def test_a_leader_shows_what_it_holds() -> None:
    harness = replica().make_leader()
    view = harness.replica
    assert (view.epoch_start_offset, view.high_watermark_of_epoch) == (0, UNKNOWN_HIGH_WATERMARK)
    assert harness.ask(fetch(2, 1, 1, 1)).high_watermark == 1
    assert view.high_watermark_of_epoch == 1
    assert harness.ask(fetch(9, 1, 1, 1, high_watermark=1)) is None
    assert [parked.request.fetch_offset for parked in view.parked_fetches] == [1]
    assert view.observer_count == 1
    assert (view.has_fetched, view.fetch_deadline_ms) == (False, None)


def test_a_follower_is_behind_since_the_last_answer_for_which_it_had_room() -> None:
    harness = replica().make_follower(2, 1)
    view = harness.replica
    harness.now_ms += 100
    harness.answer(harness.sent[-1], fetch_response(2, 1, batch(0, 2, 1)))
    level_ms = harness.now_ms
    assert view.behind_ms(level_ms + 5) == 5
    harness.flush()
    harness.now_ms += 100
    harness.answer(harness.sent[-1], fetch_response(2, 1), is_without_room=True)
    assert view.has_fetched
    assert view.behind_ms(harness.now_ms) == 100
    harness.advance(600)
    harness.answer(harness.sent[-1], fetch_response(2, 1))
    assert view.behind_ms(harness.now_ms) == 0


def test_a_leader_is_behind_since_a_majority_has_last_fetched_and_so_is_what_it_becomes() -> None:
    harness = replica().make_leader()
    view = harness.replica
    harness.advance(1_000)
    assert view.behind_ms(harness.now_ms) == 1_000
    harness.ask(fetch(2, 1, 1, 1))
    harness.advance(0)
    assert view.behind_ms(harness.now_ms) == 0
    harness.advance(view.config.check_quorum_timeout_ms)
    assert not view.is_leader
    assert view.behind_ms(harness.now_ms) == view.config.check_quorum_timeout_ms


def test_a_sole_voter_is_never_behind() -> None:
    harness = replica(voter_count=1)
    assert harness.replica.behind_ms(harness.now_ms + 10**6) == 0
