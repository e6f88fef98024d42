"""Whole conversations of a quorum, without network and in virtual time."""

from __future__ import annotations

import pytest

from kraftbase.types import Epoch
from raft.core.messages import BeginQuorumEpochRequest, EndQuorumEpochRequest, VoteRequest
from raft.core.states import Role
from tests.raft.core.builders import election_state, key
from tests.raft.core.cluster import Cluster

FETCH_TIMEOUT_MS = 2_000


def others(cluster: Cluster, node_id: int) -> list[int]:
    return [other for other in cluster.servers if other != node_id]


def agrees(cluster: Cluster, leader: int) -> bool:
    """Whether every running replica follows `leader`."""
    epoch = cluster.replica(leader).leader_and_epoch.epoch
    return all(cluster.replica(server.node_id).leader_and_epoch == (leader, epoch) for server in cluster.running())


def commits(cluster: Cluster, leader: int, among: list[int] | None = None) -> None:
    """Append to `leader` and advance the time until it is acknowledged, and all of `among` know it as committed."""
    append_id = cluster.append(leader)
    cluster.run_until(lambda: append_id in cluster.safety.completed, 2_000)
    end_offset = cluster.replica(leader).high_watermark
    members = among if among is not None else list(cluster.servers)
    cluster.run_until(lambda: all(cluster.replica(member).high_watermark == end_offset for member in members), 2_000)


# --- elections ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("voter_count", [1, 2, 3, 5])
def test_a_new_quorum_elects_a_leader_that_all_follow_and_that_commits(voter_count: int) -> None:
    cluster = Cluster(voter_count)
    leader = cluster.elect()
    cluster.run_until(lambda: agrees(cluster, leader), 1_000)
    assert list(cluster.safety.leaders) == [1]
    commits(cluster, leader)


def test_the_first_election_is_pre_vote_then_vote_then_announcement() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    requests = [send.request for sender, send in cluster.sent if sender == leader]
    kinds = [(request.pre_vote, request.replica_epoch) for request in requests if isinstance(request, VoteRequest)]
    assert kinds == [(True, 0), (True, 0), (False, 1), (False, 1)]
    assert sum(isinstance(request, BeginQuorumEpochRequest) for request in requests) == 2


def test_a_steady_quorum_holds_no_elections() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    cluster.run(1_000)
    cluster.sent.clear()
    cluster.run(60_000)
    assert (cluster.leader(), list(cluster.safety.leaders)) == (leader, [1])
    assert not any(isinstance(send.request, VoteRequest) for _, send in cluster.sent)


def test_when_the_leader_crashes_another_takes_over_with_all_that_was_committed() -> None:
    cluster = Cluster(3)
    old = cluster.elect()
    for _ in range(5):
        commits(cluster, old)
    cluster.crash(old)
    new = cluster.elect()
    assert new != old
    commits(cluster, new, others(cluster, old))
    cluster.restart(old)
    cluster.run_until(lambda: agrees(cluster, new), 5_000)
    commits(cluster, new)


def test_without_a_majority_nobody_leads_and_with_one_again_somebody_does() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    first, second = others(cluster, leader)
    cluster.crash(leader)
    cluster.crash(first)
    cluster.run(20_000)
    assert cluster.leader() is None
    cluster.restart(first)
    assert cluster.elect() in (first, second)


def test_a_candidate_whose_log_is_behind_is_not_elected() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    behind, up_to_date = others(cluster, leader)
    cluster.crash(behind)
    commits(cluster, leader, [leader, up_to_date])
    cluster.crash(leader)
    cluster.restart(behind)
    assert cluster.elect() == up_to_date


def test_a_sole_voter_that_restarts_leads_the_next_epoch_at_once() -> None:
    cluster = Cluster(1)
    commits(cluster, cluster.elect())
    cluster.crash(1)
    cluster.restart(1)
    assert cluster.leader() == 1
    assert cluster.servers[1].disk.election_state == election_state(2, leader_id=1, voted_key=key(1))
    commits(cluster, 1)


# --- partitions ---------------------------------------------------------------------------------------------------


def test_a_leader_that_is_cut_off_resigns_and_steps_down_when_it_hears_of_the_next() -> None:
    cluster = Cluster(3)
    old = cluster.elect()
    commits(cluster, old)
    cluster.isolate(old)
    lost = cluster.append(old)
    cluster.run_until(lambda: not cluster.replica(old).is_leader, FETCH_TIMEOUT_MS * 3 // 2 + 1_000)
    assert cluster.replica(old).role is Role.RESIGNED
    assert [failed.append_id for failed in cluster.failed] == [lost]
    new = cluster.elect()
    assert new != old
    commits(cluster, new, others(cluster, old))
    cluster.heal()
    cluster.run_until(lambda: agrees(cluster, new), 5_000)
    commits(cluster, new)
    assert lost not in cluster.safety.completed


def test_what_a_cut_off_leader_wrote_alone_is_truncated_when_it_returns() -> None:
    cluster = Cluster(3)
    old = cluster.elect()
    commits(cluster, old)
    cluster.isolate(old)
    for _ in range(3):
        cluster.append(old)
    cluster.run(100)
    ended_at = cluster.replica(old).log_end_offset
    cluster.run_until(lambda: cluster.leader() not in (None, old))
    new = cluster.elect()
    cluster.heal()
    commits(cluster, new)
    assert cluster.servers[old].disk.log == cluster.servers[new].disk.log
    assert cluster.replica(old).log_end_offset < ended_at + 2


def test_pre_vote_a_follower_that_was_cut_off_does_not_disturb_when_it_returns() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    commits(cluster, leader)
    lonely = others(cluster, leader)[0]
    cluster.isolate(lonely)
    cluster.run(60_000)
    assert cluster.replica(lonely).leader_and_epoch.epoch == 1, "it asked for pre-votes only"
    commits(cluster, leader, [node_id for node_id in cluster.servers if node_id != lonely])
    cluster.heal()
    commits(cluster, leader)
    cluster.run(10_000)
    assert (cluster.leader(), list(cluster.safety.leaders)) == (leader, [1])


def test_pre_vote_a_follower_that_reaches_all_but_the_leader_does_not_disturb() -> None:
    cluster = Cluster(3)
    leader = cluster.elect()
    commits(cluster, leader)
    cluster.cut(leader, others(cluster, leader)[0])
    cluster.run(60_000)
    assert (cluster.leader(), list(cluster.safety.leaders)) == (leader, [1])


def test_the_larger_side_of_a_split_goes_on() -> None:
    cluster = Cluster(5)
    old = cluster.elect()
    commits(cluster, old)
    small = {old, others(cluster, old)[0]}
    large = set(cluster.servers) - small
    for one in small:
        for other in large:
            cluster.cut(one, other)
    cluster.run_until(lambda: cluster.leader() in large)
    new = cluster.elect()
    commits(cluster, new, sorted(large))
    cluster.heal()
    commits(cluster, new)
    cluster.run_until(lambda: agrees(cluster, new), 5_000)


# --- handing over -------------------------------------------------------------------------------------------------


def test_a_graceful_shutdown_hands_over_to_who_is_most_caught_up_well_before_any_timeout() -> None:
    cluster = Cluster(5)
    old = cluster.elect()
    commits(cluster, old)
    *behind, best, next_best = others(cluster, old)
    for node_id in behind:
        cluster.crash(node_id)
    commits(cluster, old, [old, best, next_best])
    for node_id in behind:
        cluster.restart(node_id)
    epoch = cluster.replica(old).leader_and_epoch.epoch
    started_ms = cluster.now_ms
    cluster.shut_down(old)
    request = next(send.request for _, send in cluster.sent if isinstance(send.request, EndQuorumEpochRequest))
    assert request.preferred_candidates[:2] == (key(best), key(next_best))
    cluster.run_until(lambda: cluster.replica(old).is_shutdown_complete, 200)
    cluster.run_until(lambda: cluster.leader() == best, 200)
    assert cluster.replica(best).leader_and_epoch.epoch == Epoch(epoch + 1)
    assert cluster.now_ms - started_ms < FETCH_TIMEOUT_MS // 2


def test_a_leader_that_restarts_makes_way_for_another_at_once() -> None:
    cluster = Cluster(3)
    old = cluster.elect()
    commits(cluster, old)
    cluster.crash(old)
    cluster.restart(old)
    assert cluster.replica(old).role is Role.RESIGNED
    cluster.run_until(lambda: cluster.leader() is not None, FETCH_TIMEOUT_MS // 2)
    assert cluster.leader() != old


# --- observers ----------------------------------------------------------------------------------------------------


def test_observers_discover_the_leader_and_follow_every_change_of_it() -> None:
    cluster = Cluster(3, 2)
    old = cluster.elect()
    commits(cluster, old)
    cluster.crash(old)
    new = cluster.elect()
    commits(cluster, new, others(cluster, old))
    assert {cluster.replica(observer).leader_and_epoch.leader_id for observer in (11, 12)} == {new}


def test_observers_do_not_keep_a_leader_in_office_nor_commit() -> None:
    cluster = Cluster(3, 3)
    leader = cluster.elect()
    commits(cluster, leader)
    for voter in (1, 2, 3):
        if voter != leader:
            cluster.crash(voter)
    append_id = cluster.append(leader)
    cluster.run_until(lambda: not cluster.replica(leader).is_leader, FETCH_TIMEOUT_MS * 2)
    assert append_id not in cluster.safety.completed
