"""Which fetches are refused, with which error, and that those change nothing (kafka-facts 1.8, RF-60)."""

from __future__ import annotations

from typing import Any

import pytest

from raft.core.errors import ErrorCode
from raft.core.events import ShutdownRequested
from raft.core.states import Role
from raft.core.types import UNKNOWN_HIGH_WATERMARK
from tests.raft.core.builders import endpoint, fetch, key, leader_and_epoch, replica
from tests.raft.core.fetching import END, EPOCH, leader


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"cluster_id": None}, ErrorCode.NONE),
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"cluster_id": ""}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"current_leader_epoch": EPOCH - 1, "last_fetched_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"current_leader_epoch": EPOCH + 1}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"max_wait_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"max_bytes": -1}, ErrorCode.INVALID_REQUEST),
        ({"fetch_offset": -1}, ErrorCode.INVALID_REQUEST),
        ({"last_fetched_epoch": -1}, ErrorCode.INVALID_REQUEST),
        ({"last_fetched_epoch": EPOCH + 1}, ErrorCode.INVALID_REQUEST),
        ({"high_watermark": -2}, ErrorCode.INVALID_REQUEST),
        ({"cluster_id": "another", "max_wait_ms": -1}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"current_leader_epoch": EPOCH + 2, "max_wait_ms": -1}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_fetch_is_judged_before_it_is_counted(changes: dict[str, Any], expected: ErrorCode) -> None:
    harness = leader()
    answer = harness.ask(fetch(2, EPOCH, **{"fetch_offset": END, "last_fetched_epoch": EPOCH, **changes}))
    assert answer.error is expected
    assert (harness.role, harness.epoch) == (Role.LEADER, EPOCH)
    voter = harness.leading.voters[key(2).node_id]
    assert (voter.last_fetch_ms is not None) is (expected is ErrorCode.NONE)
    assert (harness.replica.high_watermark == END) is (expected is ErrorCode.NONE)


def test_rf60_a_refused_fetch_is_told_who_leads_and_nothing_of_the_log() -> None:
    answer = leader().ask(fetch(2, EPOCH + 1, END, EPOCH))
    assert (answer.leader, answer.leader_endpoint) == (leader_and_epoch(1, EPOCH), endpoint(1))
    assert (answer.high_watermark, answer.records, answer.diverging_epoch) == (UNKNOWN_HIGH_WATERMARK, (), None)


def test_a_fetch_at_a_leader_that_shuts_down_is_refused() -> None:
    harness = replica(voter_count=1)
    harness.step(ShutdownRequested())
    assert harness.ask(fetch(9, EPOCH, 0, 0)).error is ErrorCode.BROKER_NOT_AVAILABLE


def test_rf73_a_fetch_without_a_key_is_answered_and_not_counted() -> None:
    harness = leader()
    harness.advance(2999)
    answer = harness.ask(fetch(None, EPOCH, 0, 0))
    assert (answer.error, answer.records == ()) == (ErrorCode.NONE, False)
    assert harness.leading.observers == {}
    assert all(voter.last_fetch_ms is None for voter in harness.leading.voters.values())
    harness.advance(1)
    assert harness.role is Role.RESIGNED
