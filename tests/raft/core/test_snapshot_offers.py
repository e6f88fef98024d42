"""Which fetches get a snapshot as answer, and the effects of such an answer (SN-20, SN-22, PK-01, PK-07, PK-10)."""

from __future__ import annotations

from typing import Any

import pytest

from kraftbase.errors import ErrorCode, InvariantViolation
from kraftbase.sentinels import UNKNOWN_HIGH_WATERMARK
from kraftbase.types import Offset
from raft.core.actions import Action, FlushLog, LogRange, Reply
from raft.core.events import LogStartAdvanced, SnapshotsChanged
from raft.core.messages import DescribeQuorumRequest, FetchResponse
from raft.core.states import Role
from raft.core.types import OffsetAndEpoch
from tests.raft.core.builders import (
    OBSERVER_ID,
    Harness,
    endpoint,
    fetch,
    fetch_snapshot,
    key,
    leader_and_epoch,
    log_state,
    of_type,
    replica,
)
from tests.raft.core.fetching import append, fetch_replies, point

START = point(2, 10)
LATEST = point(4, 15)
LEADS = 5
END = 18
"""Epoch 2 from before the start, epoch 4 from 13, the leader change of epoch 5 at 17."""


def leader(**changes: Any) -> Harness:
    """Leads epoch 5, with a log from 10 to 18 and snapshots that end at 10 and 15; no replica has fetched yet."""
    given: dict[str, Any] = {
        "log": [(2, 3), (4, 4)],
        "start": (START.epoch, START.offset),
        "latest_snapshot": LATEST,
        **changes,
    }
    harness = replica(**given).make_leader()
    assert (harness.epoch, harness.replica.log_end_offset) == (LEADS, END)
    return harness


def answered(actions: list[Action]) -> Reply:
    """The answer, which is the only action."""
    (action,) = actions
    assert isinstance(action, Reply)
    assert isinstance(action.response, FetchResponse)
    return action


def outcome(reply: Reply) -> tuple[str, object]:
    """The kind of an answer to a fetch, and its content; checks that the answer has only one kind."""
    response = reply.response
    assert isinstance(response, FetchResponse)
    records = reply.reads.start_offset if isinstance(reply.reads, LogRange) else None
    named = {
        "snapshot": response.snapshot_id,
        "diverging": response.diverging_epoch,
        "records": records,
        "error": None if response.error is ErrorCode.NONE else response.error,
    }
    set_ones = [(name, value) for name, value in named.items() if value is not None]
    assert len(set_ones) <= 1
    return set_ones[0] if set_ones else ("nothing", None)


def asked(harness: Harness, offset: int, epoch: int, sender_id: int | None = OBSERVER_ID) -> tuple[str, object]:
    return outcome(answered(harness.deliver(fetch(sender_id, LEADS, offset, epoch))))


# --- the table --------------------------------------------------------------------------------------------------------


def test_sn22_an_answer_with_a_snapshot_has_no_records_and_nothing_diverges() -> None:
    actions = leader().deliver(fetch(OBSERVER_ID, LEADS, 9, 2))
    assert actions == [
        Reply(
            1,
            FetchResponse(
                leader=leader_and_epoch(1, LEADS),
                leader_endpoint=endpoint(1),
                high_watermark=UNKNOWN_HIGH_WATERMARK,
                log_start_offset=Offset(10),
                snapshot_id=LATEST,
            ),
        )
    ]


@pytest.mark.parametrize(
    ("offset", "epoch", "expected"),
    [
        # below the start: whatever the epoch
        (0, 0, ("snapshot", LATEST)),
        (0, 4, ("snapshot", LATEST)),
        (1, 1, ("snapshot", LATEST)),
        (9, 1, ("snapshot", LATEST)),
        (9, 2, ("snapshot", LATEST)),
        (9, 3, ("snapshot", LATEST)),
        (9, 5, ("snapshot", LATEST)),
        # at the start
        (10, 2, ("records", 10)),
        (10, 0, ("snapshot", LATEST)),
        (10, 1, ("snapshot", LATEST)),
        (10, 3, ("snapshot", LATEST)),
        (10, 5, ("snapshot", LATEST)),
        # behind the start, of an earlier epoch than the start's
        (11, 1, ("snapshot", LATEST)),
        (11, 0, ("snapshot", LATEST)),
        (18, 1, ("snapshot", LATEST)),
        (99, 1, ("snapshot", LATEST)),
        # behind the start, of an epoch that the log has, up to that epoch's end
        (11, 2, ("records", 11)),
        (13, 2, ("records", 13)),
        (12, 4, ("records", 12)),  # whether it could end there in epoch 4 is not checked, as in Kafka
        (15, 4, ("records", 15)),
        (17, 4, ("records", 17)),
        # behind the start, too long in its epoch, or of an epoch that the log does not have
        (14, 2, ("diverging", point(2, 13))),
        (99, 2, ("diverging", point(2, 13))),
        (18, 4, ("diverging", point(4, 17))),
        (19, 5, ("diverging", point(5, 18))),
        (11, 3, ("diverging", point(2, 13))),
        (17, 3, ("diverging", point(2, 13))),
    ],
)
def test_sn22_what_a_fetch_is_answered_with(offset: int, epoch: int, expected: tuple[str, object]) -> None:
    assert asked(leader(), offset, epoch) == expected


def test_sn22_an_empty_log_behind_a_snapshot_diverges_and_goes_on_like_another() -> None:
    harness = leader(log=[], start=(4, 17), latest_snapshot=None)
    assert asked(harness, 17, 4) == ("records", 17)
    assert asked(harness, 17, 3) == ("snapshot", point(4, 17))
    assert asked(harness, 18, 4) == ("diverging", point(4, 17))


@pytest.mark.parametrize(
    ("offset", "epoch", "expected"),
    [
        (0, 0, ("snapshot", LATEST)),
        (0, 2, ("snapshot", LATEST)),
        (1, 2, ("records", 1)),
        (10, 2, ("records", 10)),
        (14, 2, ("diverging", point(2, 13))),
        (1, 1, ("diverging", point(0, 0))),
    ],
)
def test_pk10_only_an_empty_replica_begins_with_a_snapshot_if_the_leader_has_the_whole_log(
    offset: int, epoch: int, expected: tuple[str, object]
) -> None:
    assert asked(leader(log=[(2, 13), (4, 4)], start=None), offset, epoch) == expected


def test_pk10_without_a_snapshot_an_empty_replica_begins_with_the_log() -> None:
    harness = leader(log=[(2, 13), (4, 4)], start=None, latest_snapshot=None)
    assert asked(harness, 0, 0) == ("records", 0)


def test_sn20_it_is_the_newest_snapshot_that_is_offered() -> None:
    harness = leader()
    newer = point(4, 17)
    assert harness.step(SnapshotsChanged(newer)) == []
    assert asked(harness, 0, 0) == ("snapshot", newer)
    assert asked(harness, 9, 2) == ("snapshot", newer)


@pytest.mark.parametrize(("offset", "epoch"), [(0, 0), (5, 2), (9, 4), (10, 1), (10, 3), (11, 1), (99, 1)])
def test_sn20_without_a_snapshot_who_is_behind_the_start_is_told_that_there_is_none(offset: int, epoch: int) -> None:
    """The snapshot was damaged, and there is no other one yet. The records below the start cannot be read."""
    harness = leader()
    harness.step(SnapshotsChanged(None))
    assert asked(harness, offset, epoch) == ("error", ErrorCode.SNAPSHOT_NOT_FOUND)
    assert harness.leading.observers == {}
    assert asked(harness, 10, 2) == ("records", 10)


# --- at once, and parked ----------------------------------------------------------------------------------------------


def committed(harness: Harness) -> Harness:
    harness.ask(fetch(2, LEADS, END, LEADS, max_wait_ms=0))
    assert harness.replica.high_watermark == END
    return harness


@pytest.mark.parametrize(("offset", "epoch"), [(0, 0), (9, 2), (10, 3), (99, 1)])
def test_pk01_a_fetch_that_a_snapshot_answers_is_not_parked(offset: int, epoch: int) -> None:
    harness = committed(leader())
    response = harness.ask(fetch(3, LEADS, offset, epoch, high_watermark=END, max_wait_ms=500))
    assert (response.snapshot_id, response.high_watermark) == (LATEST, END)
    assert len(harness.leading.purgatory) == 0


def test_pk01_a_fetch_without_the_snapshot_that_it_needs_is_not_parked() -> None:
    harness = committed(leader())
    harness.step(SnapshotsChanged(None))
    response = harness.ask(fetch(3, LEADS, 9, 2, high_watermark=END, max_wait_ms=500))
    assert response.error is ErrorCode.SNAPSHOT_NOT_FOUND


def test_pk07_a_parked_fetch_may_be_answered_with_a_snapshot_when_it_is_looked_at_again() -> None:
    """No event leads there, since a log never starts behind its end: but nothing is answered as it was then."""
    harness = committed(leader())
    assert harness.ask(fetch(3, LEADS, END, LEADS, high_watermark=END, max_wait_ms=500)) is None
    later = point(LEADS, END + 2)
    harness.replica_state.log = log_state([(LEADS, 1)], start=(later.epoch, later.offset))
    harness.replica_state.log.flushed_end_offset = later.offset
    (response,) = fetch_replies(harness.advance(500))
    assert (response.snapshot_id, response.log_start_offset) == (later, END + 2)


# --- the effects of an offer ------------------------------------------------------------------------------------------


def progress_of(harness: Harness, node_id: int = 2) -> tuple[object, ...]:
    progress = harness.leading.voters[key(node_id).node_id]
    return (progress.end_offset, progress.log_start_offset, progress.last_fetch_ms, progress.last_caught_up_ms)


@pytest.mark.parametrize(("offset", "epoch"), [(0, 0), (9, 2), (10, 4), (END, 1), (99, 1)])
def test_sn20_a_fetch_that_a_snapshot_answers_is_no_progress(offset: int, epoch: int) -> None:
    harness = leader()
    before = progress_of(harness)
    reply = answered(harness.deliver(fetch(2, LEADS, offset, epoch, log_start_offset=Offset(3))))
    assert outcome(reply) == ("snapshot", LATEST)
    assert progress_of(harness) == before
    assert (harness.replica.high_watermark, harness.leading.high_watermark) == (LATEST.offset, UNKNOWN_HIGH_WATERMARK)


def test_sn20_it_takes_back_no_progress_either() -> None:
    harness = committed(leader())
    before = progress_of(harness)
    harness.advance(100)
    answered(harness.deliver(fetch(2, LEADS, 0, 0)))
    assert progress_of(harness) == before
    assert harness.replica.high_watermark == END


def test_sn10_a_snapshot_request_commits_nothing() -> None:
    harness = leader()
    harness.step(SnapshotsChanged(point(LEADS, END)))
    actions = harness.deliver(fetch_snapshot(2, LEADS, point(LEADS, END)))
    assert [type(action) for action in actions] == [Reply]
    assert harness.leading.high_watermark == UNKNOWN_HIGH_WATERMARK


def test_sn20_an_observer_is_listed_when_it_asks_for_the_snapshot_and_not_before() -> None:
    harness = leader()
    assert asked(harness, 0, 0) == ("snapshot", LATEST)
    assert harness.ask(DescribeQuorumRequest()).observers == ()
    harness.ask(fetch_snapshot(OBSERVER_ID, LEADS, LATEST))
    assert [line.key for line in harness.ask(DescribeQuorumRequest()).observers] == [key(OBSERVER_ID)]
    assert harness.leading.observers[key(OBSERVER_ID)].next_offset == LATEST.offset


def test_sn11_the_offer_alone_keeps_nobody_in_office_and_what_is_asked_for_then_does() -> None:
    harness = leader()
    harness.advance(2999)
    assert asked(harness, 0, 0, sender_id=2) == ("snapshot", LATEST)
    harness.advance(1)
    assert harness.role is Role.RESIGNED
    harness = leader()
    harness.advance(2999)
    asked(harness, 0, 0, sender_id=2)
    harness.ask(fetch_snapshot(2, LEADS, LATEST))
    harness.advance(2999)
    assert harness.role is Role.LEADER


def test_rf41_a_leader_whose_log_starts_at_a_snapshot_commits_as_others_do() -> None:
    harness = leader(log=[], start=(4, 17), latest_snapshot=None)
    assert harness.replica.high_watermark == 17
    assert asked(harness, 17, 4, sender_id=2) == ("records", 17)
    assert harness.leading.high_watermark == UNKNOWN_HIGH_WATERMARK
    harness.ask(fetch(2, LEADS, 18, LEADS))
    assert harness.replica.high_watermark == 18


# --- the log's start --------------------------------------------------------------------------------------------------


def test_an_advanced_log_start_changes_what_fetches_are_answered_with() -> None:
    harness = committed(leader())
    for offset, epoch in ((11, 2), (13, 2), (15, 4)):
        assert asked(harness, offset, epoch) == ("records", offset)
    assert harness.step(LogStartAdvanced(LATEST)) == []
    expected: list[tuple[int, int, tuple[str, OffsetAndEpoch | int]]] = [
        (11, 2, ("snapshot", LATEST)),
        (13, 2, ("snapshot", LATEST)),
        (14, 4, ("snapshot", LATEST)),
        (15, 2, ("snapshot", LATEST)),
        (15, 4, ("records", 15)),
        (16, 2, ("snapshot", LATEST)),
        (16, 4, ("records", 16)),
        (17, 4, ("records", 17)),
        (18, 4, ("diverging", point(4, 17))),
    ]
    for offset, epoch, answer in expected:
        assert asked(harness, offset, epoch) == answer
    response = harness.ask(fetch(OBSERVER_ID, LEADS, 16, 4))
    assert response.log_start_offset == 15
    assert harness.ask(DescribeQuorumRequest()).voters[0].log_start_offset == 15


def test_a_log_may_start_where_it_ends() -> None:
    harness = committed(leader())
    end = point(LEADS, END)
    harness.step(SnapshotsChanged(end))
    assert harness.step(LogStartAdvanced(end)) == []
    assert harness.ask(fetch(2, LEADS, END, LEADS, high_watermark=END)) is None
    assert asked(harness, END, 4) == ("snapshot", end)
    (reply,) = of_type(Reply, append(harness))
    assert outcome(reply) == ("records", END)


def test_a_log_does_not_start_beyond_what_is_durable() -> None:
    harness = committed(leader())
    assert FlushLog(Offset(END + 3)) in append(harness, record_count=3)
    with pytest.raises(InvariantViolation, match="starts at what is durable"):
        harness.step(LogStartAdvanced(point(LEADS, END + 1)))
    assert harness.replica_state.log.start == START
    harness.flush()
    harness.step(LogStartAdvanced(point(LEADS, END + 1)))
    assert harness.replica_state.log.start == point(LEADS, END + 1)


def test_a_logs_start_does_not_go_back() -> None:
    harness = committed(leader())
    with pytest.raises(InvariantViolation, match="does not go back"):
        harness.step(LogStartAdvanced(point(2, 9)))
    assert harness.replica_state.log.start == START
    assert harness.step(LogStartAdvanced(START)) == []


def test_errors_say_where_the_log_starts() -> None:
    response = leader().ask(fetch(2, LEADS + 1, 10, 2))
    assert (response.error, response.log_start_offset) == (ErrorCode.UNKNOWN_LEADER_EPOCH, 10)
