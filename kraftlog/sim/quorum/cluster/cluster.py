"""A cluster: machines, a network, and the start and end of processes. The world adds users and invariants."""

from __future__ import annotations

from functools import partial
from random import Random
from uuid import UUID

from kraftbase.endpoint import Endpoint, Reply
from kraftbase.errors import FlushFailed, KraftlogError, OutOfSpace
from kraftbase.files.files import join
from kraftbase.types import NodeId
from kraftbase.uuids import uuid_to_text
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.engine.virtual.crash import Crash
from kraftlog.sim.engine.virtual.disk import DIRECTORY
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS, EventQueue
from kraftlog.sim.engine.virtual.network import Network
from kraftlog.sim.quorum.cluster.fault_atlas import FaultAtlas
from kraftlog.sim.quorum.node.hardware import Hardware
from kraftlog.sim.quorum.node.machine import Machine
from kraftlog.sim.quorum.node.process import Process
from kraftlog.sim.quorum.node.stepped_process import SteppedProcess
from kraftlog.sim.quorum.observation.durable_state import durable_election_state, snapshot_fault
from kraftlog.sim.quorum.observation.node_view import News, NodeView
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step
from kraftlog.sim.quorum.parameters import QuorumParameters
from kraftlog.sim.quorum.wire.messages import Messages
from raft.core.actions import Send, TruncateFullyAndStartAt
from raft.core.messages import Response
from raft.core.types import ReplicaKey, StateDigest
from raft.core.voters import Voter, VoterSet
from raft.storage.directory import SNAPSHOTS_NAME
from raft.storage.quorum_state import COPY_NAMES

FIRST_OBSERVER_ID = 11


class Cluster(Observed):
    """The environment of processes (`kraftlog.sim.quorum.node.stepped_process.ProcessHost`), which faults harm."""

    def __init__(self, parameters: QuorumParameters, random: Random, marks: Marks) -> None:
        self.parameters = parameters
        self.event_queue = EventQueue()
        self.marks = marks
        self.violation: Violation | None = None
        """The violation that ends the run."""
        self.append_kill_rate = 0.0
        """The probability that a controller's process is killed just before an append."""
        self.cluster_id = uuid_to_text(UUID(int=random.getrandbits(128) | 1))
        self.network = Network(self.event_queue, Random(random.random()), parameters.network, self.marks)
        self._wire_random = Random(random.random())
        voter_ids = range(1, parameters.voters + 1)
        self.machines = self._make_machines(voter_ids, random)
        super().__init__([machine.view for machine in self.machines.values()], list(voter_ids))
        self.messages = Messages(
            self.machines.values(),
            self.network,
            self.event_queue,
            marks,
            self._wire_random,
            through_codec=parameters.through_codec,
            report_violation=self.report_violation,
        )
        self._voter_keys = [self._voter_key(node_id) for node_id in voter_ids]
        for machine in self.machines.values():
            self.write_voters(machine)
        self.cut_since_us = self.network.cut_since_us
        self.faults_may_lose_quorum = parameters.may_lose_quorum
        self.are_faults_over = False
        """Whether no more faults may start. A fault that waits for its moment checks this."""
        self.log_start = parameters.log_start
        self.atlas = FaultAtlas(self, self.machines, may_lose_quorum=parameters.may_lose_quorum)
        self._seen_versions: dict[int, tuple[int, int]] = {}
        self._seen_news: dict[int, News] = {}

    def _make_machines(self, voter_ids: range, random: Random) -> dict[int, Machine]:
        node_ids = [*voter_ids, *range(FIRST_OBSERVER_ID, FIRST_OBSERVER_ID + self.parameters.observers)]
        return {
            node_id: Machine(
                node_id,
                is_voter=node_id in voter_ids,
                cluster_id=self.cluster_id,
                fetch_version=fetch_version,
                random=Random(random.random()),
                marks=self.marks,
            )
            for node_id, fetch_version in zip(node_ids, self.parameters.fetch_versions, strict=True)
        }

    def _voter_key(self, node_id: int) -> ReplicaKey:
        return self.machines[node_id].key if self.parameters.voters_know_directories else ReplicaKey(NodeId(node_id))

    @property
    def voters(self) -> VoterSet:
        """The voters and their present addresses."""
        return VoterSet(Voter(key, self.machines[key.node_id].endpoint) for key in self._voter_keys)

    @property
    def configured_voters(self) -> VoterSet:
        """The voter set in the configuration of processes that start now. It has no directory ids."""
        return VoterSet(Voter(ReplicaKey(voter.key.node_id), voter.endpoint) for voter in self.voters.voters())

    @property
    def bootstrap_endpoints(self) -> tuple[Endpoint, ...]:
        """The bootstrap servers in the configuration of processes that start now."""
        return tuple(voter.endpoint for voter in self.voters.voters())

    def write_voters(self, machine: Machine) -> None:
        """Write the voter set to a new disk, as `format` does, if the run's voter set has directory ids."""
        if self.parameters.voters_know_directories:
            machine.write_voters(self.voters)

    # --- time ---------------------------------------------------------------------------------------------------------

    def run_for(self, duration_us: int) -> None:
        """Run the events of the next `duration_us`. Raises Violation."""
        end_us = self.event_queue.now_us + duration_us
        while self.event_queue.run_next(end_us):
            if self.violation is not None:
                raise self.violation

    def finish_step(self, step: Step) -> None:
        """End a step of a node: read its disk if it changed, and check the invariants."""
        if self.violation is not None:
            return
        self._look_at_disk(self.machines[step.node.node_id], step)
        if step.is_idle:
            return
        self._look_at_ends(step)
        self.now_us = self.event_queue.now_us
        try:
            self.after_step(step)
        except Violation as violation:
            self.violation = violation

    def after_step(self, step: Step) -> None:
        """Update the marks and the atlas. The node's view is up to date. Raises Violation."""
        self.marks.saw(step.events, step.actions)
        self.atlas.after_step(step)

    def report_violation(self, message: str, cause: BaseException | None = None) -> None:
        """End the run with a violation that was found outside of a step."""
        if self.violation is None:
            self.violation = Violation(message)
            self.violation.__cause__ = cause

    def _look_at_ends(self, step: Step) -> None:
        view = step.node
        step.ends = view.ends()
        news = view.news(step.ends)
        step.is_news = self._seen_news.get(view.node_id) != news
        self._seen_news[view.node_id] = news

    def _look_at_disk(self, machine: Machine, step: Step) -> None:
        files = machine.disk.files
        version = (id(files), files.durable_version)
        if self._seen_versions.get(machine.node_id) != version:
            self._seen_versions[machine.node_id] = version
            step.disk_changed = True
            if machine.process is not None:
                machine.process.note_positions()
            machine.view.durable_log.refresh(files, f"{DIRECTORY}/log")
            machine.view.durable_election = durable_election_state(files, DIRECTORY)
            machine.view.durable_snapshots.refresh(files, f"{DIRECTORY}/{SNAPSHOTS_NAME}")
            if machine.view.has_damaged_snapshots and _has_whole_snapshots(machine.view):
                machine.view.has_damaged_snapshots = False

    def reply_to_connection(self, node_id: int, endpoint: Endpoint) -> tuple[Reply, int]:
        """Return the reply of a broker's listener, and its delay. This class has no brokers."""
        return Reply.UNKNOWN, 0

    # --- processes ----------------------------------------------------------------------------------------------------

    def machine_of(self, process: SteppedProcess) -> Machine:
        """Return the machine on which a process runs or ran."""
        return self.machines[process.machine.node_id]

    def start(self, machine: Machine) -> None:
        """Start a process on a machine that has none."""
        if machine.process is not None:
            return
        machine.restart_at_us = None
        machine.view.life += 1
        machine.view.started_at_us = self.event_queue.now_us
        machine.view.has_leapt = False
        process = machine.process = Process(self, machine)
        process.run("start", process.start)

    def start_all(self) -> None:
        """Start a process on every machine."""
        for machine in self.machines.values():
            self.start(machine)

    def kill(self, machine: Machine, crash: Crash, *, restart_after_us: int | None) -> None:
        """End the process of a machine now. Start another after `restart_after_us`, or never if that is None."""
        process = machine.process
        if process is None:
            return
        process.step = Step(self.event_queue.now_us, machine.view, "kill")
        process.end(crash.value, crash)
        self.finish_step(process.step)
        self.restart(machine, restart_after_us)

    def restart(self, machine: Machine, delay_us: int | None) -> None:
        """Start a machine's process after `delay_us` if it is still down then; None: never."""
        if delay_us is None:
            machine.restart_at_us = None
            return
        machine.restart_at_us = self.event_queue.now_us + delay_us
        self.event_queue.after(delay_us, partial(self._restart_if_due, machine))

    def _restart_if_due(self, machine: Machine) -> None:
        if machine.restart_at_us is not None and machine.restart_at_us <= self.event_queue.now_us:
            self.start(machine)

    def process_ended(self, process: SteppedProcess, reason: str) -> None:
        """Handle the end of a process: cancel its requests on other nodes. A restart follows, as by a supervisor."""
        machine = self.machine_of(process)
        if machine.process is process:
            machine.process = None
        for other in self.machines.values():
            if other.process is not None:
                other.process.forget_requests_of(process)
        if machine.restart_at_us is None or machine.restart_at_us <= self.event_queue.now_us:
            self.restart(machine, self._wire_random.randrange(10, 3_000) * MICROSECONDS_PER_MS)

    def process_failed(self, process: SteppedProcess, error: BaseException) -> None:
        """Handle a process that stopped itself. Unless a fault of its disk explains that, it is a violation."""
        machine = self.machine_of(process)
        files = machine.disk.files
        match error:
            case FlushFailed():
                is_expected = bool(files.failing_syncs)
            case OutOfSpace():
                # Replacing a log by a snapshot needs space, and so do the first quorum state of a new node and a new
                # leader's first batch when elections have used up the reserve for it. Other appends are refused before.
                replaces_log = any(isinstance(action, TruncateFullyAndStartAt) for action in process.step.actions)
                is_new = not all(files.exists(join(DIRECTORY, name)) for name in COPY_NAMES)
                is_expected = files.space_limit is not None and (
                    process.step.started or is_new or replaces_log or process.shell.replica.is_leader
                )
            case KraftlogError():
                is_expected = self.atlas.is_harmed(machine) or bool(files.failing_reads)
            case _:
                is_expected = False
        self.marks.hit(f"process stopped itself: {type(error).__name__}")
        if not is_expected and self.violation is None:
            self.violation = Violation(f"node {machine.node_id} stopped itself: {type(error).__name__}: {error}")
            self.violation.__cause__ = error

    def log_opened(self, hardware: Hardware, *, is_recovering: bool) -> None:
        """Record that a process has opened its log. It may have discarded damaged records, which it fetches again."""
        self.atlas.note_start(hardware, is_recovering=is_recovering)

    def state_diverged(self, process: SteppedProcess, expected: StateDigest, own: StateDigest) -> None:
        """Check that a node which detected a divergence of its state machine is right."""
        machine = process.machine
        if not machine.view.has_diverged and self.violation is None:
            self.violation = Violation(
                f"node {machine.node_id} reported that its state machine differs: {own}, not {expected}; it does not"
            )

    def start_over(self, process: SteppedProcess) -> None:
        """Restart a process whose state machine is fenced and may be rebuilt."""
        self.event_queue.after(1_000, partial(self._replace, process))

    def _replace(self, process: SteppedProcess) -> None:
        machine = self.machine_of(process)
        if machine.process is process:
            self.kill(machine, Crash.KILLED, restart_after_us=1_000)

    def send_request(self, source: SteppedProcess, send: Send) -> None:
        """Send a replica's request."""
        self.messages.send_request(source, send)

    def send_response(
        self, replier: SteppedProcess, source: SteppedProcess, correlation_id: int, response: Response, records: bytes
    ) -> None:
        """Send the response to `source`'s request."""
        self.messages.send_response(replier, source, correlation_id, response, records)

    # --- state --------------------------------------------------------------------------------------------------------

    def leader(self) -> Machine | None:
        """Return the leader of the highest epoch that has one."""
        leading = [
            (machine.view.replica.epoch, node_id)
            for node_id, machine in self.machines.items()
            if machine.view.replica is not None and machine.view.replica.is_leader
        ]
        return self.machines[max(leading)[1]] if leading else None

    def voters_up(self) -> list[Machine]:
        """Return the voters whose process runs."""
        return [machine for machine in self.machines.values() if machine.view.is_voter and machine.process is not None]


def _has_whole_snapshots(view: NodeView) -> bool:
    """Whether every snapshot on the disk is intact, and one ends where the log begins."""
    found, start = view.durable_snapshots.found, view.durable_log.start
    is_covered = start.offset == 0 or start in found
    return is_covered and all(snapshot_fault(snapshot_id, data) is None for snapshot_id, data in found.items())
