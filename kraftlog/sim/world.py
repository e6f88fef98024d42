"""The world: machines, a network and clients in virtual time, all from one seed, watched after every step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from uuid import UUID

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ErrorCode, FlushFailed, KraftlogError, OutOfSpace, ProtocolError
from kraftbase.uuids import uuid_to_text
from kraftlog.sim.cluster.fault_atlas import Atlas
from kraftlog.sim.invariants.catalogue import Checker
from kraftlog.sim.invariants.invariant import Violation
from kraftlog.sim.marks import Marks
from kraftlog.sim.node.machine import Machine
from kraftlog.sim.node.process import Process
from kraftlog.sim.node.register_service import committed_writes
from kraftlog.sim.observation.observed import NodeView, Observed, Step, durable_election_state, snapshot_fault
from kraftlog.sim.observation.trace import Trace
from kraftlog.sim.parameters import Parameters
from kraftlog.sim.registers.history import History
from kraftlog.sim.registers.oracle import OffsetOracle
from kraftlog.sim.users.administrator import Administrator
from kraftlog.sim.users.broker import FIRST_BROKER_ID, Broker
from kraftlog.sim.users.client import Client
from kraftlog.sim.virtual.disk import DIRECTORY, Crash
from kraftlog.sim.virtual.event_queue import MICROSECONDS_PER_MS, Agenda
from kraftlog.sim.virtual.network import Network
from kraftlog.sim.wire.carriage import carry_request, carry_response, falsified, flip_a_bit, foreign_answer
from raft.core.actions import Send, StartLogAnew
from raft.core.events import RequestFailed, ResponseReceived
from raft.core.messages import FetchResponse, FetchSnapshotRequest, FetchSnapshotResponse, Request, Response
from raft.core.types import NodeId, ReplicaKey, StateDigest
from raft.core.voters import Voter, VoterSet
from raft.storage.directory import SNAPSHOTS_NAME

FIRST_OBSERVER_ID = 11
FIRST_CLIENT_ID = 101


class World(Observed):
    """A cluster and its clients. `let_pass` lets time pass; faults and workload are on its agenda like all else."""

    def __init__(self, parameters: Parameters, *, echo: bool = False, marks: Marks) -> None:
        self.parameters = parameters
        random = Random(f"world {parameters.seed}")
        self.agenda = Agenda()
        self.marks = marks
        self.trace = Trace(echo=echo)
        self.violation: Violation | None = None
        self.pieces_to_corrupt = 0
        """So many of the next pieces of snapshots arrive with a bit flipped."""
        self.transfer_ambush: Callable[[Process, Machine], None] | None = None
        """What happens as soon as a node asks another for more of a snapshot that it has a part of."""
        self.answers_to_falsify: dict[int, float] = {}
        """By node: its next answer to a fetch lacks what it knows as committed, where this number says."""
        self.corrupt_rate = 0.0
        """How often a fetched batch arrives with a bit flipped."""
        self.cluster_id = uuid_to_text(UUID(int=random.getrandbits(128) | 1))
        self.network = Network(self.agenda, Random(random.random()), parameters.network, self.marks)
        self._wire_random = Random(random.random())
        voter_ids = range(1, parameters.voters + 1)
        node_ids = [*voter_ids, *range(FIRST_OBSERVER_ID, FIRST_OBSERVER_ID + parameters.observers)]
        self.machines = {
            node_id: Machine(
                node_id,
                is_voter=node_id in voter_ids,
                cluster_id=self.cluster_id,
                fetch_version=fetch_version,
                random=Random(random.random()),
                marks=self.marks,
            )
            for node_id, fetch_version in zip(node_ids, parameters.fetch_versions, strict=True)
        }
        super().__init__([machine.view for machine in self.machines.values()], list(voter_ids))
        self._by_endpoint = {
            endpoint: machine for machine in self.machines.values() for endpoint in machine.possible_endpoints
        }
        self._voter_keys = [self._voter_key(node_id) for node_id in voter_ids]
        for machine in self.machines.values():
            self.tell_voters(machine)
        self.cut_since_us = self.network.cut_since_us
        self.faults_may_lose_quorum = parameters.may_lose_quorum
        self.log_start = parameters.log_start
        self.history = History()
        self.oracle = OffsetOracle(self.history)
        self._told_oracle = 0
        self.atlas = Atlas(self)
        self.checker = Checker(self)
        self.clients = [
            Client(self, FIRST_CLIENT_ID + number, Random(random.random())) for number in range(parameters.clients)
        ]
        self.brokers: list[Broker] = []
        self.administrator: Administrator | None = None
        self.append_kill_rate = 0.0
        """How often a controller's process is killed as it is about to append."""
        if parameters.brokers is not None:
            self.append_kill_rate = parameters.brokers.append_kill_rate
            others = Random(f"brokers {parameters.seed}")
            self.brokers = [
                Broker(self, FIRST_BROKER_ID + number, Random(others.random()))
                for number in range(parameters.brokers.count)
            ]
            self.administrator = Administrator(self, Random(others.random()))
        self._seen_versions: dict[int, tuple[int, int]] = {}

    def _voter_key(self, node_id: int) -> ReplicaKey:
        return self.machines[node_id].key if self.parameters.voters_know_directories else ReplicaKey(NodeId(node_id))

    @property
    def voters(self) -> VoterSet:
        """Who votes, and where each listens now."""
        return VoterSet(Voter(key, self.machines[key.node_id].endpoint) for key in self._voter_keys)

    @property
    def configured_voters(self) -> VoterSet:
        """The voter set in everybody's configuration, by which processes go that start now: it has no directory ids."""
        return VoterSet(Voter(ReplicaKey(voter.key.node_id), voter.endpoint) for voter in self.voters.voters())

    @property
    def bootstrap_endpoints(self) -> tuple[Endpoint, ...]:
        """The servers to start from in everybody's configuration."""
        return tuple(voter.endpoint for voter in self.voters.voters())

    def tell_voters(self, machine: Machine) -> None:
        """Write who votes to a new disk, as `format` does, if voters are known by their directories in this run."""
        if self.parameters.voters_know_directories:
            machine.tell_voters(self.voters)

    # --- time ---------------------------------------------------------------------------------------------------------

    def let_pass(self, duration_us: int) -> None:
        """Let time pass. Raises Violation."""
        end_us = self.agenda.now_us + duration_us
        while self.agenda.run_next(end_us):
            if self.violation is not None:
                raise self.violation

    def finish_step(self, step: Step) -> None:
        """Something happened to a node: look at its disk if that changed, and check everything."""
        if self.violation is not None:
            return
        machine = self.machines[step.node.node_id]
        self._look_at_disk(machine, step)
        if step.is_idle:
            return
        self.now_us = self.agenda.now_us
        self.trace.step(step)
        for event in step.events:
            self.marks.hit(type(event).__name__)
        try:
            self.atlas.after_step(step)
            self.checker.after_step(step)
            self._tell_oracle()
        except Violation as violation:
            self.violation = violation

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

    def _tell_oracle(self) -> None:
        """The oracle hears of every committed write, in the order of the log."""
        for batch in self.committed[self._told_oracle :]:
            self.oracle.committed(committed_writes(batch), batch.end_offset)
        self._told_oracle = len(self.committed)

    # --- processes ----------------------------------------------------------------------------------------------------

    def start(self, machine: Machine) -> None:
        """Start a process on a machine that has none."""
        if machine.process is not None:
            return
        machine.restart_at_us = None
        machine.view.life += 1
        machine.view.started_at_us = self.agenda.now_us
        machine.view.has_leapt = False
        process = machine.process = Process(self, machine)
        process.run("start", process.start)

    def start_all(self) -> None:
        """Start a process on every machine."""
        for machine in self.machines.values():
            self.start(machine)

    def start_users(self) -> None:
        """Let clients, brokers and the administrator begin."""
        for client in self.clients:
            client.start()
        for broker in self.brokers:
            broker.start()
        if self.administrator is not None:
            self.administrator.start()

    def calm_users(self) -> None:
        """Let nobody begin anything new; brokers live on, and so do controllers."""
        self.append_kill_rate = 0.0
        for client in self.clients:
            client.stop()
        for broker in self.brokers:
            broker.calm_down()
        if self.administrator is not None:
            self.administrator.stop()

    def kill(self, machine: Machine, crash: Crash, *, restart_after_us: int | None) -> None:
        """End the process of a machine now; start another one later, unless None is said."""
        process = machine.process
        if process is None:
            return
        process.step = Step(self.agenda.now_us, machine.view, "kill")
        process.end(crash.value, crash)
        self.finish_step(process.step)
        self.restart(machine, restart_after_us)

    def restart(self, machine: Machine, delay_us: int | None) -> None:
        """Start a machine's process in `delay_us`, if it is still down then; None: never."""
        if delay_us is None:
            machine.restart_at_us = None
            return
        machine.restart_at_us = self.agenda.now_us + delay_us
        self.agenda.after(delay_us, partial(self._restart_if_due, machine))

    def _restart_if_due(self, machine: Machine) -> None:
        if machine.restart_at_us is not None and machine.restart_at_us <= self.agenda.now_us:
            self.start(machine)

    def process_ended(self, process: Process, reason: str) -> None:
        """A process is gone: machines that held its requests notice; an operator or supervisor starts it again."""
        machine = process.machine
        if machine.process is process:
            machine.process = None
        for other in self.machines.values():
            if other.process is not None:
                other.process.forget_requests_of(process)
        if machine.restart_at_us is None or machine.restart_at_us <= self.agenda.now_us:
            self.restart(machine, self._wire_random.randrange(10, 3_000) * MICROSECONDS_PER_MS)

    def process_failed(self, process: Process, error: BaseException) -> None:
        """A process stopped itself: fine if a fault of its disk made it, else the end of the run."""
        machine = process.machine
        files = machine.disk.files
        match error:
            case FlushFailed():
                is_expected = bool(files.failing_syncs)
            case OutOfSpace():
                # A log that begins anew needs room, and so does a new leader's first batch when elections have used up
                # what is kept for it. Other appends are refused before.
                begins_anew = any(isinstance(action, StartLogAnew) for action in process.step.actions)
                is_expected = files.space_limit is not None and (
                    process.step.started or begins_anew or process.shell.replica.is_leader
                )
            case KraftlogError():
                is_expected = self.atlas.is_harmed(machine) or bool(files.failing_reads)
            case _:
                is_expected = False
        self.marks.hit(f"process stopped itself: {type(error).__name__}")
        if not is_expected and self.violation is None:
            self.violation = Violation(f"node {machine.node_id} stopped itself: {type(error).__name__}: {error}")
            self.violation.__cause__ = error

    def complain(self, message: str) -> None:
        """Something that must not be was seen outside of a step."""
        if self.violation is None:
            self.violation = Violation(message)

    def state_diverged(self, process: Process, expected: StateDigest, own: StateDigest) -> None:
        """A node found out that its state machine differs: somebody sees that and starts it again."""
        machine = process.machine
        if not machine.view.has_diverged and self.violation is None:
            self.violation = Violation(
                f"node {machine.node_id} was told that its state machine differs: {own}, not {expected}; it does not"
            )

    def start_over(self, process: Process) -> None:
        """A node whose state machine is fenced may make it anew: it ends and starts again by itself."""
        self.agenda.after(1_000, partial(self._replace, process))

    def _replace(self, process: Process) -> None:
        if process.machine.process is process:
            self.kill(process.machine, Crash.KILLED, restart_after_us=1_000)

    # --- messages -----------------------------------------------------------------------------------------------------

    def send_request(self, source: Process, send: Send) -> None:
        """A replica's request goes on its way."""
        target = self._by_endpoint.get(send.destination)
        if target is None:
            self.complain(f"node {source.machine.node_id} sends to {send.destination}, which is in no configuration")
            return
        node_id = source.machine.node_id
        through_codec = self.parameters.through_codec
        if isinstance(send.request, FetchSnapshotRequest):
            self._note_transfer(source, target, send.request, send.destination)
        request = carry_request(send.request, through_codec=through_codec)
        label = f"{type(request).__name__.removesuffix('Request')} from {node_id}"

        def arrive() -> None:
            is_there = target.endpoint == send.destination
            if target.process is not None and is_there:
                receiver = target.process
                receiver.run(label, lambda: receiver.receive(request, source, send.correlation_id))
            elif target.process is None and target.foreign_until_us > self.agenda.now_us:
                self._answer_as_foreign(source, target, request, send.correlation_id)
            else:
                self._fail(source, target, send.correlation_id)

        self.network.send(node_id, target.node_id, arrive, sent_after_us=source.stalled_us)

    def _note_transfer(
        self, source: Process, target: Machine, request: FetchSnapshotRequest, destination: Endpoint
    ) -> None:
        """A node asks for some bytes of a snapshot."""
        before, source.transfer = source.transfer, (request.snapshot_id, destination)
        if request.position == 0:
            return
        if before is not None and before[0] == request.snapshot_id and before[1] != destination:
            self.marks.hit("a transfer of a snapshot went on with another leader")
        if self.transfer_ambush is not None:
            spring, self.transfer_ambush = self.transfer_ambush, None
            spring(source, target)
        self._note_cut_transfer(source.machine.node_id, target.node_id)

    def _note_cut_transfer(self, source_id: int, target_id: int) -> None:
        if (source_id, target_id) in self.network.cut_since_us:
            self.marks.hit("network: a transfer of a snapshot was cut")

    def _answer_as_foreign(self, source: Process, target: Machine, request: Request, correlation_id: int) -> None:
        """A node of another cluster listens where `target` did, and has a leader and an epoch of its own."""
        self.marks.hit("a node of another cluster answered")
        outcome = ResponseReceived(correlation_id, foreign_answer(request, self._wire_random))
        self.network.send(
            target.node_id,
            source.machine.node_id,
            lambda: source.run("foreign answer", lambda: source.shell.outcome(outcome)),
        )

    def _fail(self, source: Process, target: Machine, correlation_id: int) -> None:
        self.network.send(
            target.node_id,
            source.machine.node_id,
            lambda: source.run("refused", lambda: source.shell.outcome(RequestFailed(correlation_id))),
        )

    def send_response(
        self, replier: Process, source: Process, correlation_id: int, response: Response, records: bytes
    ) -> None:
        """The answer to `source`'s request goes on its way."""
        if isinstance(response, FetchResponse) and records and self._wire_random.random() < self.corrupt_rate:
            self.marks.hit("network: a batch was corrupted")
            records = flip_a_bit(records, self._wire_random)
        if isinstance(response, FetchSnapshotResponse) and records:
            self._note_cut_transfer(replier.machine.node_id, source.machine.node_id)
            if self.pieces_to_corrupt > 0 or self._wire_random.random() < self.corrupt_rate:
                self.pieces_to_corrupt = max(0, self.pieces_to_corrupt - 1)
                self.marks.hit("network: a piece of a snapshot was corrupted")
                response = replace(response, data=flip_a_bit(records, self._wire_random))
        chance = self.answers_to_falsify.get(source.machine.node_id)
        if isinstance(response, FetchResponse) and response.error is ErrorCode.NONE and chance is not None:
            del self.answers_to_falsify[source.machine.node_id]
            response, records = falsified(response, source.machine.view, chance), b""
        outcome: ResponseReceived | RequestFailed
        try:
            arrived = carry_response(response, records, through_codec=self.parameters.through_codec)
            outcome = ResponseReceived(correlation_id, arrived)
        except ProtocolError:
            outcome = RequestFailed(correlation_id)
        label = f"{type(response).__name__.removesuffix('Response')} answer"
        self.network.send(
            replier.machine.node_id,
            source.machine.node_id,
            lambda: source.run(label, lambda: source.shell.outcome(outcome)),
            sent_after_us=replier.stalled_us,
        )

    def send_foreign(self, machine: Machine, request: Request) -> None:
        """Somebody who is no replica of this cluster sends a request."""
        process = machine.process
        if process is not None:
            process.run("foreign request", lambda: process.receive_foreign(request))

    # --- what it is ---------------------------------------------------------------------------------------------------

    def leader(self) -> Machine | None:
        """Who leads the highest epoch that anybody leads."""
        leading = [
            (machine.view.replica.epoch, node_id)
            for node_id, machine in self.machines.items()
            if machine.view.replica is not None and machine.view.replica.is_leader
        ]
        return self.machines[max(leading)[1]] if leading else None

    def voters_up(self) -> list[Machine]:
        """The voters whose process runs."""
        return [machine for machine in self.machines.values() if machine.view.is_voter and machine.process is not None]


def _has_whole_snapshots(view: NodeView) -> bool:
    """Whether every snapshot on its disk is whole, and there is one where the log begins."""
    found, start = view.durable_snapshots.found, view.durable_log.start
    is_covered = start.offset == 0 or start in found
    return is_covered and all(snapshot_fault(snapshot_id, data) is None for snapshot_id, data in found.items())
