"""Requests that no correct replica sends. Each must be refused and change nothing."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from kraftbase.types import Epoch, NodeId, Offset
from kraftlog.sim.quorum.faults.fault import fault, running
from kraftlog.sim.quorum.node.machine import Machine
from kraftlog.sim.quorum.world import World
from raft.core.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    Request,
    VoteRequest,
)
from raft.core.states import Role
from raft.core.types import OffsetAndEpoch, ReplicaKey

FAR_EPOCHS = (Epoch(-1), Epoch(2**31 - 1), Epoch(2_000_000_000))


def _requests(cluster_id: str | None, epoch: Epoch, replica_key: ReplicaKey, offset: int) -> list[Request]:
    return [
        VoteRequest(
            cluster_id=cluster_id,
            voter_key=None,
            replica_key=replica_key,
            replica_epoch=epoch,
            last_epoch=epoch,
            last_offset=Offset(offset),
            pre_vote=False,
        ),
        BeginQuorumEpochRequest(
            cluster_id=cluster_id,
            voter_key=None,
            leader_id=replica_key.node_id,
            leader_epoch=epoch,
            leader_endpoint=None,
        ),
        EndQuorumEpochRequest(
            cluster_id=cluster_id,
            leader_id=replica_key.node_id,
            leader_epoch=epoch,
            preferred_candidates=(),
            leader_endpoint=None,
        ),
        FetchRequest(
            cluster_id=cluster_id,
            replica_key=replica_key,
            current_leader_epoch=epoch,
            fetch_offset=Offset(offset),
            last_fetched_epoch=Epoch(0),
            max_wait_ms=0,
            max_bytes=0,
            high_watermark=Offset(-1),
        ),
        FetchSnapshotRequest(
            cluster_id=cluster_id,
            replica_key=replica_key,
            current_leader_epoch=epoch,
            snapshot_id=OffsetAndEpoch(epoch=Epoch(0), offset=Offset(offset)),
            position=0,
            max_bytes=-1,
        ),
    ]


def _send(world: World, random: Random, machine: Machine, requests: list[Request]) -> str:
    for request in requests:
        world.messages.send_foreign(machine, request)
    return str(machine.node_id)


@fault("input: another cluster's requests")
def send_foreign(world: World, random: Random) -> str | None:
    """Send requests of another cluster's node, which is configured with the wrong address."""
    machines = running(world)
    if not machines:
        return None
    machine = random.choice(machines)
    voter = ReplicaKey(NodeId(random.choice(world.voter_ids)))
    return _send(world, random, machine, _requests("AAAAAAAAAAAAAAAAAAAAAA", Epoch(7), voter, 10**6))


@fault("input: a snapshot is requested")
def want_snapshot(world: World, random: Random) -> str | None:
    """Request from the leader a snapshot that does not exist, and bytes after the end of each that exists."""
    leader = world.leader()
    if leader is None or leader.view.replica is None:
        return None
    epoch = leader.view.replica.epoch
    request = FetchSnapshotRequest(
        cluster_id=world.cluster_id,
        replica_key=None,
        current_leader_epoch=epoch,
        snapshot_id=OffsetAndEpoch(epoch=Epoch(1), offset=Offset(5)),
        position=0,
        max_bytes=1_000,
    )
    there = [replace(request, snapshot_id=found, position=10**9) for found in leader.view.durable_snapshots.found]
    return _send(world, random, leader, [request, *there])


@fault("input: an append that is too large")
def append_too_much(world: World, random: Random) -> str | None:
    """Append more than a batch may hold, as a client of the leader."""
    leader = world.leader()
    if leader is None or leader.process is None:
        return None
    process = leader.process
    process.run("oversized append", process.append_too_much)
    return str(leader.node_id)


@fault("input: malformed requests")
def send_malformed(world: World, random: Random) -> str | None:
    """Send requests with impossible epochs and offsets."""
    machines = running(world)
    if not machines:
        return None
    machine = random.choice(machines)
    unknown = ReplicaKey(NodeId(-5))
    requests = [*_requests(None, random.choice(FAR_EPOCHS), unknown, -7)]
    return _send(world, random, machine, requests)


@fault("input: a leader's answer lacks what is committed")
def lack_committed(world: World, random: Random) -> str | None:
    """Make the next answer to a follower's fetch claim a log divergence below the follower's high watermark.

    Or the answer offers a snapshot that ends there. The follower must truncate nothing, continue, and follow that
    leader again.
    """
    followers = [
        machine
        for machine in running(world)
        if machine.view.replica is not None
        and machine.view.replica.role is Role.FOLLOWER
        and machine.view.replica.high_watermark > machine.view.replica.log_start.offset
    ]
    if not followers:
        return None
    machine = random.choice(followers)
    world.messages.answers_to_falsify[machine.node_id] = random.random()
    return str(machine.node_id)
