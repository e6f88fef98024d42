"""One run: faults for a while, then a healed core that must converge, then a look at everything that was promised."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from kraftbase.errors import FlushFailed, InvariantViolation
from kraftlog.sim.faults import network_faults
from kraftlog.sim.faults.ambushes import watching_work
from kraftlog.sim.faults.catalogue import KINDS
from kraftlog.sim.faults.fault import FAULTS
from kraftlog.sim.invariants.invariant import Violation
from kraftlog.sim.marks import Marks, marking_edges
from kraftlog.sim.node.controller_host import watching_controllers
from kraftlog.sim.node.machine import Machine
from kraftlog.sim.observation.observed import NodeView
from kraftlog.sim.observation.trace import describe
from kraftlog.sim.parameters import Overrides, Parameters, draw
from kraftlog.sim.registers.linearizability import Verdict, check_history
from kraftlog.sim.registers.oracle import HistoryViolation
from kraftlog.sim.runs.convergence import unsettled
from kraftlog.sim.runs.muted_logs import silenced
from kraftlog.sim.virtual.disk import Crash
from kraftlog.sim.virtual.event_queue import MICROSECONDS_PER_MS, MICROSECONDS_PER_SECOND
from kraftlog.sim.world import World
from raft.core.types import Batch, Offset

CONVERGENCE_SECONDS: Final = 120
"""How long a healed cluster may take at most until it agrees on everything again."""

LINEARIZABILITY_STEPS_MAX: Final = 200_000
"""How many steps the search for a linear order may take per key; after that the key counts as undecided."""


@dataclass(slots=True)
class Outcome:
    """What came of a run."""

    parameters: Parameters
    violation: str | None
    """What does not hold; None if everything does."""
    simulated_seconds: float
    steps: int
    checks: int
    """How often an invariant was checked."""
    operations: int
    acknowledged: int
    undecided_keys: int
    trace_digest: str
    marks: Marks
    last_lines: list[str] = field(default_factory=list)
    """The end of the trace, if something does not hold."""
    nodes: list[str] = field(default_factory=list)
    """Each node's state, if something does not hold."""

    def summary(self) -> dict[str, Any]:
        """For a file."""
        return {
            "seed": self.parameters.seed,
            "violation": self.violation,
            "simulated_seconds": round(self.simulated_seconds, 3),
            "steps": self.steps,
            "checks": self.checks,
            "operations": self.operations,
            "acknowledged": self.acknowledged,
            "undecided_keys": self.undecided_keys,
            "trace_digest": self.trace_digest,
        }


class FaultSchedule:
    """Lets faults happen, one after the other, until it is told to stop."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = Random(f"faults {world.parameters.seed}")
        self._is_over = False

    def start(self) -> None:
        """Begin."""
        if self._world.parameters.fault_kinds:
            self._agree_on_next()

    def stop(self) -> None:
        """No more faults begin."""
        self._is_over = True

    def _agree_on_next(self) -> None:
        wait_ms = self._random.expovariate(1 / self._world.parameters.fault_interval_ms)
        self._world.agenda.after(int(wait_ms * MICROSECONDS_PER_MS), self._happen)

    def _happen(self) -> None:
        if self._is_over:
            return
        kind = self._random.choice(self._world.parameters.fault_kinds)
        to_whom = FAULTS[kind].begin(self._world, self._random)
        if to_whom is not None:
            self._world.marks.hit(f"fault: {kind}")
            self._world.trace.say(self._world.agenda.now_us, f"{kind}: {to_whom}")
        self._agree_on_next()


def run_seed(seed: int, *, overrides: Overrides | None = None, kinds: Sequence[str] = KINDS) -> Outcome:
    """The run with that seed."""
    return run(draw(seed, kinds, overrides))


def run(parameters: Parameters, *, echo: bool = False) -> Outcome:
    """One run from beginning to end. A violation is in the outcome, not raised."""
    marks = Marks()
    with silenced(), marking_edges(marks):
        world = World(parameters, echo=echo, marks=marks)
        undecided = 0
        violation: str | None = None
        try:
            with watching_work(world), watching_controllers(world):
                _safety_phase(world)
                _liveness_phase(world)
            world.checker.at_end()
            undecided = _judge_history(world)
        except Violation as found:
            violation = _explain(found)
        except (Exception, FlushFailed, InvariantViolation) as error:
            # What is wrong with the simulator itself must name the seed, too, and not end the sweep.
            violation = f"the simulator failed: {error!r}\n{traceback.format_exc()}"
    return _outcome(world, violation, undecided)


def _explain(found: Violation) -> str:
    if isinstance(found, HistoryViolation):
        return f"history (33 to 35): {found}"
    cause = found.__cause__
    if cause is None:
        return str(found)
    return f"{found}\n{''.join(traceback.format_exception(cause))}"


def _safety_phase(world: World) -> None:
    world.start_all()
    faults = FaultSchedule(world)
    faults.start()
    world.start_users()
    world.let_pass(world.parameters.safety_seconds * MICROSECONDS_PER_SECOND)
    faults.stop()


# --- liveness ---------------------------------------------------------------------------------------------------------


def _liveness_phase(world: World) -> None:
    """Heal a core of the cluster, leave the rest down, and wait until the core agrees on everything (44, 46)."""
    core = _choose_core(world)
    _heal(world, core)
    world.trace.say(world.agenda.now_us, f"healed: {[machine.node_id for machine in core]}")
    probe = world.clients[0]
    probe.start_probing()
    end_us = world.agenda.now_us + CONVERGENCE_SECONDS * MICROSECONDS_PER_SECOND
    while (obstacle := _obstacle(core, probe.has_probed) or unsettled(world.metadata, world.brokers)) is not None:
        if world.agenda.now_us >= end_us:
            if world.parameters.may_lose_quorum and _stands_still(world):
                world.marks.hit("halt: a cluster without a healthy majority stands still")
                return
            raise Violation(
                f"Convergence (44): {CONVERGENCE_SECONDS} s after all faults ended the healed nodes"
                f" {[machine.node_id for machine in core]} do not agree: {obstacle}"
            )
        world.let_pass(100 * MICROSECONDS_PER_MS)
    world.faults_may_lose_quorum = False  # it goes on: then it must have everything that it promised


def _stands_still(world: World) -> bool:
    """Whether nothing more is committed, because too few voters have what they had (46)."""
    committed_end_offset = world.committed_end_offset
    world.let_pass(30 * MICROSECONDS_PER_SECOND)
    healthy = [machine for machine in world.voters_up() if not world.atlas.is_harmed(machine)]
    return world.committed_end_offset == committed_end_offset and len(healthy) < world.majority


def _choose_core(world: World) -> list[Machine]:
    """A majority of the voters at least, of those that can be healed, and any observers."""
    random = Random(f"core {world.parameters.seed}")
    if world.parameters.may_lose_quorum:
        return list(world.machines.values())
    voters = [machine for machine in world.machines.values() if machine.view.is_voter]
    # Damaged ones count as healthy only once the healthy ones have restored them, and those must be a majority.
    whole = [machine for machine in voters if not world.atlas.is_harmed(machine)]
    others = [machine for machine in voters if world.atlas.is_harmed(machine)]
    others += [machine for machine in world.machines.values() if not machine.view.is_voter]
    needed = random.sample(whole, random.randint(min(world.majority, len(whole)), len(whole)))
    return [*needed, *random.sample(others, random.randint(0, len(others)))]


def _heal(world: World, core: Sequence[Machine]) -> None:
    network_faults.heal(world)
    for machine in world.machines.values():
        machine.disk.heal()
        machine.clock.drift(world.agenda.now_us, 1.0)
        machine.ambushes.clear()
        for repair in machine.repairs:
            repair()
        process = machine.process
        if machine not in core:
            world.kill(machine, Crash.KILLED, restart_after_us=None)
            machine.restart_at_us = None
        elif machine.view.has_diverged and not machine.view.has_rotted:
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
            world.kill(machine, Crash.KILLED, restart_after_us=1_000)  # somebody moved: the new address is configured
        else:
            process.crash_after = process.killed_after_vote = process.killed_before_sync = None
            if machine.view.is_paused:
                machine.view.is_paused = False
                process.resume()
    world.calm_users()


def _obstacle(core: Sequence[Machine], has_probed: bool) -> str | None:
    """Why the core has not converged; None if it has."""
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


def _judge_history(world: World) -> int:
    """What clients were told against what is in the log, two ways. Returns how many keys were undecided."""
    world.oracle.at_end()
    undecided = 0
    for key, (verdict, story) in check_history(world.history, LINEARIZABILITY_STEPS_MAX).items():
        if verdict is Verdict.NOT_LINEARIZABLE:
            raise Violation(f"Linearizability (36): the operations on {key} have no order: {story}")
        undecided += verdict is Verdict.UNDECIDED
    return undecided


def _outcome(world: World, violation: str | None, undecided: int) -> Outcome:
    is_bad = violation is not None
    return Outcome(
        parameters=world.parameters,
        violation=violation,
        simulated_seconds=world.agenda.now_us / MICROSECONDS_PER_SECOND,
        steps=world.trace.steps,
        checks=world.checker.checks,
        operations=len(world.history.operations),
        acknowledged=world.history.acknowledged_count,
        undecided_keys=undecided,
        trace_digest=world.trace.digest,
        marks=world.marks,
        last_lines=world.trace.last_lines() if is_bad else [],
        nodes=[f"{node_id:>3} {describe(view)}" for node_id, view in world.nodes.items()] if is_bad else [],
    )
