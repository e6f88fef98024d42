"""Messages of a process that is not a member of the cluster, and its answers at a member's address."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final
from uuid import UUID

from kraftbase.endpoint import Endpoint
from kraftbase.types import Epoch, NodeId, Offset
from kraftlog.sim.engine.virtual.crash import Crash
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS
from kraftlog.sim.quorum.faults.fault import any_machine, duration_us, fault, running
from kraftlog.sim.quorum.node.machine import Machine
from kraftlog.sim.quorum.world import World
from raft.core.epoch_allowance import EPOCHS_AT_ONCE_MAX
from raft.core.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    Request,
    VoteRequest,
)
from raft.core.types import ReplicaKey, StateDigest

STRANGER_ID: Final = NodeId(77)
STRANGER_ENDPOINT: Final = Endpoint("stranger", 9090)
"""The unknown process's address. It is in no configuration: a node that sends anything there violates an invariant."""

EPOCHS_AHEAD: Final = (0, 0, 1, 1, 7, EPOCHS_AT_ONCE_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """A false identity, and correct guesses about the receiver, which is the worst case."""

    cluster_id: str | None
    key: ReplicaKey
    receiver: ReplicaKey
    epoch: Epoch
    end_offset: Offset
    last_epoch: Epoch

    def requests(self, random: Random) -> list[Request]:
        """Return one request of each kind that could do harm."""
        ahead = Epoch(self.epoch + random.choice(EPOCHS_AHEAD))
        return [
            VoteRequest(
                cluster_id=self.cluster_id,
                voter_key=random.choice([None, self.receiver, self.receiver, self.key]),
                replica_key=self.key,
                replica_epoch=ahead,
                last_epoch=Epoch(max(0, ahead - 1)),
                last_offset=Offset(self.end_offset + 100),
                pre_vote=random.random() < 0.5,
            ),
            BeginQuorumEpochRequest(
                cluster_id=self.cluster_id,
                voter_key=random.choice([None, self.receiver, self.receiver, self.key]),
                leader_id=self.key.node_id,
                leader_epoch=ahead,
                leader_endpoint=STRANGER_ENDPOINT,
                leader_directory_id=self.key.directory_id,
            ),
            EndQuorumEpochRequest(
                cluster_id=self.cluster_id,
                leader_id=self.key.node_id,
                leader_epoch=ahead,
                preferred_candidates=(self.receiver,),
                leader_endpoint=STRANGER_ENDPOINT,
                leader_directory_id=self.key.directory_id,
            ),
            FetchRequest(
                cluster_id=self.cluster_id,
                replica_key=self.key,
                current_leader_epoch=self.epoch,
                fetch_offset=self.end_offset,
                last_fetched_epoch=self.last_epoch,
                max_wait_ms=0,
                max_bytes=1,
                high_watermark=Offset(0),
                state_digest=StateDigest(Offset(random.randrange(self.end_offset + 1)), random.randbytes(16)),
                log_start_offset=self.end_offset,
            ),
        ]


def _claim(world: World, random: Random, machine: Machine) -> _Claim | None:
    replica, log = machine.view.replica, machine.view.log
    if replica is None or log is None:
        return None
    keys = [ReplicaKey(STRANGER_ID, UUID(int=random.getrandbits(128) | 1)), ReplicaKey(STRANGER_ID)]
    cluster_id: str | None = world.cluster_id
    if world.parameters.voters_know_directories:
        # Without directory ids a voter is identified by its node id alone (RF-01): a process that names the id counts
        # as that voter. So only ids with a directory are claimed here.
        member_id = NodeId(random.choice(world.voter_ids))
        keys += [ReplicaKey(member_id, UUID(int=random.getrandbits(128) | 1)), ReplicaKey(member_id)] * 2
    key = random.choice(keys)
    if random.random() < 0.2:
        cluster_id, key = random.choice([None, "AAAAAAAAAAAAAAAAAAAAAA"]), random.choice([key, *_members(world)])
    return _Claim(
        cluster_id=cluster_id,
        key=key,
        receiver=machine.key,
        epoch=replica.epoch,
        end_offset=log.log_end_offset,
        last_epoch=log.epochs.last_epoch,
    )


def _members(world: World) -> list[ReplicaKey]:
    """Return the keys of the voters, which a node of another cluster may know."""
    return [voter.key for voter in world.voters.voters()]


@fault("input: a stranger's claims")
def claim(world: World, random: Random) -> str | None:
    """For a while, send all nodes requests that claim membership or leadership, with full knowledge of the cluster."""
    if not running(world):
        return None
    count, pause_ms = random.choice([1, 5, 20]), random.choice([1, 20, 200])

    def speak() -> None:
        for machine in running(world):
            claimed = _claim(world, random, machine)
            for request in [] if claimed is None else claimed.requests(random):
                world.messages.send_foreign(machine, request)

    for number in range(count):
        world.event_queue.after(number * pause_ms * MICROSECONDS_PER_MS, speak)
    return f"{count} times"


@fault("input: another cluster's node at a node's address")
def squat(world: World, random: Random) -> str | None:
    """Take a node down, and let a node of another cluster answer at its address."""
    machine = any_machine(world, random)
    if machine.process is None:
        return None
    down_us = duration_us(random)
    machine.foreign_until_us = world.event_queue.now_us + down_us
    world.kill(machine, Crash.KILLED, restart_after_us=down_us)
    return str(machine.node_id)
