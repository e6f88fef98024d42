"""The leader's answers to FetchSnapshot, which counts as contact with its sender (SN-03, SN-10, SN-11).

The core knows neither which snapshots exist nor how long they are: its answer names a range of one, and the shell
checks whether the range exists when it carries the answer out.
"""

from __future__ import annotations

from typing import Any

import pytest

from kraftbase.errors import ErrorCode
from kraftbase.sentinels import UNKNOWN_HIGH_WATERMARK, UNKNOWN_OFFSET
from raft.core.actions import Reply, SnapshotRange
from raft.core.events import ShutdownRequested
from raft.core.messages import DescribeQuorumRequest, FetchSnapshotResponse
from raft.core.serving import SNAPSHOT_BYTES_MAX
from raft.core.states import Role
from raft.core.types import OffsetAndEpoch
from tests.raft.core.builders import (
    OBSERVER_ID,
    Harness,
    endpoint,
    fetch,
    fetch_snapshot,
    fetch_snapshot_response,
    key,
    leader_and_epoch,
    replica,
)
from tests.raft.core.fetching import END, EPOCH, append, follower, leader, point
from tests.raft.core.test_following import roles_after

SNAPSHOT = point(1, 7)


def asked(
    harness: Harness, sender_id: int | None = 2, snapshot_id: OffsetAndEpoch = SNAPSHOT, **changes: Any
) -> FetchSnapshotResponse:
    answer = harness.ask(fetch_snapshot(sender_id, EPOCH, snapshot_id, **changes))
    assert isinstance(answer, FetchSnapshotResponse)
    return answer


def refused(error: ErrorCode, snapshot_id: OffsetAndEpoch = SNAPSHOT, leader_id: int = 1) -> FetchSnapshotResponse:
    return fetch_snapshot_response(leader_id, EPOCH, snapshot_id, error=error)


# --- the answer -------------------------------------------------------------------------------------------------------


def test_sn10_the_leader_answers_with_a_range_of_the_snapshot() -> None:
    actions = leader().deliver(fetch_snapshot(2, EPOCH, SNAPSHOT, 300, max_bytes=1000))
    assert actions == [
        Reply(
            1,
            FetchSnapshotResponse(
                leader=leader_and_epoch(1, EPOCH),
                leader_endpoint=endpoint(1),
                snapshot_id=SNAPSHOT,
                position=300,
            ),
            SnapshotRange(position=300, max_bytes=1000),
        )
    ]


@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        (1, 1),
        (SNAPSHOT_BYTES_MAX, 8 * 1024 * 1024),
        (SNAPSHOT_BYTES_MAX + 1, 8 * 1024 * 1024),
        (2**31 - 1, 8 * 1024 * 1024),
    ],
)
def test_sn10_no_answer_holds_more_than_eight_mebibytes(wanted: int, given: int) -> None:
    harness = leader()
    asked(harness, max_bytes=wanted)
    assert harness.reads == SnapshotRange(position=0, max_bytes=given)


@pytest.mark.parametrize("sender_id", [None, 1, 3, OBSERVER_ID])
def test_sn10_whoever_asks_is_answered(sender_id: int | None) -> None:
    assert asked(leader(), sender_id).error is ErrorCode.NONE


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        pytest.param({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID, id="another cluster"),
        pytest.param({"current_leader_epoch": EPOCH - 1}, ErrorCode.FENCED_LEADER_EPOCH, id="an epoch that is over"),
        pytest.param({"current_leader_epoch": EPOCH + 1}, ErrorCode.UNKNOWN_LEADER_EPOCH, id="an epoch to come"),
        pytest.param({"max_bytes": 0}, ErrorCode.INVALID_REQUEST, id="no bytes"),
        pytest.param({"max_bytes": -1}, ErrorCode.INVALID_REQUEST, id="less than no bytes"),
        pytest.param({"position": -1}, ErrorCode.POSITION_OUT_OF_RANGE, id="before the beginning"),
    ],
)
def test_sn10_what_is_wrong_is_refused(changes: dict[str, Any], error: ErrorCode) -> None:
    assert asked(leader(), **changes) == refused(error)


@pytest.mark.parametrize(
    ("snapshot_id", "error"),
    [
        pytest.param(point(0, 0), ErrorCode.SNAPSHOT_NOT_FOUND, id="the bootstrap snapshot, SN-03"),
        pytest.param(point(1, 0), ErrorCode.SNAPSHOT_NOT_FOUND, id="one of nothing"),
        pytest.param(point(-1, 7), ErrorCode.INVALID_REQUEST, id="a negative epoch"),
        pytest.param(point(1, -1), ErrorCode.INVALID_REQUEST, id="a negative offset"),
        pytest.param(point(-1, -1), ErrorCode.INVALID_REQUEST, id="both negative"),
    ],
)
def test_sn10_an_id_that_no_snapshot_has_is_refused(snapshot_id: OffsetAndEpoch, error: ErrorCode) -> None:
    assert asked(leader(), snapshot_id=snapshot_id) == refused(error, snapshot_id)


def test_sn03_the_bootstrap_snapshot_is_not_found_wherever_it_is_asked_for() -> None:
    assert asked(leader(), snapshot_id=point(0, 0), position=-1).error is ErrorCode.SNAPSHOT_NOT_FOUND


def test_sn10_the_snapshot_of_epoch_zero_and_the_first_record_may_be_asked_for() -> None:
    assert asked(leader(), snapshot_id=point(0, 1)).error is ErrorCode.NONE


def test_sn10_who_does_not_lead_says_who_does() -> None:
    assert asked(follower(EPOCH)) == refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=2)


def test_sn10_a_leader_that_shuts_down_gives_no_snapshots() -> None:
    harness = replica(voter_count=1)
    assert harness.replica.is_leader
    harness.step(ShutdownRequested())
    assert asked(harness).error is ErrorCode.BROKER_NOT_AVAILABLE


# --- a request is contact ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sender_id", "role"),
    [
        pytest.param(2, Role.LEADER, id="a voter"),
        pytest.param(9, Role.RESIGNED, id="an observer"),
        pytest.param(None, Role.RESIGNED, id="a tool"),
        pytest.param(1, Role.RESIGNED, id="somebody with the leader's own id"),
    ],
)
def test_sn11_a_voter_that_fetches_a_snapshot_keeps_the_leader_in_office(sender_id: int | None, role: Role) -> None:
    harness = leader()
    harness.advance(2999)
    asked(harness, sender_id)
    harness.advance(1)
    assert harness.role is role


def test_sn11_a_leader_whose_followers_all_fetch_snapshots_stays_for_as_long_as_they_do() -> None:
    harness = leader(voter_count=5)
    for _ in range(5):
        harness.advance(2999)
        asked(harness, 2)
        asked(harness, 3)
    assert roles_after(harness, 2999) == [Role.LEADER]
    asked(harness, 2)  # with the leader it is two of five
    assert roles_after(harness, 1) == [Role.RESIGNED]


@pytest.mark.parametrize(
    "changes",
    [
        {"max_bytes": -1},
        {"current_leader_epoch": EPOCH - 1},
        {"position": -1},
        {"snapshot_id": point(0, 0)},
        {"cluster_id": "another"},
    ],
)
def test_sn11_a_request_that_is_refused_is_no_sign_of_life(changes: dict[str, Any]) -> None:
    harness = leader()
    harness.advance(2999)
    asked(harness, **changes)
    assert harness.leading.voters[key(2).node_id].last_fetch_ms is None
    harness.advance(1)
    assert harness.role is Role.RESIGNED


def test_sn11_a_snapshot_request_says_nothing_of_the_log_of_its_sender() -> None:
    harness = leader()
    asked(harness)
    progress = harness.leading.voters[key(2).node_id]
    assert harness.replica.high_watermark == UNKNOWN_HIGH_WATERMARK
    assert (progress.end_offset, progress.last_fetch_ms, progress.last_caught_up_ms) == (
        UNKNOWN_OFFSET,
        harness.now_ms,
        None,
    )


def test_sn11_a_voter_that_fetches_a_snapshot_is_not_told_again_who_leads() -> None:
    harness = leader(voter_count=2)
    (begin,) = harness.sent
    harness.fail(begin)
    harness.advance(999)
    asked(harness)
    harness.sent.clear()
    harness.advance(1)
    assert harness.sent == []


def test_sn10_what_a_replica_needs_next_is_behind_the_snapshot_that_it_fetches() -> None:
    harness = leader()
    append(harness, record_count=9)
    harness.ask(fetch(2, EPOCH, END, EPOCH))
    progress = harness.leading.voters[key(2).node_id]
    assert progress.next_offset == END
    asked(harness)
    assert (progress.end_offset, progress.next_offset) == (END, SNAPSHOT.offset)
    harness.ask(fetch(2, EPOCH, END, EPOCH))  # it abandoned the snapshot
    assert progress.next_offset == END


def test_sn10_an_observer_that_fetches_a_snapshot_is_listed() -> None:
    harness = leader()
    asked(harness, OBSERVER_ID)
    (line,) = harness.ask(DescribeQuorumRequest()).observers
    assert (line.key, line.log_end_offset, line.log_start_offset) == (key(OBSERVER_ID), UNKNOWN_OFFSET, UNKNOWN_OFFSET)
    assert (line.last_fetch_ms, line.last_caught_up_ms) == (harness.now_ms, None)
    assert harness.leading.observers[key(OBSERVER_ID)].next_offset == SNAPSHOT.offset


@pytest.mark.parametrize("sender_id", [None, 1])
def test_sn10_a_tool_and_who_claims_to_be_the_leader_are_not_listed(sender_id: int | None) -> None:
    harness = leader()
    asked(harness, sender_id)
    assert harness.ask(DescribeQuorumRequest()).observers == ()
