"""How a replica that is behind its leader's log fetches a snapshot (SN-10 to SN-15)."""

from __future__ import annotations

from typing import Any

import pytest

from kraftbase.errors import ErrorCode
from kraftbase.types import Epoch, Offset
from raft.core import snapshot_fetch
from raft.core.actions import (
    AdvanceHighWatermark,
    AppendBatches,
    AppendSnapshot,
    DropSnapshot,
    FlushLog,
    FreezeSnapshot,
    Send,
    TruncateFullyAndStartAt,
    TruncateLog,
)
from raft.core.events import (
    Event,
    LogFlushed,
    SnapshotAppended,
    SnapshotReceived,
    SnapshotRefused,
    TimePassed,
)
from raft.core.messages import FetchRequest, FetchSnapshotRequest
from raft.core.states import Role
from raft.core.types import LeaderAndEpoch
from tests.raft.core.builders import (
    CONFIG,
    Harness,
    batch,
    endpoint,
    fetch_response,
    fetch_snapshot,
    fetch_snapshot_response,
)
from tests.raft.core.fetching import follower, point, the_fetch
from tests.raft.core.snapshot_fetches import (
    LEADS,
    SIZE,
    SNAPSHOT,
    Told,
    asks,
    behind,
    fetches_again,
    following,
    gives,
    halfway,
    is_backing_off,
    offer,
    offered,
    steps,
    the_request,
    told,
    what_it_has,
    written,
)
from tests.raft.core.test_following import roles_after

# --- from the offer to the log that starts over -----------------------------------------------------------------------


def test_sn12_an_offered_snapshot_is_asked_for_at_once_from_its_first_byte() -> None:
    harness = behind(fetch_snapshot_max_bytes=77)
    assert offer(harness) == [asks(0, max_bytes=77)]
    assert the_request(harness).destination == endpoint(2)


def test_sn12_a_tool_asks_without_a_key() -> None:
    harness = follower(LEADS, own_id=None, observer=True)
    assert offer(harness) == [fetch_snapshot(None, LEADS, SNAPSHOT, 0, CONFIG.fetch_snapshot_max_bytes)]


def test_sn12_nothing_is_fetched_while_the_answer_is_awaited() -> None:
    harness = offered()
    harness.sent.clear()
    assert harness.advance(1500) == []


def test_sn12_bytes_are_written_and_nothing_is_sent_before_they_are() -> None:
    harness = offered()
    assert gives(harness, b"four") == [AppendSnapshot(1, SNAPSHOT, b"four")]
    assert harness.advance(1000) == []
    assert steps(harness, SnapshotAppended(1, 4)) == [asks(4)]
    assert gives(harness, b"56789", position=4) == [AppendSnapshot(1, SNAPSHOT, b"56789")]
    assert steps(harness, SnapshotAppended(1, 9)) == [asks(9)]


def test_sn12_after_the_last_bytes_it_is_made_a_snapshot() -> None:
    harness = halfway()
    assert gives(harness, b"456789", position=4) == [AppendSnapshot(1, SNAPSHOT, b"456789")]
    assert steps(harness, SnapshotAppended(1, 10)) == [FreezeSnapshot(1, SNAPSHOT)]
    assert harness.advance(1000) == []


def test_sn12_a_snapshot_that_comes_whole_is_one_answer() -> None:
    harness = offered()
    assert gives(harness, b"x", size=1) == [AppendSnapshot(1, SNAPSHOT, b"x")]
    assert steps(harness, SnapshotAppended(1, 1)) == [FreezeSnapshot(1, SNAPSHOT)]


@pytest.mark.parametrize("observer", [False, True])
def test_sn14_a_received_snapshot_takes_the_place_of_the_log_and_fetching_goes_on_behind_it(observer: bool) -> None:
    """A voter's fetch waits for no flush: what a log starts at is durable (RF-54)."""
    harness = written(observer=observer)
    *orders, request = steps(harness, SnapshotReceived(1))
    assert orders == [TruncateFullyAndStartAt(SNAPSHOT), AdvanceHighWatermark(Offset(10))]
    assert isinstance(request, FetchRequest)
    assert (request.fetch_offset, request.last_fetched_epoch) == (10, 2)
    assert (request.log_start_offset, request.high_watermark) == (10, 10)
    log = harness.replica_state.log
    assert (log.start, log.end, log.flushed_end_offset, log.latest_snapshot) == (SNAPSHOT, SNAPSHOT, 10, SNAPSHOT)
    assert log.epochs.entries() == []
    assert harness.replica_state.snapshot_fetch is None


def test_sn14_records_go_on_behind_the_snapshot() -> None:
    harness = written()
    harness.step(SnapshotReceived(1))
    batches = (batch(10, 2, 2), batch(12, 1, 3))
    actions = harness.answer(the_fetch(harness), fetch_response(2, LEADS, *batches, high_watermark=12))
    assert actions == [AppendBatches(batches), FlushLog(Offset(13)), AdvanceHighWatermark(Offset(12))]
    assert harness.replica_state.log.epochs.entries() == [(3, 12)]


def test_sn14_what_is_behind_a_snapshot_may_be_cut_and_the_snapshot_not() -> None:
    harness = written()
    harness.step(SnapshotReceived(1))
    harness.answer(the_fetch(harness), fetch_response(2, LEADS, batch(10, 2, 2)))
    harness.flush()
    actions = harness.answer(the_fetch(harness), fetch_response(2, LEADS, diverging_epoch=point(2, 10)))
    assert told(actions)[0] == TruncateLog(Offset(10))
    assert fetches_again(told(actions)[1:], 10, 2)


def test_sn14_a_log_that_goes_another_way_is_replaced_although_it_is_longer() -> None:
    """Its last epoch is lower than that of the snapshot, so its records behind the common ones were never committed."""
    harness = written(log=[(1, 30)])
    assert told(harness.step(SnapshotReceived(1)))[:2] == [
        TruncateFullyAndStartAt(SNAPSHOT),
        AdvanceHighWatermark(Offset(10)),
    ]
    assert harness.replica_state.log.end == SNAPSHOT


def test_sn14_a_flush_that_was_under_way_does_not_make_the_new_log_longer() -> None:
    harness = behind(observer=True)
    harness.answer(the_fetch(harness), fetch_response(2, LEADS, batch(3, 20, 1)))  # its flush is in progress
    offer(harness)
    gives(harness, b"0123456789")
    harness.step(SnapshotAppended(1, 10))
    harness.step(SnapshotReceived(1))
    harness.step(LogFlushed(Offset(23)))
    log = harness.replica_state.log
    assert (log.flushed_end_offset, log.end_offset) == (10, 10)


def test_sn12_an_offer_tells_where_the_leader_is() -> None:
    harness = behind()
    harness.advance(700)
    offer(harness, high_watermark=Offset(15), log_start_offset=Offset(9))
    state = following(harness)
    assert (state.leader_high_watermark, state.leader_log_start_offset, state.has_fetched) == (15, 9, True)
    assert state.fetch_deadline_ms == harness.now_ms + 2000
    assert harness.replica.high_watermark == -1, "it knows none of its records as committed"


# --- the fetch timer --------------------------------------------------------------------------------------------------


def test_sn11_every_answer_with_bytes_extends_the_fetch_timer() -> None:
    harness = offered()
    for position in range(5):
        harness.advance(1900)
        gives(harness, b"x", position)
        harness.step(SnapshotAppended(1, position + 1))
    assert harness.role is Role.FOLLOWER
    assert roles_after(harness, 1999, 1) == [Role.FOLLOWER, Role.PROSPECTIVE]


def test_sn11_the_fetch_timer_runs_while_bytes_are_written() -> None:
    harness = offered()
    gives(harness, b"four")
    assert roles_after(harness, 1999, 1) == [Role.FOLLOWER, Role.PROSPECTIVE]


def test_sn11_an_answer_with_bytes_is_a_successful_fetch() -> None:
    harness = offered()
    following(harness).has_fetched = False  # as after EndQuorumEpoch
    gives(harness, b"four")
    assert following(harness).has_fetched


ANSWERS_OF_NO_USE: dict[str, dict[str, Any]] = {
    "it shuts down": {"error": ErrorCode.BROKER_NOT_AVAILABLE},
    "it did not understand": {"error": ErrorCode.INVALID_REQUEST},
    "it failed": {"error": ErrorCode.UNKNOWN_SERVER_ERROR},
    "it could not read it": {"error": ErrorCode.KAFKA_STORAGE_ERROR},
}
ANSWERS_THAT_END_IT: dict[str, dict[str, Any]] = {
    "not found": {"error": ErrorCode.SNAPSHOT_NOT_FOUND},
    "out of range": {"error": ErrorCode.POSITION_OUT_OF_RANGE},
    "another snapshot": {"snapshot_id": point(2, 11)},
    "the same end in another epoch": {"snapshot_id": point(3, 10)},
    "bytes before the position": {"position": 3},
    "bytes behind the position": {"position": 5},
    "it became longer": {"size": 11},
    "it became shorter": {"size": 9},
    "no data": {"data": b""},
    "more data than is left": {"data": b"456789A"},
    "a negative size": {"size": -1},
    "a size below the position": {"size": 3},
}


@pytest.mark.parametrize("changes", ANSWERS_OF_NO_USE.values(), ids=ANSWERS_OF_NO_USE)
def test_sn13_an_answer_of_no_use_changes_nothing_and_it_goes_on_after_the_back_off(changes: dict[str, Any]) -> None:
    harness = halfway()
    harness.advance(100)
    before = what_it_has(harness)
    assert gives(harness, **{"data": b"456789", "position": 4, **changes}) == []
    assert what_it_has(harness) == before
    assert is_backing_off(harness)
    assert harness.advance(19) == []
    assert told(harness.advance(1)) == [asks(4)]


@pytest.mark.parametrize("changes", ANSWERS_THAT_END_IT.values(), ids=ANSWERS_THAT_END_IT)
def test_sn13_an_answer_that_does_not_fit_ends_it_and_it_fetches_after_the_back_off(changes: dict[str, Any]) -> None:
    harness = halfway()
    harness.advance(100)
    before = what_it_has(harness)
    assert gives(harness, **{"data": b"456789", "position": 4, **changes}) == [DropSnapshot(1)]
    assert what_it_has(harness)[:-1] == before[:-1]
    assert harness.replica_state.snapshot_fetch is None
    assert is_backing_off(harness)
    assert harness.advance(19) == []
    assert fetches_again(told(harness.advance(1)))


@pytest.mark.parametrize("size", [0, -1, 3])
def test_sn13_a_first_answer_of_a_size_that_cannot_be_ends_it(size: int) -> None:
    harness = offered()
    assert gives(harness, b"four", size=size) == [DropSnapshot(1)]
    assert is_backing_off(harness)


@pytest.mark.parametrize("error", [ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE])
def test_sn13_the_next_offer_of_the_same_snapshot_is_a_new_attempt_from_its_first_byte(error: ErrorCode) -> None:
    harness = halfway()
    gives(harness, b"", error=error)
    harness.advance(20)
    assert offer(harness) == [asks(0)]
    assert gives(harness, b"other", size=5) == [AppendSnapshot(2, SNAPSHOT, b"other")]


def test_sn13_an_error_with_bytes_brings_none() -> None:
    harness = offered()
    assert gives(harness, b"four", error=ErrorCode.UNKNOWN_SERVER_ERROR) == []


def test_sn13_an_error_ends_nothing_else_that_was_said() -> None:
    """NOT_LEADER_OR_FOLLOWER and the like are dealt with as for any request (RF-61)."""
    harness = halfway()
    actions = gives(harness, b"", error=ErrorCode.FENCED_LEADER_EPOCH, leader=LeaderAndEpoch(None, Epoch(LEADS + 1)))
    assert DropSnapshot(1) not in actions
    assert (harness.role, harness.epoch) == (Role.UNATTACHED, LEADS + 1)
    assert harness.replica_state.snapshot_fetch is not None


def test_rf63_a_request_that_fails_is_repeated_after_the_back_off_at_the_same_byte() -> None:
    harness = halfway()
    before = what_it_has(harness)
    assert harness.fail(the_request(harness)) == []
    assert what_it_has(harness) == before
    assert harness.advance(19) == []
    assert told(harness.advance(1)) == [asks(4)]


def test_rf63_a_request_without_an_answer_is_repeated_at_the_same_byte_and_a_late_answer_ignored() -> None:
    harness = halfway(observer=True, bootstrap_endpoints=[endpoint(2)], request_timeout_ms=1000)
    late = the_request(harness)
    harness.advance(999)
    assert harness.sent == []
    harness.advance(21)
    assert isinstance(late.request, FetchSnapshotRequest)
    assert the_request(harness).request == late.request
    answer = fetch_snapshot_response(2, LEADS, SNAPSHOT, b"456789", position=4, size=SIZE)
    assert harness.answer(late, answer) == []


def test_sn13_an_answer_to_a_fetch_that_was_not_asked_for_is_none() -> None:
    harness = offered()
    assert harness.answer(the_request(harness), fetch_response(2, LEADS, batch(3, 1, 1))) == []
    assert is_backing_off(harness)
    assert harness.replica.log_end_offset == 3


# --- answers that are too late ----------------------------------------------------------------------------------------


def test_sn13_an_answer_comes_once() -> None:
    harness = offered()
    send = the_request(harness)
    answer = fetch_snapshot_response(2, LEADS, SNAPSHOT, b"four", size=SIZE)
    assert harness.answer(send, answer) == [AppendSnapshot(1, SNAPSHOT, b"four")]
    assert harness.answer(send, answer) == []
    harness.step(SnapshotAppended(1, 4))
    assert harness.answer(send, answer) == []


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.SNAPSHOT_NOT_FOUND])
def test_sn13_an_answer_after_a_change_of_role_changes_nothing(error: ErrorCode) -> None:
    harness = halfway(voter_count=3)
    late = the_request(harness)
    harness.make_prospective()
    answer = fetch_snapshot_response(2, LEADS, SNAPSHOT, b"456789", position=4, size=SIZE, error=error)
    assert harness.answer(late, answer) == []
    harness.make_follower(3, LEADS + 1)
    assert [action for action in harness.answer(late, answer) if not isinstance(action, Send)] == []
    assert harness.replica_state.snapshot_fetch is not None


def from_before(harness: Harness, request: FetchSnapshotRequest, error: ErrorCode = ErrorCode.NONE) -> list[Told]:
    """The effect of an answer to `request` that is not stopped before (Connections accepts an answer only once)."""
    answer = fetch_snapshot_response(
        2, LEADS, request.snapshot_id, b"xyz", position=request.position, size=SIZE, error=error
    )
    assert snapshot_fetch.on_fetch_snapshot_response(
        harness.environment, harness.replica_state, harness.output, request, answer
    )
    return told(harness.step(TimePassed()))


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.UNKNOWN_SERVER_ERROR])
@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(asks(0), id="another position"),
        pytest.param(asks(4, point(2, 9)), id="another snapshot"),
        pytest.param(asks(4, epoch=LEADS - 1), id="another epoch"),
    ],
)
def test_sn13_an_answer_to_what_is_not_asked_any_more_is_ignored(
    request_: FetchSnapshotRequest, error: ErrorCode
) -> None:
    harness = halfway()
    before = what_it_has(harness)
    assert from_before(harness, request_, error) == []
    assert what_it_has(harness) == before


def test_sn13_an_answer_when_nothing_is_downloaded_or_followed_is_ignored() -> None:
    harness = behind()
    assert from_before(harness, asks(0)) == []
    harness = halfway()
    harness.make_prospective()
    assert from_before(harness, asks(4)) == []


@pytest.mark.parametrize("event", [SnapshotAppended(1, 3), SnapshotReceived(1), SnapshotRefused(1)])
def test_sn13_what_is_said_of_an_earlier_attempt_changes_nothing(event: Event) -> None:
    harness = offered()
    gives(harness, b"", error=ErrorCode.SNAPSHOT_NOT_FOUND)
    before = what_it_has(harness)
    assert harness.step(event) == []
    assert what_it_has(harness) == before
    harness.advance(20)
    offer(harness)
    gives(harness, b"other")
    before = what_it_has(harness)
    assert harness.step(event) == []
    assert what_it_has(harness) == before
    assert steps(harness, SnapshotAppended(2, 5)) == [asks(5)]


# --- refusals of the disk ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["the first bytes", "later bytes", "the whole"])
def test_sn12_after_a_refusal_records_are_fetched_and_the_next_offer_is_a_new_attempt(when: str) -> None:
    if when == "the first bytes":
        harness = offered()
        gives(harness, b"four")
    elif when == "later bytes":
        harness = halfway()
        gives(harness, b"56", position=4)
    else:
        harness = written()
    before = what_it_has(harness)
    actions = steps(harness, SnapshotRefused(1))
    actions += told(harness.advance(20))
    assert fetches_again(actions), "no order to drop it: nothing of it is left"
    assert what_it_has(harness)[:-1] == before[:-1]
    assert offer(harness) == [asks(0)]
    assert gives(harness, b"other", size=20) == [AppendSnapshot(2, SNAPSHOT, b"other")]
