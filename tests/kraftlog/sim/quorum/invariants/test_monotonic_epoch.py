"""Epochs only grow, and are on the disk before they are sent."""

from __future__ import annotations

from kraftlog.sim.quorum.invariants.monotonic_epoch import MonotonicEpoch
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, violates
from tests.raft.core.builders import election_state, vote, vote_response


def test_epochs_that_grow_and_answers_of_a_durable_epoch_are_fine() -> None:
    cluster = Cluster()
    invariant = MonotonicEpoch(cluster)
    for epoch in (1, 1, 3):
        cluster.become(1, epoch=epoch)
        cluster.nodes[1].durable_election = election_state(epoch)
        answer = (vote(2, epoch), vote_response(epoch, granted=False))
        invariant.after_step(cluster.step(1, disk_changed=True, replies=[answer]))


def test_a_new_process_may_be_in_an_older_epoch_than_the_memory_of_the_one_before() -> None:
    cluster = Cluster()
    invariant = MonotonicEpoch(cluster)
    cluster.nodes[1].durable_election = election_state(2)
    cluster.become(1, epoch=3)  # killed before it was on the disk
    invariant.after_step(cluster.step(1))
    invariant.after_step(cluster.start(1, epoch=2))


def test_memory_must_not_go_back() -> None:
    cluster = Cluster()
    invariant = MonotonicEpoch(cluster)
    cluster.become(1, epoch=3)
    invariant.after_step(cluster.step(1))
    cluster.become(1, epoch=2)
    with violates(invariant):
        invariant.after_step(cluster.step(1))


def test_a_disk_must_not_go_back_whoever_runs() -> None:
    cluster = Cluster()
    invariant = MonotonicEpoch(cluster)
    cluster.nodes[1].durable_election = election_state(3)
    invariant.after_step(cluster.start(1, epoch=3))
    cluster.nodes[1].durable_election = election_state(2)
    with violates(invariant):
        invariant.after_step(cluster.start(1, epoch=2))


def test_an_answer_of_an_epoch_that_is_not_on_the_disk_must_not_leave() -> None:
    cluster = Cluster()
    invariant = MonotonicEpoch(cluster)
    cluster.become(1, epoch=3)
    cluster.nodes[1].durable_election = election_state(2)
    with violates(invariant):
        invariant.after_step(cluster.step(1, replies=[(vote(2, 3), vote_response(3, granted=False))]))


def test_what_a_killed_process_answered_is_judged_as_well() -> None:
    cluster = Cluster()
    invariant = MonotonicEpoch(cluster)
    cluster.nodes[1].durable_election = election_state(2)
    for epoch in (1, 2):
        step = cluster.kill(1)
        step.replies = [(vote(2, epoch), vote_response(epoch, granted=False))]
        invariant.after_step(step)
    step.replies = [(vote(2, 3), vote_response(3, granted=False))]
    with violates(invariant):
        invariant.after_step(step)
