"""The view of a node: most invariants check it only when it has changed, so each change must be seen."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraftbase.types import NodeId, Offset
from kraftlog.sim.engine.parameters import Overrides
from kraftlog.sim.quorum.definition import CLUSTERS
from kraftlog.sim.quorum.observation.node_view import AppliedState, Ends, News, NodeView
from kraftlog.sim.quorum.observation.step import Step
from kraftlog.sim.quorum.world import World
from raft.core.types import ReplicaKey


def a_view() -> NodeView:
    return NodeView(3, ReplicaKey(NodeId(3), UUID(int=7)), is_voter=True)


@pytest.mark.parametrize(("name", "value"), [("life", 1), ("is_behind", True), ("has_lost_data", True)])
def test_each_of_these_is_news(name: str, value: object) -> None:
    view = a_view()
    before = view.news(view.ends())
    assert view.news(view.ends()) == before
    setattr(view, name, value)
    assert view.news(view.ends()) != before


ENDS: Ends = ("leader", 4, 3, 10, 12, 12, 10, 12)


@pytest.mark.parametrize("changed", range(len(ENDS)))
def test_each_end_is_news(changed: int) -> None:
    others = list(ENDS)
    others[changed] = "follower" if changed == 0 else 99
    assert a_view().news(ENDS) != a_view().news(tuple(others))  # type: ignore[arg-type]


def test_the_ends_of_a_node_that_is_down_are_those_of_its_disk() -> None:
    view = a_view()
    assert view.ends() == 0
    view.applied = AppliedState(Offset(4), "")
    assert view.ends() == 0


def test_a_run_says_of_each_step_whether_there_is_news(monkeypatch: pytest.MonkeyPatch) -> None:
    last: dict[int, News] = {}
    steps = {True: 0, False: 0}
    after_step = World.after_step

    def watched(world: World, step: Step) -> None:
        news = step.node.news(step.node.ends())
        assert step.is_news == (last.get(step.node.node_id) != news)
        last[step.node.node_id] = news
        steps[step.is_news] += 1
        after_step(world, step)

    monkeypatch.setattr(World, "after_step", watched)
    assert CLUSTERS.run_seed(7, Overrides(seconds=5)).violation is None
    assert min(steps.values()) > 30
