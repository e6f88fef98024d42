"""The trace of a run: lines for users, and a digest that distinguishes runs."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraftbase.types import NodeId
from kraftlog.sim.engine import trace
from kraftlog.sim.quorum.observation.node_view import NodeView
from kraftlog.sim.quorum.observation.step import Step
from kraftlog.sim.quorum.observation.trace import StepTrace
from raft.core.types import ReplicaKey

NODE = NodeView(3, ReplicaKey(NodeId(3), UUID(int=7)), is_voter=True)


def traced(*labels: str, look_between: bool = False) -> StepTrace:
    made = StepTrace()
    for number, label in enumerate(labels):
        made.step(Step(number, NODE, label, ends=NODE.ends()))
        made.note(number, f"fault {label}")
        if look_between:
            assert made.digest
    return made


def test_equal_runs_have_equal_digests_and_others_have_not() -> None:
    assert traced("a", "b").digest == traced("a", "b").digest
    assert len({traced("a", "b").digest, traced("b", "a").digest, traced("a").digest}) == 3


def test_the_digest_stays_the_same_however_often_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    made = traced("a", "b")
    assert made.digest == made.digest == traced("a", "b", look_between=True).digest
    monkeypatch.setattr(trace, "HASHED_AT_A_TIME", 1)
    assert traced("a", "b").digest == made.digest


def test_a_line_tells_when_who_what_and_how_the_node_is() -> None:
    line, fault = traced("timer").last_lines()
    assert line.split() == ["0", "3", "timer", "down", "D0"]
    assert fault.split() == ["0", "fault", "timer"]
