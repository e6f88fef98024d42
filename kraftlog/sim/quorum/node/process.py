"""One life of a node: the production shell, log, quorum state and state machine on a simulated machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError
from kraftbase.types import Offset
from kraftlog.sim.engine.virtual.crash import Crash, ProcessKilled
from kraftlog.sim.engine.virtual.disk import DIRECTORY
from kraftlog.sim.quorum.marks import edge_taken
from kraftlog.sim.quorum.node.controller_host import ControllerHost
from kraftlog.sim.quorum.node.hardware import Hardware
from kraftlog.sim.quorum.node.read_service import ReadService
from kraftlog.sim.quorum.node.register_service import RegisterService
from kraftlog.sim.quorum.node.runtime import SimulatedRuntime
from kraftlog.sim.quorum.node.slow_listener import SlowListener
from kraftlog.sim.quorum.node.state_machine import StateMachine
from kraftlog.sim.quorum.node.stepped_process import Environment, SteppedProcess
from kraftlog.sim.quorum.node.store import SimulatedStore
from raft.core.actions import Action, Send
from raft.core.decisions import StateEntered
from raft.core.events import (
    Event,
    RequestCancelled,
    RequestFailed,
    RequestReceived,
    ShutdownRequested,
)
from raft.core.messages import Request, Response, VoteResponse
from raft.core.replica_view import ReplicaView
from raft.core.types import LeaderAndEpoch, OffsetAndEpoch, RefusedLeader, StateDigest
from raft.delivery import Delivery
from raft.shell.log_start_keeper import ListenerPosition
from raft.shell.open_log import open_log
from raft.shell.shell import Shell
from raft.shell.shell_host import Identity
from raft.shell.starting_voters import starting_voters
from raft.storage.directory import DataDirectory
from raft.storage.quorum_state import QuorumStateStore
from raft.synchronous_listener import SynchronousListener
from snapshot.store import SnapshotStore


class _Waiting(NamedTuple):
    """A process that waits for the answer to a request."""

    request: Request
    source: SteppedProcess
    correlation_id: int


class Process(SteppedProcess):
    """See the module. It is its shell's host and its observer (`raft.shell.shell_host`, `raft.shell.observer`)."""

    def __init__(self, environment: Environment, machine: Hardware) -> None:
        super().__init__(environment, machine)
        self.configured_voters = environment.configured_voters
        """The voter set in its configuration when it was started."""
        self.killed_after_vote: Crash | None = None
        """If set: it is killed like that as soon as a vote that it granted has left."""
        self._waiting: dict[int, _Waiting] = {}
        self._is_leaving = False

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open what is on the disk and take the role that follows from it."""
        self.step.started = True
        machine, environment = self.machine, self.environment
        files = machine.disk.files
        files.before_operation = self.before_operation
        directory = DataDirectory.open(files, DIRECTORY, cluster_id=environment.cluster_id, node_id=machine.key.node_id)
        quorum_state = QuorumStateStore(files, directory.path)
        election_state = quorum_state.load()
        tables = machine.database.open()
        self.snapshots = SnapshotStore(files, directory.snapshots_path, token=machine.new_token)
        if machine.database.must_forget_snapshots:
            self.snapshots.delete_all()
            machine.database.must_forget_snapshots = False
        voters, _ = starting_voters(directory, self.configured_voters)
        applied = OffsetAndEpoch(epoch=tables.applied.epoch, offset=tables.applied.end_offset)
        self.log = open_log(
            directory,
            environment.parameters.log,
            self.snapshots,
            election_state=election_state,
            has_others=not voters.is_only_voter(machine.key),
            applied=applied,
        )
        self.log.reserve(0)
        if self.log.recovering is not None:
            environment.marks.hit("recovery: a damaged log is fetched again")
            if not self.log.epochs.holds(applied, self.log.log_end_offset):
                environment.marks.hit("recovery: a log behind what was applied is fetched again")
        environment.log_opened(machine, is_recovering=self.log.recovering is not None)
        self.runtime = SimulatedRuntime(self)
        self.store = SimulatedStore(self, tables, machine.new_random())
        self.state_machine = StateMachine(self, self.store)
        self.register_service = RegisterService(self, self.store, self.state_machine)
        self.state_machine.subscribe(self.register_service)
        self.read_service = ReadService(self, self.store, self.state_machine)
        self.controller_host = ControllerHost(self, self.store, self.state_machine, self.read_service)
        self.shell = Shell(
            identity=Identity(
                cluster_id=environment.cluster_id,
                key=machine.key,
                endpoint=machine.endpoint,
                voters=voters,
                bootstrap_endpoints=environment.bootstrap_endpoints,
            ),
            config=replace(environment.parameters.quorum, fetch_version=machine.fetch_version),
            log=self.log,
            quorum_state=quorum_state,
            election_state=election_state,
            snapshots=self.snapshots,
            log_start=environment.parameters.log_start,
            applied=applied,
            random=machine.new_random(),
            runtime=self.runtime,
            host=self,
            observer=self,
        )
        view = machine.view
        view.replica, view.log = self.shell.replica, self.log
        if tables.applied.end_offset == 0:
            view.has_diverged = view.has_rotted = False
        self.store.note_applied()
        self.delivery = Delivery(
            self.log, self.shell.snapshots, self.feed, self.runtime, self._listener_failed, self.fatal
        )
        self.delivery.register(self.state_machine, tables.applied.end_offset or None)
        self.delivery.register(SlowListener(self), None)
        self.shell.start()
        self.state_machine.scrub_at_start()

    def shut_down(self) -> None:
        """Ask it to resign and end."""
        self._is_leaving = True
        self.shell.step(ShutdownRequested())

    def end(self, reason: str, crash: Crash) -> None:
        """The process has ended, and the disk keeps what such an end leaves on it."""
        if self.ended:
            return
        self.ended = True
        self.step.ended = reason
        if reason != "shut down" and hasattr(self, "shell") and self.shell.replica.is_fetching_snapshot:
            self.environment.marks.hit("killed while a snapshot is received")
        if reason != "shut down" and hasattr(self, "state_machine") and self.state_machine.has_acknowledged:
            self.environment.marks.hit("killed between an acknowledgement and its application")
        if hasattr(self, "shell"):
            self.shell.close()
        self.machine.disk.files.before_operation = None
        self.machine.disk.crash(crash)
        self.machine.database.crash(crash)
        view = self.machine.view
        view.replica, view.log, view.applied, view.tables = None, None, None, None
        view.watched = None
        view.positions = ()
        view.is_paused = view.is_behind = False
        for waiting in self._waiting.values():
            self._break_connection(waiting, is_refused=self.machine.refuses_while_down)
        self._waiting.clear()
        self.environment.process_ended(self, reason)

    def _break_connection(self, waiting: _Waiting, *, is_refused: bool) -> None:
        """Notify a process that waits for an answer that the connection broke; the network may lose that, too."""
        source = waiting.source
        failure = RequestFailed(waiting.correlation_id, connection_refused=is_refused)
        self.environment.network.send(
            self.machine.node_id,
            source.machine.node_id,
            lambda: source.run("connection broke", lambda: source.shell.outcome(failure)),
        )

    def break_connections_of(self, source_id: int) -> None:
        """The link from there breaks: requests that wait here are cancelled, and their senders notice."""
        for request_id, waiting in list(self._waiting.items()):
            if waiting.source.machine.node_id == source_id:
                del self._waiting[request_id]
                self._break_connection(waiting, is_refused=True)
                self.after(1_000, "caller gone", partial(self._forget, request_id))

    def forget_requests_of(self, source: SteppedProcess) -> None:
        """A peer has ended: its requests are canceled."""
        gone = [request_id for request_id, waiting in self._waiting.items() if waiting.source is source]
        for request_id in gone:
            del self._waiting[request_id]
            self.after(1_000, "caller gone", partial(self._forget, request_id))

    def _forget(self, request_id: int) -> None:
        self.shell.step(RequestCancelled(request_id))

    # --- messages -----------------------------------------------------------------------------------------------------

    def receive(self, request: Request, source: SteppedProcess, correlation_id: int) -> None:
        """A request arrived."""
        request_id = self.shell.new_id()
        self._waiting[request_id] = _Waiting(request, source, correlation_id)
        self.shell.step(RequestReceived(request_id, request))

    def receive_foreign(self, request: Request) -> None:
        """A request arrived whose answer goes nowhere."""
        self.shell.step(RequestReceived(self.shell.new_id(), request))

    def send(self, send: Send) -> None:
        """Send a request to a peer."""
        self.crash_point()
        self.environment.send_request(self, send)

    def reply(self, request_id: int, response: Response, records: bytes) -> None:
        """Answer a request."""
        self.crash_point()
        waiting = self._waiting.pop(request_id, None)
        self.environment.marks.hit(f"error: {response.error.name}")
        if waiting is None:
            return
        self.step.replies.append((waiting.request, response))
        self.environment.send_response(self, waiting.source, waiting.correlation_id, response, records)
        if self.killed_after_vote is not None and isinstance(response, VoteResponse) and _counts(response):
            self.crash = self.killed_after_vote
            raise ProcessKilled

    def append_too_much(self) -> None:
        """A client appends more than a batch may hold: that must be refused."""
        too_much = bytes(self.shell.config.batch_bytes_max + 1)
        try:
            self.shell.prepare_append(self.shell.new_id(), self.shell.replica.epoch, too_much, 1)
        except ApiError as error:
            self.environment.marks.hit(f"error: {error.code.name}")

    # --- what the shell says (raft.shell.shell_host.ShellHost) --------------------------------------------------------

    def append_completed(self, append_id: int, error: ApiError | None) -> None:
        """An append of the controller's or the service's is settled."""
        if not self.controller_host.append_completed(append_id, error):
            self.register_service.append_completed(append_id, error)

    def committed(self, committed_end_offset: Offset) -> None:
        """More is committed."""
        self.feed.advance(committed_end_offset)

    def leader_changed(
        self, leader: LeaderAndEpoch, leader_endpoint: Endpoint | None, epoch_start_offset: Offset | None
    ) -> None:
        """There is another leader, or none."""
        self.feed.set_leader(leader, leader_endpoint, epoch_start_offset)

    def leader_refused(self, refused: RefusedLeader | None) -> None:
        """The leader lacks what is committed, or none does any more."""
        self.environment.marks.hit(
            "a leader was refused" if refused is not None else "a leader that was refused is followed again"
        )

    def shutdown_complete(self) -> None:
        """It has resigned and ends, not from within its own shell."""
        if self._is_leaving:
            self._is_leaving = False
            self.after(0, "end", self._end_in_good_order)

    def _end_in_good_order(self) -> None:
        self.delivery.close(lambda error: self.end("shut down", Crash.KILLED))

    def listener_positions(self) -> list[ListenerPosition]:
        """How far the listeners have read."""
        return self.delivery.positions() if hasattr(self, "delivery") else []

    def snapshots_changed(self) -> None:
        """A listener may be waiting for one."""
        self.feed.wake()

    def snapshot_damaged(self) -> None:
        """Another one is taken."""
        self.environment.marks.hit("recovery: a damaged snapshot was deleted")
        self.state_machine.generator.replace_damaged()

    def state_diverged(self, expected: StateDigest, own: StateDigest) -> None:
        """The state machine's digest is not the quorum's: it stops, and is rebuilt at the next start."""
        self.environment.state_diverged(self, expected, own)
        self.state_machine.fence(expected, own)

    def may_rebuild_state(self) -> None:
        """The node restarts, and its database is rebuilt then."""
        self.environment.marks.hit("a fenced state machine may be rebuilt")
        self.environment.start_over(self)

    def _listener_failed(self, listener: SynchronousListener, error: Exception) -> None:
        """A replica that cannot apply a committed record must not continue (CT-18)."""
        self.fatal(error)

    def fatal(self, error: BaseException) -> None:
        """The process must end, or is being killed."""
        if isinstance(error, ProcessKilled):
            self.end("killed", self.crash)
        elif not self.ended:
            self.environment.process_failed(self, error)
            self.end(f"stopped itself: {error}", Crash.KILLED)

    def stepped(self, event: Event | None, actions: Sequence[Action], replica: ReplicaView) -> None:
        """Record the replica's event and its orders (raft.shell.observer.ShellObserver)."""
        if event is not None:
            self.step.events.append(event)
        self.step.actions.extend(actions)
        for decision in replica.decisions:
            if isinstance(decision, StateEntered):
                self.environment.marks.hit(edge_taken(decision))

    def note_positions(self) -> None:
        """Let the checkers see how far the listeners are."""
        if not self.ended and hasattr(self, "shell"):
            self.machine.view.positions = tuple(self.listener_positions())
            self.machine.view.now_ms = int(self.runtime.now_ms())


def _counts(response: VoteResponse) -> bool:
    return response.vote_granted and not response.pre_vote
