"""The liveness phase: a healed core of the cluster must agree on everything again, in bounded time."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from kraftbase.types import Offset
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.engine.virtual.crash import Crash
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS, MICROSECONDS_PER_SECOND
from kraftlog.sim.quorum.cluster.fault_atlas import has_not_joined
from kraftlog.sim.quorum.faults import network_faults
from kraftlog.sim.quorum.node.machine import Machine
from kraftlog.sim.quorum.observation.node_view import NodeView
from kraftlog.sim.quorum.runs.settled_metadata import why_not_settled
from kraftlog.sim.quorum.world import World
from raft.core.types import Batch

CONVERGENCE_SECONDS: Final = 120
"""The longest time that a healed cluster may take to agree on everything."""


def converge(world: World) -> None:
    """Heal a core of the cluster, keep the rest down, and run until the core agrees on everything (44, 46)."""
    core = _choose_core(world)
    _heal(world, core)
    world.trace.note(world.event_queue.now_us, f"healed: {[machine.node_id for machine in core]}")
    probe = world.clients[0]
    probe.start_probing()
    end_us = world.event_queue.now_us + CONVERGENCE_SECONDS * MICROSECONDS_PER_SECOND
    while (reason := _why_not_agreed(world, core, probe.has_probed)) is not None:
        if world.event_queue.now_us >= end_us:
            if world.parameters.may_lose_quorum and _stands_still(world):
                world.marks.hit("halt: a cluster without a healthy majority stands still")
                return
            raise Violation(
                f"Convergence (44): {CONVERGENCE_SECONDS} s after all faults ended the healed nodes"
                f" {[machine.node_id for machine in core]} do not agree: {reason}"
            )
        world.run_for(100 * MICROSECONDS_PER_MS)
    world.faults_may_lose_quorum = False  # a cluster that continues must have kept everything that it acknowledged


def _stands_still(world: World) -> bool:
    """Whether nothing more is committed, because too few voters have their data (46)."""
    committed_end_offset = world.committed_end_offset
    world.run_for(30 * MICROSECONDS_PER_SECOND)
    healthy = [machine for machine in world.voters_up() if not world.atlas.is_harmed(machine)]
    joined = [machine for machine in healthy if not has_not_joined(machine)]
    # Consider five voters of which 1, 2 and 4 have founded the quorum, and 1 and 4 lose sectors of their logs: 3 and 5
    # have lost nothing, and vote for none that has records, since they have never followed a leader.
    may_elect = joined or healthy
    return world.committed_end_offset == committed_end_offset and len(may_elect) < world.majority


def _choose_core(world: World) -> list[Machine]:
    """Return at least a majority of the voters, from those that can be healed, and any observers."""
    random = Random(f"core {world.parameters.seed}")
    if world.parameters.may_lose_quorum:
        return list(world.machines.values())
    voters = [machine for machine in world.machines.values() if machine.view.is_voter]
    # Damaged voters count as healthy only once the healthy ones, which must be a majority, have restored them.
    whole = [machine for machine in voters if not world.atlas.is_harmed(machine)]
    electing, least = _who_may_elect(world, whole)
    others = [machine for machine in voters if machine not in electing]
    others += [machine for machine in world.machines.values() if not machine.view.is_voter]
    needed = random.sample(electing, random.randint(min(least, len(electing)), len(electing)))
    return [*needed, *random.sample(others, random.randint(0, len(others)))]


def _who_may_elect(world: World, whole: list[Machine]) -> tuple[list[Machine], int]:
    """Return the healthy voters, and how many of them can always elect a leader, whichever they are."""
    # A new voter does not count before it has followed a leader. Consider voters 1, 2 and 3, of which 1 and 3 have
    # founded the quorum: without 3 there is no leader until it returns, since 2 votes for no candidate with records.
    # While less than a majority has joined, all are needed: the voters without records may have to found the quorum
    # without the one that has records.
    joined = [machine for machine in whole if not has_not_joined(machine)]
    if len(joined) >= world.majority:
        return joined, world.majority
    return whole, len(whole) if joined else world.majority


def _heal(world: World, core: Sequence[Machine]) -> None:
    network_faults.heal(world)
    for machine in world.machines.values():
        machine.disk.heal()
        machine.database.heal()
        machine.clock.drift(world.event_queue.now_us, 1.0)
        machine.ambushes.clear()
        for repair in machine.repairs:
            repair()
        process = machine.process
        if machine not in core:
            world.kill(machine, Crash.KILLED, restart_after_us=None)
            machine.restart_at_us = None
        elif machine.view.has_diverged and not machine.view.has_bit_rot:
            world.kill(machine, Crash.KILLED, restart_after_us=1_000)
            machine.database.lose()
            world.restart(machine, 1_000)
        elif process is None:
            world.start(machine)
        elif world.atlas.is_harmed(machine):
            world.kill(
                machine, Crash.KILLED, restart_after_us=1_000
            )  # damage is noticed at the next start at the latest
        elif process.configured_voters != world.configured_voters:
            world.kill(machine, Crash.KILLED, restart_after_us=1_000)  # a node moved: the new address is configured
        else:
            process.crash_after = process.killed_after_vote = process.killed_before_sync = None
            if machine.view.is_paused:
                machine.view.is_paused = False
                process.resume()
    world.quiesce_users()


def _why_not_agreed(world: World, core: Sequence[Machine], has_probed: bool) -> str | None:
    """Return why the core has not converged yet; None if it has."""
    return _why_nodes_differ(core, has_probed) or why_not_settled(world.metadata, world.brokers)


def _why_nodes_differ(core: Sequence[Machine], has_probed: bool) -> str | None:
    leaders = [machine for machine in core if machine.view.replica is not None and machine.view.replica.is_leader]
    if len(leaders) != 1:
        return f"{len(leaders)} of them lead"
    leader = leaders[0].view
    if leader.log is None or leader.replica is None:
        return "the leader is down"
    if not has_probed:
        return "no operation was acknowledged since"
    for machine in core:
        view = machine.view
        if view.replica is None or view.log is None:
            return f"{view.node_id} is down"
        if view.replica.is_recovering:
            return f"{view.node_id} still recovers from damage"
        if view.replica.high_watermark != leader.log.log_end_offset:
            return f"{view.node_id} knows {view.replica.high_watermark} of {leader.log.log_end_offset} as committed"
        start = max(view.durable_log.start.offset, leader.durable_log.start.offset)
        if _from(view, start) != _from(leader, start):
            return f"the log of {view.node_id} is another than the leader's"
        if view.applied != leader.applied:
            return f"the state machine of {view.node_id} holds {view.applied}, the leader's {leader.applied}"
    return None


def _from(node: NodeView, start: Offset) -> list[Batch]:
    return [batch for batch in node.durable_log.from_start() if batch.base_offset >= start]
