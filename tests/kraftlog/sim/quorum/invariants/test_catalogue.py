"""Every invariant is in the catalogue, says what it is, and is run."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Any, cast, get_args

import pytest

import kraftlog.sim.quorum.invariants
from kraftbase.types import Offset
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.quorum.invariants.catalogue import ALL, STEP_FIELDS, Checker
from kraftlog.sim.quorum.invariants.committed_immutable import CommittedImmutable
from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step
from raft.core.actions import Action, FlushLog, PersistElectionState, Reply
from raft.core.events import Event, RequestReceived, TimePassed
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, batches, send
from tests.raft.core.builders import election_state, fetch, replica, vote, vote_response
from tests.raft.storage.builders import data_batch


def modules() -> list[str]:
    return [module.name for module in pkgutil.iter_modules(kraftlog.sim.quorum.invariants.__path__)]


def test_every_invariant_of_the_package_is_in_it_once() -> None:
    for name in modules():
        importlib.import_module(f"kraftlog.sim.quorum.invariants.{name}")
    assert sorted(kind.__name__ for kind in ALL) == sorted(kind.__name__ for kind in Invariant.__subclasses__())
    assert len({kind.number for kind in ALL}) == len({kind.title for kind in ALL}) == len(ALL)


def test_who_keeps_the_committed_log_runs_first() -> None:
    assert ALL[0] is CommittedImmutable


def test_each_says_what_it_holds_and_from_where() -> None:
    for kind in ALL:
        assert kind.title and kind.source and kind.number > 0, kind
        assert kind.__doc__ and kind.__doc__ != Invariant.__doc__, kind


def test_every_module_has_a_test_module() -> None:
    tested = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    assert set(modules()) - {"invariant"} <= tested


def real_node() -> Cluster:
    """Real replicas with empty logs, so that every invariant finds what it looks at."""
    cluster = Cluster()
    for node_id in cluster.nodes:
        cluster.nodes[node_id].replica = replica(1).replica
    return cluster


@pytest.mark.parametrize("kind", ALL)
def test_each_takes_the_end_of_a_process_and_the_next_one(kind: type[Invariant]) -> None:
    cluster = real_node()
    invariant = kind(cluster)
    invariant.after_step(cluster.step(1))
    step = cluster.kill(1)
    step.events = [RequestReceived(1, vote(2, 0, pre_vote=True))]
    answer = vote_response(0, granted=True, pre_vote=True)
    step.actions = [PersistElectionState(election_state(1)), send(fetch(1, 1)), Reply(1, answer)]
    step.replies = [(vote(2, 0, pre_vote=True), answer)]
    cluster.nodes[1].durable_election = election_state(1)
    invariant.after_step(step)
    step = cluster.start(1)
    cluster.nodes[1].replica = replica(1).replica
    invariant.after_step(step)


def test_each_looks_at_what_steps_are_told_apart_by() -> None:
    known = {*STEP_FIELDS, *get_args(Event), *get_args(Action)}
    assert {kind: kind.looks_at - known for kind in ALL if not kind.looks_at <= known} == {}


def stand_in(looks_at: set[str | type], *, is_about_brokers: bool = False) -> Any:
    """A kind of invariant that counts how often it was run. No subclass: those must all be in the catalogue."""

    class StandIn:
        runs = 0

        def __init__(self, world: Observed) -> None:
            pass

        def after_step(self, step: Step) -> None:
            type(self).runs += 1

    StandIn.looks_at = looks_at  # type: ignore[attr-defined]
    StandIn.is_about_brokers = is_about_brokers  # type: ignore[attr-defined]
    return StandIn


@pytest.mark.parametrize("name", STEP_FIELDS)
def test_the_checker_runs_what_looks_at_a_step_and_counts_it(name: str) -> None:
    cluster = real_node()
    always, looking, elsewhere = stand_in(set()), stand_in({name}), stand_in(set(STEP_FIELDS) - {name})
    checker = Checker(cluster, [always, looking, elsewhere])
    for is_set in (True, False, True, False):
        step = cluster.step(1)
        setattr(step, name, is_set if isinstance(getattr(step, name), bool) else [object()] * is_set)
        checker.after_step(step)
    assert (always.runs, looking.runs, elsewhere.runs, checker.checks) == (4, 2, 0, 6)


def test_the_checker_runs_what_looks_at_a_class_of_events_or_actions() -> None:
    cluster = real_node()
    at_time, at_flushes, at_both = stand_in({TimePassed}), stand_in({FlushLog}), stand_in({TimePassed, FlushLog})
    checker = Checker(cluster, [at_time, at_flushes, at_both])
    for events, actions in (
        ([TimePassed()], []),
        ([], [FlushLog(Offset(0))]),
        ([TimePassed()], [FlushLog(Offset(0))]),
        ([], []),
    ):
        step = cluster.step(1)
        step.events, step.actions = list(events), list(actions)
        checker.after_step(step)
    assert (at_time.runs, at_flushes.runs, at_both.runs) == (2, 2, 3)


def test_what_is_about_brokers_is_run_once_there_are_some() -> None:
    cluster = real_node()
    kind = stand_in(set(), is_about_brokers=True)
    checker = Checker(cluster, [kind])
    checker.after_step(cluster.step(1))
    assert kind.runs == 0
    cluster.brokers = [cast(Any, object())]
    checker.after_step(cluster.step(1))
    assert kind.runs == 1


def test_the_checker_runs_all_of_them_at_the_end() -> None:
    checker = Checker(real_node())
    checker.after_step(real_node().step(1))
    checker.at_end()


def test_the_checker_says_what_is_violated() -> None:
    cluster = real_node()
    checker = Checker(cluster)
    checker.after_step(cluster.disk_holds(1, *batches(1, 1)))
    with pytest.raises(Violation, match=r"^logs match \(3\): the disk of node 1 holds another batch at offset 1 of"):
        checker.after_step(cluster.disk_holds(1, *batches(1, 1)[:1], data_batch(1, 1, size=21)))
