"""Each request is answered once at most."""

from __future__ import annotations

from kraftlog.sim.quorum.invariants.one_answer import OneAnswer
from raft.core.actions import Action, Reply
from raft.core.events import Event, RequestReceived
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, violates
from tests.raft.core.builders import fetch, fetch_response

ASKED: list[Event] = [RequestReceived(7, fetch(2, 1))]
ANSWERED: list[Action] = [Reply(7, fetch_response(1, 1))]


def test_one_answer_now_or_later_or_none_is_fine() -> None:
    cluster = Cluster()
    invariant = OneAnswer(cluster)
    invariant.after_step(cluster.step(1, events=ASKED, actions=ANSWERED))
    invariant.after_step(cluster.step(2, events=ASKED))
    invariant.after_step(cluster.step(2, actions=ANSWERED))
    invariant.after_step(cluster.step(3, events=ASKED))


def test_a_second_answer_is_not() -> None:
    cluster = Cluster()
    invariant = OneAnswer(cluster)
    invariant.after_step(cluster.step(1, events=ASKED, actions=ANSWERED))
    with violates(invariant):
        invariant.after_step(cluster.step(1, actions=ANSWERED))


def test_an_answer_to_what_another_process_was_asked_is_not() -> None:
    cluster = Cluster()
    invariant = OneAnswer(cluster)
    invariant.after_step(cluster.step(1, events=ASKED))
    cluster.start(1)
    with violates(invariant):
        invariant.after_step(cluster.step(1, actions=ANSWERED))
