"""A voter in a new directory: it founds a quorum with other empty voters, or waits until it has everything (RF-112)."""

from __future__ import annotations

import pytest

from kraftbase.types import Epoch
from raft.core.actions import EndFounding, EndRecovering, Send
from raft.core.messages import FetchRequest, VoteRequest
from raft.core.states import Role
from raft.core.types import UNKNOWN_UNTIL_OFFSET, RecoveringLog
from tests.effort import some
from tests.raft.core.builders import (
    Harness,
    batch,
    begin_quorum_epoch,
    fetch_response,
    of_type,
    replica,
    vote,
    vote_response,
)
from tests.raft.core.cluster import Cluster
from tests.raft.core.fetching import fetch_request, the_fetch

FIRST = RecoveringLog(UNKNOWN_UNTIL_OFFSET, Epoch(0), "new", has_forgotten=True, may_found=True)
REPLACEMENT = FIRST._replace(may_found=False)


def new(voter_count: int = 3, mark: RecoveringLog = FIRST, **settings: object) -> Harness:
    return replica(voter_count=voter_count, recovering=mark, **settings)  # type: ignore[arg-type]


# --- votes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pre_vote", [True, False])
def test_it_votes_for_a_candidate_with_an_empty_log_only(pre_vote: bool) -> None:
    assert not new().ask(vote(2, 4, last_epoch=3, last_offset=9, pre_vote=pre_vote)).vote_granted
    assert new().ask(vote(2, 4, pre_vote=pre_vote)).vote_granted


@pytest.mark.parametrize("pre_vote", [True, False])
def test_a_replacement_votes_for_nobody(pre_vote: bool) -> None:
    assert not new(mark=REPLACEMENT).ask(vote(2, 4, pre_vote=pre_vote)).vote_granted


def test_a_vote_founds_and_a_pre_vote_does_not() -> None:
    harness = new()
    harness.ask(vote(2, 1, pre_vote=True))
    assert harness.replica.is_recovering
    harness.ask(vote(2, 1))
    assert not harness.replica.is_recovering
    assert harness.ask(vote(3, 2, last_epoch=1, last_offset=1)).vote_granted


def test_a_candidate_has_founded_before_it_asks() -> None:
    harness = new().make_candidate()
    assert not harness.replica.is_recovering


def test_with_a_log_it_is_not_elected() -> None:
    harness = new(log=[(1, 3)])
    for _ in range(40):
        harness.advance(500)
        assert harness.role is Role.UNATTACHED


def test_a_replacement_is_not_elected() -> None:
    harness = new(mark=REPLACEMENT)
    for _ in range(40):
        harness.advance(500)
        assert harness.role is Role.UNATTACHED


# --- joining ----------------------------------------------------------------------------------------------------------


def level_with(harness: Harness, leader_id: int, epoch: int) -> Send:
    """Make it level with the leader's log of one record; return its requests to the third voter."""
    harness.sent.clear()
    sent = harness.make_follower(leader_id, epoch).sent
    (first,) = [send for send in sent if isinstance(send.request, FetchRequest)]
    (question,) = [send for send in sent if isinstance(send.request, VoteRequest) and send.request.pre_vote]
    harness.answer(first, fetch_response(leader_id, epoch, batch(0, 1, epoch), high_watermark=1))
    harness.flush()
    harness.answer(the_fetch(harness), fetch_response(leader_id, epoch, high_watermark=1))
    return question


@pytest.mark.parametrize("mark", [FIRST, REPLACEMENT])
def test_it_joins_when_it_is_level_and_has_heard_of_the_others(mark: RecoveringLog) -> None:
    harness = new(mark=mark)
    question = level_with(harness, 2, 5)
    assert harness.replica.is_recovering
    actions = harness.answer(question, vote_response(5, granted=False, pre_vote=True, leader_id=2))
    assert of_type(EndRecovering, actions)
    assert not harness.replica.is_recovering


def test_a_leader_that_is_over_is_not_enough() -> None:
    """Voter 1's old disk had voted in epoch 6; 2 still leads 5."""
    harness = new()
    question = level_with(harness, 2, 5)
    harness.answer(question, vote_response(6, granted=False, pre_vote=True, leader_id=3))
    assert harness.replica.is_recovering
    assert harness.epoch == 6


def test_who_has_followed_a_leader_founds_no_more() -> None:
    harness = new()
    assert of_type(EndFounding, harness.deliver(begin_quorum_epoch(2, 5)))
    assert not harness.ask(vote(3, 6)).vote_granted
    for _ in range(40):
        harness.advance(500)
        assert harness.role not in (Role.PROSPECTIVE, Role.CANDIDATE)


def test_its_fetches_say_that_it_does_not_count() -> None:
    harness = new()
    harness.sent.clear()
    harness.make_follower(2, 5)
    assert fetch_request(the_fetch(harness)).recovering


def test_an_observer_has_nothing_to_forget() -> None:
    assert not replica(observer=True, recovering=FIRST).replica.is_recovering


# --- clusters ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("voter_count", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("seed", some(range(4), 3))
def test_a_new_quorum_elects_and_everybody_joins(voter_count: int, seed: int) -> None:
    cluster = Cluster(voter_count, seed=seed, new_directory=FIRST)
    cluster.elect()
    cluster.append(cluster.elect())
    cluster.run(8_000)
    assert all(not cluster.replica(node_id).is_recovering for node_id in cluster.servers)


@pytest.mark.parametrize("seed", some(range(10), part=3))
def test_a_new_quorum_elects_however_its_first_leaders_crash(seed: int) -> None:
    cluster = Cluster(3, seed=seed, new_directory=FIRST)
    for round_number in range(12):
        cluster.run(cluster.random.randrange(1, 2_500))
        victim = cluster.random.choice(list(cluster.servers))
        cluster.crash(victim)
        if round_number % 2:
            cluster.run(cluster.random.randrange(1, 500))
        cluster.restart(victim)
    cluster.elect()


@pytest.mark.parametrize(
    ("seed", "mark"),
    [
        (0, REPLACEMENT),
        *(
            pytest.param(seed, mark, marks=pytest.mark.slow)
            for seed, mark in [(0, FIRST), (1, FIRST), (1, REPLACEMENT)]
        ),
    ],
)
def test_three_wiped_two_lagging_one_down_elect_nobody_and_lose_nothing(seed: int, mark: RecoveringLog) -> None:
    """Of six voters 1 to 4 hold the acknowledged records."""
    cluster = Cluster(6, seed=seed)
    first = cluster.elect()
    lagging = [node_id for node_id in cluster.servers if node_id != first][:2]
    cluster.run(2_000)
    for node_id in lagging:
        cluster.crash(node_id)
    cluster.append(first)
    cluster.run(2_000)
    committed = cluster.replica(first).high_watermark
    assert committed == cluster.replica(first).log_end_offset > cluster.servers[lagging[0]].disk.end_offset
    holding = [node_id for node_id in cluster.servers if node_id not in lagging]
    cluster.crash(first)
    for node_id in holding:
        if node_id != first:
            cluster.wipe(node_id, mark)
    for node_id in cluster.servers:
        if node_id != first:
            cluster.restart(node_id)
    cluster.run(8_000)
    assert cluster.leader() is None
    cluster.restart(first)
    cluster.run(8_000)
    if cluster.leader() is not None:
        assert cluster.replica(cluster.elect()).log_end_offset >= committed


@pytest.mark.parametrize("mark", [FIRST, REPLACEMENT])
@pytest.mark.parametrize("seed", some(range(4), part=3))
def test_one_wiped_voter_comes_back_by_itself(seed: int, mark: RecoveringLog) -> None:
    cluster = Cluster(3, seed=seed)
    leader = cluster.elect()
    cluster.append(leader)
    cluster.run(2_000)
    wiped = next(node_id for node_id in cluster.servers if node_id != leader)
    cluster.wipe(wiped, mark)
    cluster.restart(wiped)
    cluster.run(10_000)
    assert not cluster.replica(wiped).is_recovering
    other = next(node_id for node_id in cluster.servers if node_id not in (leader, wiped))
    cluster.crash(other)
    cluster.append(cluster.elect())
    cluster.run(3_000)
