"""A replica that fetches a snapshot when the leader changes, it is elected, or an offer is invalid (SN-12 to SN-15)."""

from __future__ import annotations

import pytest

from kraftbase.errors import ErrorCode, InvariantViolation
from kraftbase.types import Epoch, Offset
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
    TruncateFullyAndStartAt,
    TruncateLog,
)
from raft.core.events import (
    Event,
    LogStartAdvanced,
    SnapshotAppended,
    SnapshotReceived,
    SnapshotRefused,
    SnapshotsChanged,
)
from raft.core.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
)
from raft.core.snapshot_fetch_state import SnapshotFetch
from raft.core.states import Role
from raft.core.types import UNKNOWN_UNTIL_OFFSET, OffsetAndEpoch, RecoveringLog
from tests.raft.core.builders import (
    Harness,
    batch,
    begin_quorum_epoch,
    election_state,
    endpoint,
    fetch_response,
    fetch_snapshot_response,
    log_state,
    of_type,
    replica,
    vote_response,
)
from tests.raft.core.fetching import follower, leader, point, the_fetch
from tests.raft.core.snapshot_fetches import (
    LEADS,
    SIZE,
    SNAPSHOT,
    Told,
    asks,
    behind,
    fetches_again,
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
    assert steps(harness, SnapshotReceived(1))[0] == TruncateFullyAndStartAt(SNAPSHOT)


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
    assert harness.replica_state.snapshot_fetch is None


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
    assert harness.replica_state.snapshot_fetch is not None


def test_sn12_an_offer_of_no_use_by_another_leader_does_not_end_it() -> None:
    harness = halfway(voter_count=3)
    follow_another(harness)
    before = what_it_has(harness)
    offer(harness, point(-1, 12))
    assert what_it_has(harness)[-1] == before[-1]


def test_sn12_the_same_leader_goes_on_after_an_election_that_came_to_nothing() -> None:
    """The epoch is the same, so the offer is still valid."""
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
    assert orders == [TruncateFullyAndStartAt(SNAPSHOT), AdvanceHighWatermark(Offset(10))]
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
    assert (harness.role, harness.replica.log_end_offset, harness.replica_state.snapshot_fetch) == (
        Role.LEADER,
        4,
        None,
    )


def test_sn15_a_leader_that_is_given_a_snapshot_stops_itself() -> None:
    harness = leader()
    harness.replica_state.snapshot_fetch = SnapshotFetch(1, SNAPSHOT, Epoch(LEADS))
    with pytest.raises(InvariantViolation, match="SN-15"):
        harness.step(SnapshotReceived(1))
    assert harness.replica_state.log.start == point(0, 0)


def test_sn14_a_candidate_takes_what_it_has_fetched() -> None:
    """It asked for votes with a shorter log: no voter that granted its vote had more committed records."""
    harness = written()
    harness.make_candidate()
    assert harness.step(SnapshotReceived(1)) == [TruncateFullyAndStartAt(SNAPSHOT), AdvanceHighWatermark(Offset(10))]


# --- invalid offers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("snapshot_id", "why"),
    [
        (point(2, -1), "a negative offset"),
        (point(-1, 10), "a negative epoch"),
        (point(-1, -1), "both"),
        (point(9, 5), "of an epoch that has not come"),
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
    harness.replica_state.high_watermark = Offset(6)
    if has_it:
        harness.step(SnapshotsChanged(snapshot_id))
    harness.advance(100)
    before = what_it_has(harness)
    assert offer(harness, snapshot_id, high_watermark=Offset(8)) == [], why
    assert what_it_has(harness) == before
    assert is_backing_off(harness)
    assert harness.advance(19) == []
    assert fetches_again(told(harness.advance(1)), 8, 1)


@pytest.mark.parametrize("snapshot_id", [point(1, 9), point(2, 7), point(2, 8), point(2, 20), point(LEADS, 9)])
def test_sn12_any_other_offer_is_one(snapshot_id: OffsetAndEpoch) -> None:
    harness = behind(log=[(1, 8)])
    harness.replica_state.high_watermark = Offset(6)
    assert offer(harness, snapshot_id) == [asks(0, snapshot_id)]


def test_sn12_an_offer_to_a_replica_that_knows_the_high_watermark_zero_is_one() -> None:
    harness = behind(log=[])
    harness.replica_state.high_watermark = Offset(0)
    assert offer(harness, point(1, 1)) == [asks(0, point(1, 1))]


def test_sn14_a_log_of_a_higher_epoch_that_ends_below_the_snapshot_is_replaced() -> None:
    """Unlike in Kafka: its records there were never committed, since the snapshot does not have them."""
    harness = behind(log=[(1, 3), (3, 2)])
    assert offer(harness) == [asks(0)]
    gives(harness, b"0123456789")
    harness.step(SnapshotAppended(1, 10))
    assert steps(harness, SnapshotReceived(1))[0] == TruncateFullyAndStartAt(SNAPSHOT)
    assert harness.replica_state.log.last_epoch == 2


def test_sn14_a_log_that_ends_where_the_snapshot_does_in_a_higher_epoch_is_replaced() -> None:
    """Voter 1 led epoch 3 alone and wrote its record 9; epoch 4 committed the record 9 of epoch 2, and starts at 10.

    The leader can offer only the snapshot (SN-22: at the start, of another epoch). If voter 1 refused it, voter 1 could
    not continue until a newer snapshot exists.
    """
    harness = follower(4, voter_count=2, log=[(1, 9), (3, 1)])
    leads = replica(2, voter_count=2, start=(2, 10), election_state=election_state(3)).make_leader()
    send = the_fetch(harness)
    response = leads.ask(send.request)
    assert response.snapshot_id == SNAPSHOT
    assert told(harness.answer(send, response)) == [asks(0, epoch=4)]


@pytest.mark.parametrize("snapshot_id", [point(LEADS + 1, 20), point(2**31 - 1, 20)])
def test_sn12_an_offer_of_a_later_epoch_than_the_leaders_is_none(snapshot_id: OffsetAndEpoch) -> None:
    """As for records (RF-53). A replica that took it would fetch with an epoch that every leader refuses."""
    harness = behind()
    assert offer(harness, snapshot_id) == []
    assert is_backing_off(harness)


@pytest.mark.parametrize("offset", [0, -1])
def test_sn12_an_offer_of_a_snapshot_of_nothing_is_none(offset: int) -> None:
    """A snapshot that ends at 0 has no record whose epoch it could name (SN-03)."""
    harness = behind(log=[])
    assert harness.replica.high_watermark == -1
    assert offer(harness, point(2, offset)) == []
    assert is_backing_off(harness)


# --- a snapshot that exists already ---------------------------------------------------------------------------------


def test_sn12_a_snapshot_that_this_replica_has_is_taken_without_fetching_it() -> None:
    harness = behind(latest_snapshot=SNAPSHOT, log=[(1, 3)])
    harness.replica_state.high_watermark = Offset(2)
    *orders, request = offer(harness)
    assert orders == [TruncateFullyAndStartAt(SNAPSHOT), AdvanceHighWatermark(Offset(10))]
    assert fetches_again([request], 10, 2)


def test_sn12_what_is_being_fetched_is_dropped_for_one_that_is_there() -> None:
    harness = halfway(voter_count=3)
    mine = point(2, 12)
    harness.step(SnapshotsChanged(mine))
    follow_another(harness)
    assert offer(harness, mine)[:2] == [DropSnapshot(1), TruncateFullyAndStartAt(mine)]
    assert harness.replica_state.snapshot_fetch is None


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
    """No event leads there, since no records are fetched during the transfer."""
    harness = written()
    harness.replica_state.log = log_state([(2, 12)])
    harness.step(SnapshotsChanged(latest))
    assert fetches_again(steps(harness, SnapshotReceived(1)), 12, 2)
    assert harness.replica_state.log.latest_snapshot == expected
    assert harness.replica_state.log.start == point(0, 0)


def test_sn14_a_snapshot_never_takes_the_place_of_more_than_it_holds() -> None:
    harness = written(log=[(1, 30)])
    harness.replica_state.high_watermark = Offset(11)
    assert not of_type(TruncateFullyAndStartAt, harness.step(SnapshotReceived(1)))
    assert harness.replica_state.log.end == point(1, 30)


# --- a log that damage took something from ----------------------------------------------------------------------------


def recovering(until: int, damaged_in: int = LEADS) -> Harness:
    log = RecoveringLog(Offset(until), Epoch(damaged_in), "a test")
    return written(recovering=log, election_state=election_state(LEADS))


@pytest.mark.parametrize(("until", "is_over"), [(4, True), (10, True), (11, False), (UNKNOWN_UNTIL_OFFSET, False)])
def test_invariant_25_a_snapshot_brings_back_what_was_lost_below_its_end(until: int, is_over: bool) -> None:
    harness = recovering(until)
    *orders, request = steps(harness, SnapshotReceived(1))
    expected: list[Told] = [TruncateFullyAndStartAt(SNAPSHOT), AdvanceHighWatermark(Offset(10))]
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
    assert harness.replica_state.log.epochs.entries() == []
    assert harness.replica_state.log.end == point(2, 11)
