"""What a node's admin service answers, and what publishers are told."""

from __future__ import annotations

import sqlite3
import weakref
from typing import Any

import pytest

from kraftbase.ids import id_to_text
from kraftbase.types import Offset
from kraftlog.sim.quorum.invariants.answers import LATE_US, ServiceAnswers, WatchersSeeTheLog
from kraftlog.sim.quorum.observation.node_view import AppliedState
from kraftlog.sim.quorum.observation.service import Answered, Asked, Watched
from kraftlog.sim.quorum.observation.step import Step
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, violates
from tests.raft.storage.builders import data_batch

FIRST, SECOND = bytes(15) + b"1", bytes(15) + b"2"


def step(cluster: Cluster, *happened: Asked | Answered, node_id: int = 1) -> Step:
    asked = [one for one in happened if isinstance(one, Asked)]
    answers = [one for one in happened if isinstance(one, Answered)]
    return Step(cluster.now_us, cluster.nodes[node_id], "test", asked=asked, answers=answers)


def checked(committed: int = 0) -> tuple[Cluster, ServiceAnswers]:
    cluster = Cluster()
    cluster.committed = [data_batch(offset) for offset in range(committed)]
    return cluster, ServiceAnswers(cluster)


def read(number: int, wanted: int = 0) -> Asked:
    return Asked(number, 1_000, True, Offset(wanted))


def rows(number: int, applied: int, **named: Any) -> Answered:
    return Answered(number, applied_end_offset=Offset(applied), **named)


def test_one_answer_each_is_fine_and_so_is_a_refusal() -> None:
    cluster, invariant = checked(committed=3)
    invariant.after_step(step(cluster, Asked(1, 1_000), Asked(2, 1_000)))
    invariant.after_step(step(cluster, Answered(2), Answered(1, Offset(3))))
    cluster.now_us = 10 * LATE_US
    invariant.at_end()


@pytest.mark.parametrize("before", [[], [Asked(1, 1_000), Answered(1)]])
def test_a_second_answer_and_one_that_nobody_asked_for_are_not(before: list[Any]) -> None:
    cluster, invariant = checked()
    invariant.after_step(step(cluster, *before))
    with violates(invariant):
        invariant.after_step(step(cluster, Answered(1)))


def test_what_is_not_committed_is_not_acknowledged() -> None:
    cluster, invariant = checked(committed=3)
    with violates(invariant):
        invariant.after_step(step(cluster, Asked(1, 1_000), Answered(1, Offset(4))))


def test_who_may_lose_a_majority_may_have_acknowledged_more() -> None:
    cluster, invariant = checked()
    cluster.faults_may_lose_quorum = True
    invariant.after_step(step(cluster, Asked(1, 1_000), Answered(1, Offset(4))))


def test_a_read_sees_what_was_acknowledged_here_before() -> None:
    cluster, invariant = checked(committed=3)
    invariant.after_step(step(cluster, read(1), Asked(2, 1_000), Answered(2, Offset(3))))
    invariant.after_step(step(cluster, read(3)))
    invariant.after_step(step(cluster, rows(1, 0)))  # it came before
    invariant.after_step(step(cluster, read(4), rows(4, 0), node_id=2))  # another node
    with violates(invariant):
        invariant.after_step(step(cluster, rows(3, 2)))


def test_a_new_process_has_acknowledged_nothing_yet() -> None:
    cluster, invariant = checked(committed=3)
    invariant.after_step(step(cluster, Asked(1, 1_000), Answered(1, Offset(3))))
    cluster.start(1)
    invariant.after_step(step(cluster, read(1), rows(1, 0)))


def test_a_read_sees_what_it_asked_for() -> None:
    cluster, invariant = checked()
    with violates(invariant):
        invariant.after_step(step(cluster, read(1, wanted=2), rows(1, 1)))


def test_a_state_machine_that_has_stopped_answers_no_read() -> None:
    cluster, invariant = checked()
    invariant.after_step(step(cluster, read(1), Answered(1, is_fenced=True)))
    with violates(invariant):
        invariant.after_step(step(cluster, read(2), rows(2, 5, is_fenced=True)))


def test_nobody_waits_for_ever() -> None:
    cluster, invariant = checked()
    invariant.after_step(step(cluster, Asked(1, 1_000)))
    cluster.now_us = 1_000 + LATE_US
    invariant.at_end()
    cluster.now_us += 1
    with violates(invariant):
        invariant.at_end()


@pytest.mark.parametrize("why", ["down", "started again", "paused"])
def test_who_cannot_answer_may_be_waited_for(why: str) -> None:
    cluster, invariant = checked()
    invariant.after_step(step(cluster, Asked(1, 1_000)))
    cluster.now_us = 10 * LATE_US
    if why == "down":
        cluster.kill(1)
    elif why == "started again":
        cluster.start(1)
    else:
        cluster.nodes[1].is_paused = True
    invariant.at_end()


# --- publishers -------------------------------------------------------------------------------------------------------


def watching(topics: dict[bytes, str], **named: Any) -> tuple[Cluster, WatchersSeeTheLog]:
    cluster = Cluster()
    node = cluster.nodes[1]
    node.tables = sqlite3.connect(":memory:", check_same_thread=False)
    weakref.finalize(cluster, node.tables.close)
    node.tables.execute("CREATE TABLE topics (topic_id TEXT, name TEXT)")
    node.tables.execute("INSERT INTO topics VALUES (?, ?)", (id_to_text(FIRST), "a"))
    node.applied = AppliedState(Offset(5), "digest")
    node.watched = Watched(named.pop("end_offset", Offset(5)), topics, **named)
    return cluster, WatchersSeeTheLog(cluster)


def test_a_publisher_knows_what_the_tables_have() -> None:
    cluster, invariant = watching({FIRST: "a"}, end_offset=Offset(3))
    invariant.after_step(step(cluster))
    cluster.nodes[2].watched = None
    invariant.after_step(step(cluster, node_id=2))


@pytest.mark.parametrize(
    ("topics", "named"),
    [
        ({}, {}),
        ({FIRST: "b"}, {}),
        ({SECOND: "a"}, {}),
        ({FIRST: "a", SECOND: "b"}, {}),
        ({FIRST: "a"}, {"end_offset": Offset(6)}),
        ({FIRST: "a"}, {"is_out_of_order": True}),
    ],
)
def test_and_nothing_else(topics: dict[bytes, str], named: dict[str, Any]) -> None:
    cluster, invariant = watching(topics, **named)
    with violates(invariant):
        invariant.after_step(step(cluster))
    cluster.nodes[1].has_diverged = True
    invariant.after_step(step(cluster))
