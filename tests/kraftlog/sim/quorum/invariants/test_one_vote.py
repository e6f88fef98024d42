"""One vote an epoch, remembered before it is sent."""

from __future__ import annotations

from kraftlog.sim.quorum.invariants.one_vote import OneVote
from raft.core.messages import VoteRequest, VoteResponse
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, violates
from tests.raft.core.builders import election_state, fetch, fetch_response, key, vote, vote_response


def grant(candidate_id: int, epoch: int, *, pre_vote: bool = False) -> tuple[VoteRequest, VoteResponse]:
    return (
        vote(candidate_id, epoch, pre_vote=pre_vote),
        vote_response(epoch, granted=True, pre_vote=pre_vote),
    )


def test_a_vote_that_is_on_the_disk_may_be_given_again() -> None:
    cluster = Cluster()
    invariant = OneVote(cluster)
    cluster.nodes[1].durable_election = election_state(2, voted_key=key(2))
    invariant.after_step(cluster.step(1, disk_changed=True, replies=[grant(2, 2)]))
    invariant.after_step(cluster.step(1, replies=[grant(2, 2)]))
    cluster.nodes[1].durable_election = election_state(3, voted_key=key(3))
    invariant.after_step(cluster.step(1, disk_changed=True, replies=[grant(3, 3)]))


def test_a_vote_may_leave_in_the_step_in_which_the_disk_moves_on() -> None:
    cluster = Cluster()
    invariant = OneVote(cluster)
    cluster.nodes[1].durable_election = election_state(3)
    invariant.after_step(cluster.step(1, disk_changed=True, replies=[grant(2, 2)]))


def test_pre_votes_are_given_to_anybody() -> None:
    cluster = Cluster()
    invariant = OneVote(cluster)
    for candidate_id in (2, 3):
        invariant.after_step(cluster.step(1, replies=[grant(candidate_id, 1, pre_vote=True)]))


def test_a_voter_with_a_new_directory_is_another_one() -> None:
    cluster = Cluster()
    invariant = OneVote(cluster)
    cluster.nodes[1].durable_election = election_state(2, voted_key=key(2))
    invariant.after_step(cluster.step(1, disk_changed=True))
    cluster.nodes[1].key = key(77)._replace(node_id=key(1).node_id)
    cluster.nodes[1].durable_election = election_state(2, voted_key=key(3))
    invariant.after_step(cluster.step(1, disk_changed=True))


def test_two_votes_in_one_epoch_are_wrong_on_the_disk() -> None:
    cluster = Cluster()
    invariant = OneVote(cluster)
    cluster.nodes[1].durable_election = election_state(2, voted_key=key(2))
    invariant.after_step(cluster.step(1, disk_changed=True))
    cluster.nodes[1].durable_election = election_state(2, voted_key=key(3))
    with violates(invariant):
        invariant.after_step(cluster.step(1, disk_changed=True))


def test_two_votes_in_one_epoch_are_wrong_after_the_disk_moved_on() -> None:
    cluster = Cluster()
    invariant = OneVote(cluster)
    cluster.nodes[1].durable_election = election_state(2, voted_key=key(2))
    invariant.after_step(cluster.step(1, disk_changed=True))
    cluster.nodes[1].durable_election = election_state(3)
    with violates(invariant):
        invariant.after_step(cluster.step(1, disk_changed=True, replies=[grant(3, 2)]))


def test_a_vote_that_is_not_on_the_disk_must_not_leave_even_of_a_process_that_died() -> None:
    cluster = Cluster()
    invariant = OneVote(cluster)
    step = cluster.kill(1)
    step.replies = [grant(2, 2)]
    with violates(invariant):
        invariant.after_step(step)


def test_other_answers_say_nothing_of_votes() -> None:
    cluster = Cluster()
    OneVote(cluster).after_step(cluster.step(1, replies=[(fetch(2, 2), fetch_response(1, 2))]))
