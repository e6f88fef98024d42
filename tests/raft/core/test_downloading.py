"""How a replica that is behind its leader's log fetches a snapshot (SN-10 to SN-15)."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest

from raft.core import downloading
from raft.core.actions import (
    Action,
    AdvanceHighWatermark,
    AnnounceLeader,
    AppendBatches,
    AppendLeaderChange,
    AppendSnapshot,
    DropSnapshot,
    EndRecovering,
    FlushLog,
    FreezeSnapshot,
    PersistElectionState,
    Reply,
    Send,
    StartLogAnew,
    TruncateLog,
)
from raft.core.download import SnapshotDownload
from raft.core.errors import ErrorCode, InvariantViolation
from raft.core.events import (
    Event,
    LogFlushed,
    LogStartAdvanced,
    SnapshotAppended,
    SnapshotReceived,
    SnapshotRefused,
    SnapshotsChanged,
    TimePassed,
)
from raft.core.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    Request,
    SnapshotRange,
)
from raft.core.states import Follower, Role
from raft.core.types import (
    UNKNOWN_UNTIL_OFFSET,
    Epoch,
    LeaderAndEpoch,
    Offset,
    OffsetAndEpoch,
    RecoveringLog,
)
from tests.raft.core.builders import (
    CONFIG,
    Harness,
    batch,
    begin_quorum_epoch,
    election_state,
    endpoint,
    fetch_response,
    fetch_snapshot,
    fetch_snapshot_response,
    log_state,
    of_type,
    replica,
    vote_response,
)
from tests.raft.core.fetching import follower, leader, point, the_fetch
from tests.raft.core.test_following import roles_after

LEADS = 3
"""The epoch that voter 2 leads."""

SNAPSHOT = point(2, 10)
SIZE = 10

Told: TypeAlias = Action | Request


def behind(**settings: Any) -> Harness:
    """Follows voter 2 of two, with the first three records of its log; its fetch is under way."""
    given: dict[str, Any] = {"voter_count": 2, "log": [(1, 3)], **settings}
    return follower(LEADS, **given)


def told(actions: list[Action]) -> list[Told]:
    """What is ordered; of what is sent only the request."""
    return [action.request if isinstance(action, Send) else action for action in actions]


def asks(
    position: int = 0, snapshot_id: OffsetAndEpoch = SNAPSHOT, epoch: int = LEADS, max_bytes: int | None = None
) -> FetchSnapshotRequest:
    """What voter 1 asks the leader of that epoch for."""
    wanted = CONFIG.fetch_snapshot_max_bytes if max_bytes is None else max_bytes
    return fetch_snapshot(1, epoch, snapshot_id, position, wanted)


def the_request(harness: Harness) -> Send:
    """The one request that was sent since the last look, of whatever kind."""
    (send,) = harness.sent
    return send


def offer(harness: Harness, snapshot_id: OffsetAndEpoch = SNAPSHOT, **changes: Any) -> list[Told]:
    """The leader answers the fetch under way with that snapshot; everything that is ordered then."""
    send = the_fetch(harness)
    epoch = send.request.current_leader_epoch if isinstance(send.request, FetchRequest) else LEADS
    response = fetch_response(harness.leader_id, epoch, snapshot_id=snapshot_id, **changes)
    return told(harness.answer(send, response))


def offered(snapshot_id: OffsetAndEpoch = SNAPSHOT, **settings: Any) -> Harness:
    """Asks for the first bytes of a snapshot; that request is under way."""
    harness = behind(**settings)
    offer(harness, snapshot_id)
    return harness


def gives(harness: Harness, data: bytes, position: int = 0, size: int = SIZE, **changes: Any) -> list[Told]:
    """The leader answers with these bytes; everything that is ordered then."""
    send = the_request(harness)
    assert isinstance(send.request, FetchSnapshotRequest)
    given: dict[str, Any] = {"snapshot_id": send.request.snapshot_id, **changes}
    response = fetch_snapshot_response(
        harness.leader_id, harness.epoch, data=data, position=position, size=size, **given
    )
    return told(harness.answer(send, response))


def steps(harness: Harness, event: Event) -> list[Told]:
    return told(harness.step(event))


def halfway(**settings: Any) -> Harness:
    """Has four of ten bytes; the request for the next ones is under way."""
    harness = offered(**settings)
    gives(harness, b"four")
    harness.step(SnapshotAppended(1, 4))
    return harness


def written(**settings: Any) -> Harness:
    """Has all bytes, and they are being made a snapshot."""
    harness = offered(**settings)
    gives(harness, b"0123456789")
    assert steps(harness, SnapshotAppended(1, 10)) == [FreezeSnapshot(1, SNAPSHOT)]
    return harness


def following(harness: Harness) -> Follower:
    assert isinstance(harness.state, Follower)
    return harness.state


def is_backing_off(harness: Harness) -> bool:
    return harness.context.connections.is_backing_off(endpoint(2))


def what_it_has(harness: Harness) -> tuple[object, ...]:
    """Everything that what is of no use must not change."""
    log, state, download = harness.context.log, following(harness), harness.context.download
    ends = (log.start, log.end_offset, log.flushed_end_offset, log.latest_snapshot, harness.replica.high_watermark)
    under_way = None if download is None else (download.attempt, download.snapshot_id, download.position, download.size)
    return (*ends, log.epochs.entries(), state.has_fetched, state.fetch_deadline_ms, under_way)


def fetches_again(actions: list[Told], offset: int = 3, epoch: int = 1) -> bool:
    """Whether all that is ordered is a fetch from where the log ends."""
    (request,) = actions
    return isinstance(request, FetchRequest) and (request.fetch_offset, request.last_fetched_epoch) == (offset, epoch)


# --- from the offer to the log that starts anew -----------------------------------------------------------------------


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
    assert orders == [StartLogAnew(SNAPSHOT), AdvanceHighWatermark(Offset(10))]
    assert isinstance(request, FetchRequest)
    assert (request.fetch_offset, request.last_fetched_epoch) == (10, 2)
    assert (request.log_start_offset, request.high_watermark) == (10, 10)
    log = harness.context.log
    assert (log.start, log.end, log.flushed_end_offset, log.latest_snapshot) == (SNAPSHOT, SNAPSHOT, 10, SNAPSHOT)
    assert log.epochs.entries() == []
    assert harness.context.download is None


def test_sn14_records_go_on_behind_the_snapshot() -> None:
    harness = written()
    harness.step(SnapshotReceived(1))
    batches = (batch(10, 2, 2), batch(12, 1, 3))
    actions = harness.answer(the_fetch(harness), fetch_response(2, LEADS, *batches, high_watermark=12))
    assert actions == [AppendBatches(batches), FlushLog(Offset(13)), AdvanceHighWatermark(Offset(12))]
    assert harness.context.log.epochs.entries() == [(3, 12)]


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
    assert told(harness.step(SnapshotReceived(1)))[:2] == [StartLogAnew(SNAPSHOT), AdvanceHighWatermark(Offset(10))]
    assert harness.context.log.end == SNAPSHOT


def test_sn14_the_high_watermark_is_not_announced_again_if_it_was_there_already() -> None:
    harness = behind(log=[(1, 12)])
    harness.context.high_watermark = Offset(10)
    offer(harness)
    gives(harness, b"0123456789")
    harness.step(SnapshotAppended(1, 10))
    first, request = steps(harness, SnapshotReceived(1))
    assert first == StartLogAnew(SNAPSHOT)
    assert isinstance(request, FetchRequest)


def test_sn14_a_flush_that_was_under_way_does_not_make_the_new_log_longer() -> None:
    harness = behind(observer=True)
    harness.answer(the_fetch(harness), fetch_response(2, LEADS, batch(3, 20, 1)))  # its flush is under way
    offer(harness)
    gives(harness, b"0123456789")
    harness.step(SnapshotAppended(1, 10))
    harness.step(SnapshotReceived(1))
    harness.step(LogFlushed(Offset(23)))
    log = harness.context.log
    assert (log.flushed_end_offset, log.end_offset) == (10, 10)


def test_sn12_an_offer_tells_where_the_leader_is() -> None:
    harness = behind()
    harness.advance(700)
    offer(harness, high_watermark=Offset(15), log_start_offset=Offset(9))
    state = following(harness)
    assert (state.leader_high_watermark, state.leader_log_start_offset, state.has_fetched) == (15, 9, True)
    assert state.fetch_deadline_ms == harness.now_ms + 2000
    assert harness.replica.high_watermark == -1, "nothing of what it has is known to be committed"


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
    "no bytes but where they would be": {"data": SnapshotRange(position=0, max_bytes=10)},
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
    assert harness.context.download is None
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
    assert harness.context.download is not None


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
    assert harness.context.download is not None


def from_before(harness: Harness, request: FetchSnapshotRequest, error: ErrorCode = ErrorCode.NONE) -> list[Told]:
    """What an answer to `request` would do, if it were not stopped before (Connections takes an answer but once)."""
    answer = fetch_snapshot_response(
        2, LEADS, request.snapshot_id, b"xyz", position=request.position, size=SIZE, error=error
    )
    assert downloading.on_fetch_snapshot_response(harness.context, request, answer)
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


# --- what the disk refuses --------------------------------------------------------------------------------------------


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


# --- another leader ---------------------------------------------------------------------------------------------------


def follow_another(harness: Harness, leader_id: int = 3, epoch: int = LEADS + 1) -> list[Told]:
    harness.sent.clear()
    return told(harness.deliver(begin_quorum_epoch(leader_id, epoch)))


def test_sn12_a_new_leader_is_first_asked_for_records() -> None:
    harness = halfway(voter_count=3)
    persist, announce, reply, request = follow_another(harness)
    assert [type(one) for one in (persist, announce, reply)] == [PersistElectionState, AnnounceLeader, Reply]
    assert fetches_again([request])
    assert the_fetch(harness).destination == endpoint(3)


def test_sn12_the_same_snapshot_goes_on_with_another_leader_where_it_stopped() -> None:
    harness = halfway(voter_count=3)
    follow_another(harness)
    assert offer(harness) == [asks(4, epoch=LEADS + 1)]
    assert gives(harness, b"456789", position=4) == [AppendSnapshot(1, SNAPSHOT, b"456789")]
    assert steps(harness, SnapshotAppended(1, 10)) == [FreezeSnapshot(1, SNAPSHOT)]
    assert steps(harness, SnapshotReceived(1))[0] == StartLogAnew(SNAPSHOT)


def test_sn13_another_leaders_snapshot_of_that_id_must_be_as_long() -> None:
    harness = halfway(voter_count=3)
    follow_another(harness)
    offer(harness)
    assert gives(harness, b"456", position=4, size=7)[0] == DropSnapshot(1)


@pytest.mark.parametrize("other", [point(2, 12), point(3, 10), point(2, 9)])
def test_sn12_another_snapshot_is_another_attempt(other: OffsetAndEpoch) -> None:
    harness = halfway(voter_count=3)
    follow_another(harness)
    assert offer(harness, other) == [DropSnapshot(1), asks(0, other, LEADS + 1)]
    assert gives(harness, b"x", size=1) == [AppendSnapshot(2, other, b"x")]
    assert steps(harness, SnapshotAppended(2, 1)) == [FreezeSnapshot(2, other)]


def test_sn12_records_from_another_leader_end_it() -> None:
    harness = halfway(voter_count=3)
    follow_another(harness)
    records = (batch(3, 2, 1),)
    actions = harness.answer(the_fetch(harness), fetch_response(3, LEADS + 1, *records))
    assert actions == [DropSnapshot(1), AppendBatches(records), FlushLog(Offset(5))]
    assert harness.context.download is None


def test_sn12_an_answer_that_there_is_nothing_more_ends_it() -> None:
    harness = halfway(voter_count=3)
    follow_another(harness)
    actions = told(harness.answer(the_fetch(harness), fetch_response(3, LEADS + 1)))
    assert actions[0] == DropSnapshot(1)
    assert fetches_again(actions[1:])


def test_sn12_a_log_that_diverges_from_another_leaders_ends_it() -> None:
    harness = halfway(voter_count=3, log=[(1, 2), (2, 1)])
    follow_another(harness)
    actions = told(harness.answer(the_fetch(harness), fetch_response(3, LEADS + 1, diverging_epoch=point(1, 2))))
    assert actions[:2] == [DropSnapshot(1), TruncateLog(Offset(2))]
    assert fetches_again(actions[2:], 2, 1)


def test_sn12_an_error_of_another_leader_does_not_end_it() -> None:
    harness = halfway(voter_count=3)
    follow_another(harness)
    answer = fetch_response(3, LEADS + 1, error=ErrorCode.SNAPSHOT_NOT_FOUND)
    assert of_type(DropSnapshot, harness.answer(the_fetch(harness), answer)) == []
    assert harness.context.download is not None


def test_sn12_an_offer_of_no_use_by_another_leader_does_not_end_it() -> None:
    harness = halfway(voter_count=3)
    follow_another(harness)
    before = what_it_has(harness)
    offer(harness, point(-1, 12))
    assert what_it_has(harness)[-1] == before[-1]


def test_sn12_the_same_leader_goes_on_after_an_election_that_came_to_nothing() -> None:
    """The epoch is the same, so what it offered holds."""
    harness = halfway(voter_count=3).make_prospective()
    harness.sent.clear()
    actions = follow_another(harness, 2, LEADS)
    assert actions[-1] == asks(4)


def test_sn12_nobody_is_asked_while_bytes_are_written_whoever_leads() -> None:
    harness = offered(voter_count=3)
    gives(harness, b"four")
    assert [type(action) for action in follow_another(harness)] == [PersistElectionState, AnnounceLeader, Reply]
    assert harness.sent == []
    assert fetches_again(steps(harness, SnapshotAppended(1, 4)))
    assert offer(harness) == [asks(4, epoch=LEADS + 1)]


def test_sn14_a_snapshot_that_is_whole_is_taken_whoever_leads_meanwhile() -> None:
    harness = written(voter_count=3)
    follow_another(harness)
    *orders, request = steps(harness, SnapshotReceived(1))
    assert orders == [StartLogAnew(SNAPSHOT), AdvanceHighWatermark(Offset(10))]
    assert fetches_again([request], 10, 2)


def test_sn12_while_the_leader_is_left_alone_others_are_asked_for_records_only() -> None:
    harness = halfway(voter_count=3)
    harness.fail(the_request(harness))
    send = the_request(harness)
    assert send.destination == endpoint(3)
    assert fetches_again([send.request])


# --- the replica itself is elected ------------------------------------------------------------------------------------


def win(harness: Harness) -> list[Action]:
    """Be elected; everything that is ordered when it is."""
    harness.make_candidate()
    (send,) = [send for send in harness.sent if send.destination == endpoint(2)]
    return harness.answer(send, vote_response(harness.epoch, granted=True))


def test_sn15_who_is_elected_drops_what_it_fetched() -> None:
    harness = halfway()
    actions = told(win(harness))
    assert harness.replica.is_leader
    assert [type(one) for one in actions if not isinstance(one, BeginQuorumEpochRequest)] == [
        PersistElectionState,
        AnnounceLeader,
        DropSnapshot,
        AppendLeaderChange,
        FlushLog,
    ]
    assert DropSnapshot(1) in actions


@pytest.mark.parametrize(
    "event",
    [
        SnapshotAppended(1, 10),
        SnapshotReceived(1),
        SnapshotRefused(1),
        SnapshotsChanged(SNAPSHOT),
        SnapshotsChanged(None),
        LogStartAdvanced(point(1, 3)),
    ],
)
def test_sn15_a_leader_starts_its_log_never_anew(event: Event) -> None:
    harness = written()
    win(harness)
    harness.flush()
    assert harness.step(event) == []
    assert harness.replica.log_end_offset == 4


def test_sn15_a_leader_takes_no_offer_and_no_bytes() -> None:
    harness = halfway()
    late = the_request(harness)
    win(harness)
    assert harness.answer(late, fetch_snapshot_response(2, LEADS, SNAPSHOT, b"456789", position=4, size=SIZE)) == []
    (begin,) = [send for send in harness.sent if isinstance(send.request, BeginQuorumEpochRequest)]
    harness.answer(begin, fetch_response(1, harness.epoch, snapshot_id=SNAPSHOT))
    assert (harness.role, harness.replica.log_end_offset, harness.context.download) == (Role.LEADER, 4, None)


def test_sn15_a_leader_that_is_given_a_snapshot_stops_itself() -> None:
    harness = leader()
    harness.context.download = SnapshotDownload(1, SNAPSHOT, Epoch(LEADS))
    with pytest.raises(InvariantViolation, match="SN-15"):
        harness.step(SnapshotReceived(1))
    assert harness.context.log.start == point(0, 0)


def test_sn14_a_candidate_takes_what_it_has_fetched() -> None:
    """What it asked votes for was less: nobody who voted had more that is committed."""
    harness = written()
    harness.make_candidate()
    assert harness.step(SnapshotReceived(1)) == [StartLogAnew(SNAPSHOT), AdvanceHighWatermark(Offset(10))]


# --- offers that are none ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("snapshot_id", "why"),
    [
        (point(2, -1), "a negative offset"),
        (point(-1, 10), "a negative epoch"),
        (point(-1, -1), "both"),
        (point(2, 5), "below the high watermark"),
        (point(9, 5), "below the high watermark, in a later epoch"),
        (point(1, 7), "within its log"),
        (point(1, 8), "at the end of its log"),
        (point(0, 0), "the bootstrap snapshot, SN-03"),
    ],
)
@pytest.mark.parametrize("has_it", [False, True])
def test_sn12_an_offer_that_is_none_changes_nothing_and_backs_off(
    snapshot_id: OffsetAndEpoch, why: str, has_it: bool
) -> None:
    harness = behind(log=[(1, 8)])
    harness.context.high_watermark = Offset(6)
    if has_it:
        harness.step(SnapshotsChanged(snapshot_id))
    harness.advance(100)
    before = what_it_has(harness)
    assert offer(harness, snapshot_id, high_watermark=Offset(8)) == [], why
    assert what_it_has(harness) == before
    assert is_backing_off(harness)
    assert harness.advance(19) == []
    assert fetches_again(told(harness.advance(1)), 8, 1)


@pytest.mark.parametrize("snapshot_id", [point(1, 9), point(2, 6), point(2, 8), point(2, 20), point(LEADS, 9)])
def test_sn12_any_other_offer_is_one(snapshot_id: OffsetAndEpoch) -> None:
    harness = behind(log=[(1, 8)])
    harness.context.high_watermark = Offset(6)
    assert offer(harness, snapshot_id) == [asks(0, snapshot_id)]


def test_sn12_an_offer_to_a_replica_that_knows_the_high_watermark_zero_is_one() -> None:
    harness = behind(log=[])
    harness.context.high_watermark = Offset(0)
    assert offer(harness, point(1, 1)) == [asks(0, point(1, 1))]


def test_sn14_a_log_of_a_higher_epoch_that_ends_below_the_snapshot_is_replaced() -> None:
    """Unlike in Kafka: what it has there was never committed, since the snapshot does not have it."""
    harness = behind(log=[(1, 3), (3, 2)])
    assert offer(harness) == [asks(0)]
    gives(harness, b"0123456789")
    harness.step(SnapshotAppended(1, 10))
    assert steps(harness, SnapshotReceived(1))[0] == StartLogAnew(SNAPSHOT)
    assert harness.context.log.last_epoch == 2


def test_sn14_a_log_that_ends_where_the_snapshot_does_in_a_higher_epoch_is_replaced() -> None:
    """Voter 1 led epoch 3 alone and wrote its record 9; epoch 4 committed the record 9 of epoch 2, and starts at 10.

    The leader can offer nothing but the snapshot (SN-22: at the start, of another epoch). Were that refused, voter 1
    would not go on before there is a newer one.
    """
    harness = follower(4, voter_count=2, log=[(1, 9), (3, 1)])
    leads = replica(2, voter_count=2, start=(2, 10), election_state=election_state(3)).make_leader()
    send = the_fetch(harness)
    response = leads.ask(send.request)
    assert response.snapshot_id == SNAPSHOT
    assert told(harness.answer(send, response)) == [asks(0, epoch=4)]


@pytest.mark.parametrize("snapshot_id", [point(LEADS + 1, 20), point(2**31 - 1, 20)])
def test_sn12_an_offer_of_a_later_epoch_than_the_leaders_is_none(snapshot_id: OffsetAndEpoch) -> None:
    """As for records (RF-53). Whoever took it would fetch with an epoch that every leader refuses."""
    harness = behind()
    assert offer(harness, snapshot_id) == []
    assert is_backing_off(harness)


@pytest.mark.parametrize("offset", [0, -1])
def test_sn12_an_offer_of_a_snapshot_of_nothing_is_none(offset: int) -> None:
    """One that ends at 0 has no record whose epoch it could name (SN-03)."""
    harness = behind(log=[])
    assert harness.replica.high_watermark == -1
    assert offer(harness, point(2, offset)) == []
    assert is_backing_off(harness)


# --- a snapshot that is there already ---------------------------------------------------------------------------------


def test_sn12_a_snapshot_that_this_replica_has_is_taken_without_fetching_it() -> None:
    harness = behind(latest_snapshot=SNAPSHOT, log=[(1, 3)])
    harness.context.high_watermark = Offset(2)
    *orders, request = offer(harness)
    assert orders == [StartLogAnew(SNAPSHOT), AdvanceHighWatermark(Offset(10))]
    assert fetches_again([request], 10, 2)


def test_sn12_what_is_being_fetched_is_dropped_for_one_that_is_there() -> None:
    harness = halfway(voter_count=3)
    mine = point(2, 12)
    harness.step(SnapshotsChanged(mine))
    follow_another(harness)
    assert offer(harness, mine)[:2] == [DropSnapshot(1), StartLogAnew(mine)]
    assert harness.context.download is None


@pytest.mark.parametrize("latest", [point(2, 9), point(1, 10), point(2, 11)])
def test_sn12_another_one_that_is_there_is_not_what_was_offered(latest: OffsetAndEpoch) -> None:
    harness = behind()
    harness.step(SnapshotsChanged(latest))
    assert offer(harness) == [asks(0)]


@pytest.mark.parametrize(
    ("latest", "expected"),
    [(None, SNAPSHOT), (point(1, 9), SNAPSHOT), (SNAPSHOT, SNAPSHOT), (point(2, 11), point(2, 11))],
)
def test_sn14_a_snapshot_that_the_log_is_past_is_kept_and_the_log_too(
    latest: OffsetAndEpoch | None, expected: OffsetAndEpoch
) -> None:
    """No event leads there, since no records are fetched meanwhile."""
    harness = written()
    harness.context.log = log_state([(2, 12)])
    harness.step(SnapshotsChanged(latest))
    assert fetches_again(steps(harness, SnapshotReceived(1)), 12, 2)
    assert harness.context.log.latest_snapshot == expected
    assert harness.context.log.start == point(0, 0)


def test_sn14_a_snapshot_never_takes_the_place_of_more_than_it_holds() -> None:
    harness = written(log=[(1, 30)])
    harness.context.high_watermark = Offset(11)
    with pytest.raises(InvariantViolation, match="holds everything committed"):
        harness.step(SnapshotReceived(1))
    assert harness.context.log.end == point(1, 30)


# --- a log that damage took something from ----------------------------------------------------------------------------


def recovering(until: int, damaged_in: int = LEADS) -> Harness:
    log = RecoveringLog(Offset(until), Epoch(damaged_in), "a test")
    return written(recovering=log, election_state=election_state(LEADS))


@pytest.mark.parametrize(("until", "is_over"), [(4, True), (10, True), (11, False), (UNKNOWN_UNTIL_OFFSET, False)])
def test_invariant_25_a_snapshot_brings_back_what_was_lost_below_its_end(until: int, is_over: bool) -> None:
    harness = recovering(until)
    *orders, request = steps(harness, SnapshotReceived(1))
    expected: list[Told] = [StartLogAnew(SNAPSHOT), AdvanceHighWatermark(Offset(10))]
    assert orders == expected + [EndRecovering()] * is_over
    assert isinstance(request, FetchRequest)
    assert request.recovering is not is_over


def test_invariant_25_the_offer_of_a_later_leader_says_how_much_is_enough() -> None:
    log = RecoveringLog(Offset(99), Epoch(LEADS - 1), "a test")
    harness = behind(recovering=log, election_state=election_state(LEADS - 1))
    offer(harness, high_watermark=Offset(10))
    gives(harness, b"0123456789")
    harness.step(SnapshotAppended(1, 10))
    assert EndRecovering() in harness.step(SnapshotReceived(1))


def test_sn14_a_batch_of_the_snapshots_own_epoch_goes_on_without_an_entry_of_its_own() -> None:
    harness = written()
    harness.step(SnapshotReceived(1))
    harness.answer(the_fetch(harness), fetch_response(2, LEADS, batch(10, 1, 2)))
    assert harness.context.log.epochs.entries() == []
    assert harness.context.log.end == point(2, 11)
