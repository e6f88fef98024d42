"""Every invariant is in the catalogue, says what it is, and is run."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import pytest

import sim.invariants
from raft.core.actions import PersistElectionState, Reply
from raft.core.events import RequestReceived
from sim.invariants.catalogue import ALL, Checker
from sim.invariants.committed_immutable import CommittedImmutable
from sim.invariants.invariant import Invariant, Violation
from tests.raft.core.builders import election_state, fetch, replica, vote, vote_response
from tests.raft.storage.builders import data_batch
from tests.sim.invariants.builders import Cluster, batches, send


def modules() -> list[str]:
    return [module.name for module in pkgutil.iter_modules(sim.invariants.__path__)]


def test_every_invariant_of_the_package_is_in_it_once() -> None:
    for name in modules():
        importlib.import_module(f"sim.invariants.{name}")
    assert sorted(kind.__name__ for kind in ALL) == sorted(kind.__name__ for kind in Invariant.__subclasses__())
    assert len({kind.number for kind in ALL}) == len({kind.title for kind in ALL}) == len(ALL)


def test_who_keeps_the_committed_log_runs_first() -> None:
    assert ALL[0] is CommittedImmutable


@pytest.mark.parametrize("kind", ALL)
def test_each_says_what_it_holds_and_from_where(kind: type[Invariant]) -> None:
    assert kind.title and kind.source and kind.number > 0
    assert kind.__doc__ and kind.__doc__ != Invariant.__doc__


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


def test_the_checker_runs_and_counts_all() -> None:
    cluster = real_node()
    checker = Checker(cluster)
    for _ in range(3):
        checker.after_step(cluster.step(1))
    checker.at_end()
    assert checker.checks == 3 * len(ALL)


def test_the_checker_says_what_is_violated() -> None:
    cluster = real_node()
    checker = Checker(cluster)
    checker.after_step(cluster.disk_holds(1, *batches(1, 1)))
    with pytest.raises(Violation, match=r"^logs match \(3\): the disk of node 1 holds another batch at offset 1 of"):
        checker.after_step(cluster.disk_holds(1, *batches(1, 1)[:1], data_batch(1, 1, size=21)))
