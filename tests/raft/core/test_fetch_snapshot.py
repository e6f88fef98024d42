"""FetchSnapshot while there is no snapshot: nothing is found, and asking is a sign of life (SN-10, SN-11)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from raft.core.errors import ErrorCode
from raft.core.messages import FetchSnapshotRequest, FetchSnapshotResponse
from raft.core.states import Role
from raft.core.types import UNKNOWN_HIGH_WATERMARK, Epoch
from tests.raft.core.builders import CLUSTER_ID, Harness, endpoint, key, leader_and_epoch
from tests.raft.core.fetching import EPOCH, leader, point


def fetch_snapshot(sender_id: int | None = 2, **changes: Any) -> FetchSnapshotRequest:
    request = FetchSnapshotRequest(
        cluster_id=CLUSTER_ID,
        replica_key=None if sender_id is None else key(sender_id),
        current_leader_epoch=Epoch(EPOCH),
        snapshot_id=point(1, 7),
        position=0,
        max_bytes=1024,
    )
    return replace(request, **changes)


def asked(harness: Harness, **changes: Any) -> FetchSnapshotResponse:
    answer = harness.ask(fetch_snapshot(**changes))
    assert isinstance(answer, FetchSnapshotResponse)
    return answer


def test_sn10_a_snapshot_that_there_is_not_is_not_found() -> None:
    answer = asked(leader())
    assert answer == FetchSnapshotResponse(
        error=ErrorCode.SNAPSHOT_NOT_FOUND,
        leader=leader_and_epoch(1, EPOCH),
        leader_endpoint=endpoint(1),
        snapshot_id=point(1, 7),
    )


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
    asked(harness, sender_id=sender_id)
    harness.advance(1)
    assert harness.role is role


def test_sn11_a_request_that_is_refused_is_no_sign_of_life() -> None:
    harness = leader()
    harness.advance(2999)
    asked(harness, max_bytes=-1)
    asked(harness, current_leader_epoch=EPOCH - 1)
    harness.advance(1)
    assert harness.role is Role.RESIGNED


def test_sn11_a_snapshot_request_says_nothing_of_the_log_of_its_sender() -> None:
    harness = leader()
    asked(harness)
    assert harness.replica.high_watermark == UNKNOWN_HIGH_WATERMARK
    assert harness.leading.voters[key(2).node_id].last_fetch_ms is None
