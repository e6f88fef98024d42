"""Quorums under faults drawn at random: nothing that must hold is ever broken, and they recover when the faults end.

`Safety` checks at every step: an epoch has one leader, no voter votes twice, logs match, committed records are the
same on every replica and are never lost, a high watermark only grows. A failing seed gives the same run again.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from raft.core.actions import Action, Reply
from raft.core.messages import VoteResponse
from tests.effort import some
from tests.raft.core.cluster import Cluster

FAULTS = 60


def crash(cluster: Cluster, random: Random) -> None:
    cluster.crash(random.choice(list(cluster.servers)))


def crash_between_two_actions(cluster: Cluster, random: Random) -> None:
    running = cluster.running()
    if running:
        left = iter(range(random.randrange(8)))
        random.choice(running).crash_after = lambda _: next(left, None) is None


def crash_after_a_vote(cluster: Cluster, random: Random) -> None:
    """The next voter that grants a vote crashes after sending it, and restarts from its disk."""
    for server in cluster.running():
        server.crash_after = grants_a_vote


def grants_a_vote(action: Action) -> bool:
    match action:
        case Reply(response=VoteResponse(vote_granted=True, pre_vote=False)):
            return True
        case _:
            return False


def restart_all_at_once(cluster: Cluster, random: Random) -> None:
    """No voter is down for long: a restarted one must remember its vote in an election that is still running."""
    for server in cluster.running():
        cluster.crash(server.node_id)
        cluster.restart(server.node_id)


def crash_the_leader(cluster: Cluster, random: Random) -> None:
    leader = cluster.leader()
    if leader is not None:
        cluster.crash(leader)


def restart_one(cluster: Cluster, random: Random) -> None:
    stopped = [node_id for node_id, server in cluster.servers.items() if server.replica is None]
    if stopped:
        cluster.restart(random.choice(stopped))


def cut_one_link(cluster: Cluster, random: Random) -> None:
    cluster.cut(*random.sample(list(cluster.servers), 2))


def isolate_one(cluster: Cluster, random: Random) -> None:
    cluster.isolate(random.choice(list(cluster.servers)))


def heal(cluster: Cluster, random: Random) -> None:
    cluster.heal()


def lose_messages(cluster: Cluster, random: Random) -> None:
    cluster.drop_rate = random.choice([0.0, 0.05, 0.3])


def slow_network(cluster: Cluster, random: Random) -> None:
    cluster.delay_ms = random.choice([(1, 4), (1, 40), (50, 800)])


def slow_disks(cluster: Cluster, random: Random) -> None:
    cluster.flush_ms = random.choice([(1, 4), (20, 60), (100, 1_500)])


HAPPENINGS: list[tuple[Callable[[Cluster, Random], None], int]] = [
    (crash, 2),
    (crash_between_two_actions, 3),
    (crash_after_a_vote, 2),
    (crash_the_leader, 1),
    (restart_all_at_once, 2),
    (restart_one, 6),
    (cut_one_link, 3),
    (isolate_one, 1),
    (heal, 4),
    (lose_messages, 2),
    (slow_network, 2),
    (slow_disks, 2),
]
"""The faults, and how often each happens relative to the others."""


def append_somewhere(cluster: Cluster, random: Random) -> None:
    """Clients append to every replica that believes that it leads, even if it was deposed."""
    for server in cluster.running():
        if server.replica is not None and server.replica.is_leader:
            for _ in range(random.randrange(4)):
                if server.replica is not None:
                    cluster.append(server.node_id)


def end_all_faults(cluster: Cluster) -> None:
    cluster.heal()
    cluster.drop_rate, cluster.delay_ms, cluster.flush_ms = 0.0, (1, 4), (1, 4)
    for node_id, server in cluster.servers.items():
        server.crash_after = None
        if server.replica is None:
            cluster.restart(node_id)


def recover(cluster: Cluster) -> None:
    """Without faults the quorum commits again, every replica knows it, logs are equal, nothing promised is lost."""
    end_all_faults(cluster)
    cluster.run(10_000)
    append_id = cluster.append(cluster.elect())

    def has_recovered() -> bool:
        end_offset = cluster.safety.committed_end_offset
        return append_id in cluster.safety.completed and all(
            cluster.replica(node_id).high_watermark == end_offset for node_id in cluster.servers
        )

    cluster.run_until(has_recovered, 5_000)
    cluster.safety.holds_at_the_end()
    assert len({tuple(log) for log in cluster.logs()}) == 1


@pytest.mark.parametrize("seed", some(range(40), part=6))
def test_safety_holds_under_faults_and_the_quorum_recovers(seed: int) -> None:
    random = Random(seed)
    cluster = Cluster(
        random.choice([2, 3, 3, 4, 5]),
        random.choice([0, 1]),
        seed=seed,
        election_timeout_ms=random.choice([50, 1_000]),  # the shorter, the more candidates at once
        fetch_max_bytes=60,
    )
    happenings, weights = zip(*HAPPENINGS, strict=True)
    for happen in random.choices(happenings, weights, k=FAULTS):
        happen(cluster, random)
        cluster.run(random.randrange(600))
        append_somewhere(cluster, random)
        cluster.run(random.randrange(600))
    recover(cluster)


@pytest.mark.parametrize("seed", some(range(5), part=2))
def test_nobody_votes_twice_though_whoever_votes_crashes_at_once(seed: int) -> None:
    cluster = Cluster(5, seed=seed, election_timeout_ms=400, request_timeout_ms=200)
    cluster.delay_ms = (1, 300)  # long enough for several candidates in one epoch
    for _ in range(100):
        crash_after_a_vote(cluster, cluster.random)
        cluster.run(400)
    recover(cluster)


def test_the_same_seed_gives_the_same_run() -> None:
    def run() -> tuple[object, ...]:
        cluster = Cluster(3, 1, seed=7)
        cluster.drop_rate = 0.1
        cluster.append(cluster.elect())
        cluster.run(5_000)
        return cluster.sent, cluster.logs(), cluster.safety.leaders

    assert run() == run()
