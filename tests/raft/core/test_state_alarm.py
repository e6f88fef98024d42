"""Voters whose state digests differ without a majority for one: an alarm, and no replica is fenced."""

from __future__ import annotations

import pytest

from kraftbase.types import Offset
from raft.core.messages import DescribeQuorumRequest
from raft.core.states import Role
from tests.raft.core.builders import Harness, replica
from tests.raft.core.test_state_mismatch import report, tell


def alarm(harness: Harness) -> Offset | None:
    return harness.ask(DescribeQuorumRequest()).state_alarm_offset


@pytest.mark.parametrize(
    ("others", "is_alarm"), [("b", True), ("a", False), ("bc", True), ("ab", False), ("b-", False)]
)
def test_without_a_majority_it_is_an_alarm_and_nobody_is_fenced(others: str, is_alarm: bool) -> None:
    harness = replica(voter_count=len(others) + 1).make_leader()
    report(harness, 10, "a")
    for node_id, name in enumerate(others, 2):
        if name != "-":
            tell(harness, node_id, 10, name)
    assert alarm(harness) == (10 if is_alarm else None)
    assert harness.role is Role.LEADER


def test_an_alarm_ends_when_voters_agree_further_on() -> None:
    harness = replica(voter_count=2).make_leader()
    report(harness, 10, "a")
    tell(harness, 2, 10, "b")
    assert alarm(harness) == 10
    report(harness, 20, "a")
    tell(harness, 2, 20, "a")
    assert alarm(harness) is None
