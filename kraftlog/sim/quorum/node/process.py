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
from kraftlog.sim.quorum.node.stepped_process import ProcessHost, SteppedProcess
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
    """A request without an answer yet, and the process that waits for it."""

    request: Request
    source: SteppedProcess
    correlation_id: int


class Process(SteppedProcess):
    """One life of a node. It is its shell's host and observer (`raft.shell.shell_host`, `raft.shell.observer`)."""

    def __init__(self, host: ProcessHost, machine: Hardware) -> None:
        super().__init__(host, machine)
        self.configured_voters = host.configured_voters
        """The voter set in its configuration when it was started."""
        self.killed_after_vote: Crash | None = None
        """If set: the process is killed this way as soon as a vote that it granted has been sent."""
        self._waiting: dict[int, _Waiting] = {}
        self._is_leaving = False

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the data directory and start in the role that its state requires."""
        self.step.started = True
        machine, host = self.machine, self.host
        files = machine.disk.files
        files.before_operation = self.before_operation
        directory = DataDirectory.open(files, DIRECTORY, cluster_id=host.cluster_id, node_id=machine.key.node_id)
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
            host.parameters.log,
            self.snapshots,
            election_state=election_state,
            has_others=not voters.is_only_voter(machine.key),
            applied=applied,
        )
        self.log.reserve(0)
        if self.log.recovering is not None:
            host.marks.hit("recovery: a damaged log is fetched again")
            if not self.log.epochs.holds(applied, self.log.log_end_offset):
                host.marks.hit("recovery: a log behind what was applied is fetched again")
        host.log_opened(machine, is_recovering=self.log.recovering is not None)
        self.runtime = SimulatedRuntime(self)
        self.store = SimulatedStore(self, tables, machine.new_random())
        self.state_machine = StateMachine(self, self.store)
        self.register_service = RegisterService(self, self.store, self.state_machine)
        self.state_machine.subscribe(self.register_service)
        self.read_service = ReadService(self, self.store, self.state_machine)
        self.controller_host = ControllerHost(self, self.store, self.state_machine, self.read_service)
        self.shell = Shell(
            identity=Identity(
                cluster_id=host.cluster_id,
                key=machine.key,
                endpoint=machine.endpoint,
                voters=voters,
                bootstrap_endpoints=host.bootstrap_endpoints,
            ),
            config=replace(host.parameters.quorum, fetch_version=machine.fetch_version),
            log=self.log,
            quorum_state=quorum_state,
            election_state=election_state,
            snapshots=self.snapshots,
            log_start=host.parameters.log_start,
            applied=applied,
            random=machine.new_random(),
            runtime=self.runtime,
            host=self,
            observer=self,
        )
        view = machine.view
        view.replica, view.log = self.shell.replica, self.log
        if tables.applied.end_offset == 0:
            view.has_diverged = view.has_bit_rot = False
        self.store.note_applied()
        self.delivery = Delivery(
            self.log, self.shell.snapshots, self.feed, self.runtime, self._listener_failed, self.fatal
        )
        self.delivery.register(self.state_machine, tables.applied.end_offset or None)
        self.delivery.register(SlowListener(self), None)
        self.shell.start()
        self.state_machine.scrub_at_start()

    def shut_down(self) -> None:
        """Start a controlled shutdown: the node resigns, then the process ends."""
        self._is_leaving = True
        self.shell.step(ShutdownRequested())

    def end(self, reason: str, crash: Crash) -> None:
        """End the process. `crash` says what the disk keeps."""
        if self.ended:
            return
        self.ended = True
        self.step.ended = reason
        if reason != "shut down" and hasattr(self, "shell") and self.shell.replica.is_fetching_snapshot:
            self.host.marks.hit("killed while a snapshot is received")
        if reason != "shut down" and hasattr(self, "state_machine") and self.state_machine.has_acknowledged:
            self.host.marks.hit("killed between an acknowledgement and its application")
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
        self.host.process_ended(self, reason)

    def _break_connection(self, waiting: _Waiting, *, is_refused: bool) -> None:
        """Notify the sender of a request that the connection broke. The network may lose the notification, too."""
        source = waiting.source
        failure = RequestFailed(waiting.correlation_id, connection_refused=is_refused)
        self.host.network.send(
            self.machine.node_id,
            source.machine.node_id,
            lambda: source.run("connection broke", lambda: source.shell.outcome(failure)),
        )

    def break_connections_of(self, source_id: int) -> None:
        """Break the connection from a node: cancel its waiting requests, and notify it."""
        for request_id, waiting in list(self._waiting.items()):
            if waiting.source.machine.node_id == source_id:
                del self._waiting[request_id]
                self._break_connection(waiting, is_refused=True)
                self.after(1_000, "caller gone", partial(self._forget, request_id))

    def forget_requests_of(self, source: SteppedProcess) -> None:
        """Cancel the requests of a peer whose process has ended."""
        gone = [request_id for request_id, waiting in self._waiting.items() if waiting.source is source]
        for request_id in gone:
            del self._waiting[request_id]
            self.after(1_000, "caller gone", partial(self._forget, request_id))

    def _forget(self, request_id: int) -> None:
        self.shell.step(RequestCancelled(request_id))

    # --- messages -----------------------------------------------------------------------------------------------------

    def receive(self, request: Request, source: SteppedProcess, correlation_id: int) -> None:
        """Handle a request."""
        request_id = self.shell.new_id()
        self._waiting[request_id] = _Waiting(request, source, correlation_id)
        self.shell.step(RequestReceived(request_id, request))

    def receive_foreign(self, request: Request) -> None:
        """Handle a request of an unknown process, whose answer is not sent."""
        self.shell.step(RequestReceived(self.shell.new_id(), request))

    def send(self, send: Send) -> None:
        """Send a request to a peer."""
        self.crash_point()
        self.host.send_request(self, send)

    def reply(self, request_id: int, response: Response, records: bytes) -> None:
        """Send the response to a request."""
        self.crash_point()
        waiting = self._waiting.pop(request_id, None)
        self.host.marks.hit(f"error: {response.error.name}")
        if waiting is None:
            return
        self.step.replies.append((waiting.request, response))
        self.host.send_response(self, waiting.source, waiting.correlation_id, response, records)
        if self.killed_after_vote is not None and isinstance(response, VoteResponse) and _counts(response):
            self.crash = self.killed_after_vote
            raise ProcessKilled

    def append_too_much(self) -> None:
        """Append more than a batch may hold, which must be refused."""
        too_much = bytes(self.shell.config.batch_bytes_max + 1)
        try:
            self.shell.prepare_append(self.shell.new_id(), self.shell.replica.epoch, too_much, 1)
        except ApiError as error:
            self.host.marks.hit(f"error: {error.code.name}")

    # --- the shell's callbacks (raft.shell.shell_host.ShellHost) ------------------------------------------------------

    def append_completed(self, append_id: int, error: ApiError | None) -> None:
        """Pass the outcome of an append to the controller or the register service."""
        if not self.controller_host.append_completed(append_id, error):
            self.register_service.append_completed(append_id, error)

    def committed(self, committed_end_offset: Offset) -> None:
        """Deliver records up to the new committed end offset to the listeners."""
        self.feed.advance(committed_end_offset)

    def leader_changed(
        self, leader: LeaderAndEpoch, leader_endpoint: Endpoint | None, epoch_start_offset: Offset | None
    ) -> None:
        """Notify the listeners of the new leader, or that there is none."""
        self.feed.set_leader(leader, leader_endpoint, epoch_start_offset)

    def leader_refused(self, refused: RefusedLeader | None) -> None:
        """Count that a leader was refused because its log lacks committed records, or is no longer refused."""
        self.host.marks.hit(
            "a leader was refused" if refused is not None else "a leader that was refused is followed again"
        )

    def shutdown_complete(self) -> None:
        """End the process after its resignation, in a step of its own."""
        if self._is_leaving:
            self._is_leaving = False
            self.after(0, "end", self._end_in_good_order)

    def _end_in_good_order(self) -> None:
        self.delivery.close(lambda error: self.end("shut down", Crash.KILLED))

    def listener_positions(self) -> list[ListenerPosition]:
        """Return the positions of the listeners."""
        return self.delivery.positions() if hasattr(self, "delivery") else []

    def snapshots_changed(self) -> None:
        """Wake listeners that may be waiting for a snapshot."""
        self.feed.wake()

    def snapshot_damaged(self) -> None:
        """Take another snapshot in place of the damaged one."""
        self.host.marks.hit("recovery: a damaged snapshot was deleted")
        self.state_machine.generator.replace_damaged()

    def state_diverged(self, expected: StateDigest, own: StateDigest) -> None:
        """Fence the state machine, whose digest differs from the quorum's. It is rebuilt at the next start."""
        self.host.state_diverged(self, expected, own)
        self.state_machine.fence(expected, own)

    def may_rebuild_state(self) -> None:
        """Restart the node, which then rebuilds its database."""
        self.host.marks.hit("a fenced state machine may be rebuilt")
        self.host.start_over(self)

    def _listener_failed(self, listener: SynchronousListener, error: Exception) -> None:
        """End the process: a replica that cannot apply a committed record must not continue (CT-18)."""
        self.fatal(error)

    def fatal(self, error: BaseException) -> None:
        """End the process because of `error`, which may be a planned kill."""
        if isinstance(error, ProcessKilled):
            self.end("killed", self.crash)
        elif not self.ended:
            self.host.process_failed(self, error)
            self.end(f"stopped itself: {error}", Crash.KILLED)

    def stepped(self, event: Event | None, actions: Sequence[Action], replica: ReplicaView) -> None:
        """Record the replica's event and its actions (raft.shell.observer.ShellObserver)."""
        if event is not None:
            self.step.events.append(event)
        self.step.actions.extend(actions)
        for decision in replica.decisions:
            if isinstance(decision, StateEntered):
                self.host.marks.hit(edge_taken(decision))

    def note_positions(self) -> None:
        """Update the listeners' positions in the node's view."""
        if not self.ended and hasattr(self, "shell"):
            self.machine.view.positions = tuple(self.listener_positions())
            self.machine.view.now_ms = int(self.runtime.now_ms())


def _counts(response: VoteResponse) -> bool:
    return response.vote_granted and not response.pre_vote
