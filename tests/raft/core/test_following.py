"""A follower's fetches, and which answers it takes (RF-30, RF-54 to RF-56, RF-61 to RF-64, PK-05).

A rule that tests here are named after: RF-55.
"""

from __future__ import annotations

from typing import Any

import pytest

from kraftbase.errors import ErrorCode
from kraftbase.sentinels import HIGH_WATERMARK_NOT_SENT
from kraftbase.types import Offset
from raft.core.actions import Action, AdvanceHighWatermark, AppendBatches, FlushLog, Send
from raft.core.events import FetchVersionAllowed, LogFlushed, TimePassed
from raft.core.messages import FetchRequest, FetchSnapshotResponse
from raft.core.states import Role
from tests.raft.core.builders import (
    CLUSTER_ID,
    Harness,
    batch,
    endpoint,
    fetch_response,
    key,
    leader_and_epoch,
    of_type,
    replica,
)
from tests.raft.core.fetching import fetch_request, follower, kinds, point, the_fetch


def roles_after(harness: Harness, *durations_ms: int) -> list[Role]:
    """The roles after each of these times, one after the other."""
    roles = []
    for duration_ms in durations_ms:
        harness.advance(duration_ms)
        roles.append(harness.role)
    return roles


# --- requests ---------------------------------------------------------------------------------------------------------


def test_a_fetch_says_who_asks_and_where_its_log_ends() -> None:
    harness = follower(7, log=[(3, 4), (5, 2)], fetch_max_wait_ms=400, fetch_max_bytes=9000)
    send = the_fetch(harness)
    assert send.destination == endpoint(2)
    assert send.request == FetchRequest(
        cluster_id=CLUSTER_ID,
        replica_key=key(1),
        current_leader_epoch=leader_and_epoch(2, 7).epoch,
        fetch_offset=point(5, 6).offset,
        last_fetched_epoch=point(5, 6).epoch,
        max_wait_ms=400,
        max_bytes=9000,
        high_watermark=Offset(-1),
        log_start_offset=Offset(0),
    )


def test_a_fetch_says_where_the_log_of_its_sender_starts() -> None:
    assert fetch_request(the_fetch(follower(7, start=(3, 8), log=[(5, 2)]))).log_start_offset == 8


def test_pk05_a_fetch_says_which_high_watermark_the_follower_knows() -> None:
    harness = follower(log=[(1, 5)])
    harness.answer(the_fetch(harness), fetch_response(2, 1, high_watermark=3))
    assert fetch_request(the_fetch(harness)).high_watermark == 3


def test_pk05_a_fetch_of_version_17_leaves_the_high_watermark_out() -> None:
    harness = follower(log=[(1, 5)], fetch_version=17)
    harness.answer(the_fetch(harness), fetch_response(2, 1, high_watermark=3))
    assert harness.replica.high_watermark == 3
    assert fetch_request(the_fetch(harness)).high_watermark == HIGH_WATERMARK_NOT_SENT


@pytest.mark.parametrize(("configured", "expected"), [(18, Offset(3)), (17, HIGH_WATERMARK_NOT_SENT)])
def test_pk05_the_next_fetch_has_the_lower_of_the_version_that_is_allowed_and_the_configured_one(
    configured: int, expected: Offset
) -> None:
    harness = follower(log=[(1, 5)], fetch_version=configured)
    fetch = the_fetch(harness)
    harness.step(FetchVersionAllowed(17))
    harness.answer(fetch, fetch_response(2, 1, high_watermark=3))
    fetch = the_fetch(harness)
    assert fetch_request(fetch).high_watermark == HIGH_WATERMARK_NOT_SENT
    harness.step(FetchVersionAllowed(18))
    harness.answer(fetch, fetch_response(2, 1, high_watermark=3))
    assert fetch_request(the_fetch(harness)).high_watermark == expected


def test_rf73_a_tool_fetches_without_a_key() -> None:
    harness = replica(own_id=None, observer=True)
    harness.sent.clear()
    assert fetch_request(the_fetch(harness.make_follower(2, 1))).replica_key is None


# --- when it asks -----------------------------------------------------------------------------------------------------


def test_rf55_an_answer_without_records_is_followed_by_the_next_fetch() -> None:
    harness = follower(log=[(1, 5)])
    harness.advance(300)
    actions = harness.answer(the_fetch(harness), fetch_response(2, 1))
    assert kinds(actions) == [Send]
    assert roles_after(harness, 1999, 1) == [Role.FOLLOWER, Role.PROSPECTIVE]


def test_rf54_a_voter_flushes_what_it_appended_before_it_fetches_again() -> None:
    harness = follower()
    actions = harness.answer(the_fetch(harness), fetch_response(2, 1, batch(0, 3, 1)))
    assert actions == [AppendBatches((batch(0, 3, 1),)), FlushLog(Offset(3))]
    assert harness.step(TimePassed()) == []
    assert kinds(harness.step(LogFlushed(Offset(3)))) == [Send]
    assert fetch_request(the_fetch(harness)).fetch_offset == 3


def test_rf54_a_voter_that_starts_with_an_unflushed_log_flushes_it_first() -> None:
    harness = replica(log=[(1, 5)], flushed_end_offset=2)
    assert kinds(harness.started)[-1] is FlushLog
    assert of_type(Send, harness.started) == []
    harness.flush()
    assert fetch_request(the_fetch(harness)).fetch_offset == 5


@pytest.mark.parametrize(
    ("high_watermark", "expected"),
    [(4, [AppendBatches, Send, FlushLog]), (3, [AppendBatches, FlushLog, Send]), (2, [AppendBatches, FlushLog, Send])],
)
def test_rf54_an_observer_fetches_on_before_it_flushes_while_more_is_committed(
    high_watermark: int, expected: list[type[Action]]
) -> None:
    harness = follower(observer=True)
    response = fetch_response(2, 1, batch(0, 3, 1), high_watermark=high_watermark)
    actions = [a for a in harness.answer(the_fetch(harness), response) if not isinstance(a, AdvanceHighWatermark)]
    assert kinds(actions) == expected
    assert fetch_request(the_fetch(harness)).fetch_offset == 3


def test_rf54_an_observer_appends_on_while_a_flush_is_under_way() -> None:
    harness = follower(observer=True)
    harness.answer(the_fetch(harness), fetch_response(2, 1, batch(0, 3, 1)))
    actions = harness.answer(the_fetch(harness), fetch_response(2, 1, batch(3, 1, 1)))
    assert kinds(actions) == [AppendBatches, Send]
    assert harness.step(LogFlushed(Offset(3))) == [FlushLog(Offset(4))]


@pytest.mark.parametrize(("observer", "expected"), [(False, Role.PROSPECTIVE), (True, Role.FOLLOWER)])
def test_rf30_only_a_voter_starts_an_election_when_the_leader_is_silent(observer: bool, expected: Role) -> None:
    harness = follower(observer=observer)
    harness.advance(2000)
    assert harness.role is expected


def test_rf64_a_silent_leader_is_looked_for_elsewhere() -> None:
    harness = follower(observer=True, bootstrap_endpoints=[endpoint(5)])
    assert the_fetch(harness).destination == endpoint(2)
    harness.advance(2000)
    assert the_fetch(harness).destination == endpoint(5)


# --- which answers it takes -------------------------------------------------------------------------------------------


def test_rf56_an_answer_of_an_epoch_that_was_left_is_ignored() -> None:
    harness = follower(1)
    late = the_fetch(harness)
    harness.make_follower(3, 2)
    harness.sent.clear()
    assert harness.answer(late, fetch_response(2, 1, batch(0, 3, 1))) == []
    assert harness.replica.log_end_offset == 0


def test_rf56_an_answer_to_a_replica_that_became_prospective_is_ignored() -> None:
    harness = follower(1)
    late = the_fetch(harness)
    harness.make_prospective()
    assert harness.answer(late, fetch_response(2, 1, batch(0, 3, 1))) == []
    assert (harness.role, harness.replica.log_end_offset) == (Role.PROSPECTIVE, 0)


def test_rf63_a_second_answer_is_ignored() -> None:
    harness = follower(1)
    send = the_fetch(harness)
    harness.answer(send, fetch_response(2, 1, batch(0, 3, 1)))
    harness.flush()
    assert harness.answer(send, fetch_response(2, 1, batch(3, 3, 1))) == []


def test_rf61_an_answer_of_a_higher_epoch_is_not_read_further() -> None:
    harness = follower(1)
    actions = harness.answer(the_fetch(harness), fetch_response(3, 2, batch(0, 3, 1)))
    assert of_type(AppendBatches, actions) == []
    assert (harness.leader_id, harness.epoch) == (3, 2)


def test_rf61_an_answer_of_a_lower_epoch_is_ignored_without_a_back_off() -> None:
    harness = follower(4)
    actions = harness.answer(the_fetch(harness), fetch_response(2, 3, batch(0, 3, 1)))
    assert kinds(actions) == [Send]
    assert the_fetch(harness).destination == endpoint(2)


def test_rf61_an_answer_with_records_may_name_the_leader() -> None:
    harness = replica()
    send = the_fetch(harness)
    actions = harness.answer(send, fetch_response(2, 0, batch(0, 3, 1)))
    assert of_type(AppendBatches, actions) == []  # epoch 0 has no leader's records
    assert harness.leader_id == 2


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"error": ErrorCode.BROKER_NOT_AVAILABLE}, "it shuts down"),
        ({"error": ErrorCode.INVALID_REQUEST}, "it did not understand"),
        ({"error": ErrorCode.INCONSISTENT_CLUSTER_ID}, "another cluster"),
        ({"error": ErrorCode.UNKNOWN_SERVER_ERROR}, "it failed"),
        ({"error": ErrorCode.NOT_LEADER_OR_FOLLOWER}, "it does not lead and reports nothing new"),
        ({"error": ErrorCode.OFFSET_OUT_OF_RANGE}, "an error that no leader answers with"),
        ({"snapshot_id": point(0, 0)}, "a snapshot that is not past its log"),
    ],
)
def test_rf61_an_answer_that_is_of_no_use_changes_nothing_and_backs_off(changes: dict[str, Any], why: str) -> None:
    harness = follower(voter_count=2)
    send = the_fetch(harness)
    harness.advance(300)
    answer = fetch_response(2, 1, **{"records": (batch(0, 3, 1),), "high_watermark": 3, **changes})
    assert harness.answer(send, answer) == [], why
    assert (harness.replica.log_end_offset, harness.replica.high_watermark) == (0, -1)
    assert harness.output.connections.is_backing_off(endpoint(2))
    assert roles_after(harness, 1699, 1) == [Role.FOLLOWER, Role.PROSPECTIVE]


def test_an_answer_of_another_kind_than_was_asked_for_backs_off() -> None:
    harness = follower(voter_count=2)
    answer = FetchSnapshotResponse(leader=leader_and_epoch(2, 1), snapshot_id=point(1, 3))
    assert harness.answer(the_fetch(harness), answer) == []
    assert harness.output.connections.is_backing_off(endpoint(2))
