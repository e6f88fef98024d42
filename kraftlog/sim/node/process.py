"""One life of a node: the production shell, log, quorum state and state machine on a simulated machine.

Everything that happens to it is a step: one callback, from beginning to end. It may be killed at any point of a step:
before each operation on its files, each message that it sends, each apply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ProtocolError
from kraftlog.sim.node.apply_loop import Applying
from kraftlog.sim.node.controller_host import Controlling
from kraftlog.sim.node.register_service import Service
from kraftlog.sim.node.runtime import SimulatedRuntime
from kraftlog.sim.node.slow_listener import SLOW_LISTENER, SlowListener
from kraftlog.sim.observation.observed import STATE_MACHINE, Step
from kraftlog.sim.virtual.crash import ProcessKilled
from kraftlog.sim.virtual.disk import DIRECTORY, Crash
from kraftlog.sim.virtual.event_queue import Appointment
from raft.core.actions import Action, Send
from raft.core.events import (
    Event,
    RequestCancelled,
    RequestFailed,
    RequestReceived,
    ShutdownRequested,
    StateDigestReported,
    StateMachineFenced,
)
from raft.core.messages import Request, Response, VoteResponse
from raft.core.types import LeaderAndEpoch, Offset, OffsetAndEpoch, RefusedLeader, StateDigest
from raft.shell.log_start_keeper import ListenerPosition
from raft.shell.open_log import open_log
from raft.shell.ports import Identity
from raft.shell.shell import Shell
from raft.shell.starting_voters import starting_voters
from raft.storage.directory import DataDirectory
from raft.storage.quorum_state import QuorumStateStore
from raft.storage.segment import parse_segment_name
from snapshot.store import SnapshotStore

if TYPE_CHECKING:
    from kraftlog.sim.node.machine import Machine
    from kraftlog.sim.world import World

SYNCS: Final = frozenset({"fsync", "fdatasync", "fsync_directory"})


class _Waiting(NamedTuple):
    """Who waits for the answer to a request."""

    request: Request
    source: Process
    correlation_id: int


class ObservedShell(Shell):
    """The production shell; the simulator reads along what the core is told and orders."""

    def __init__(self, process: Process, **settings: object) -> None:
        self._process = process
        super().__init__(**settings)  # type: ignore[arg-type]

    def step(self, event: Event) -> None:
        """Note the event, then let the shell have it."""
        self._process.step.events.append(event)
        super().step(event)

    @property
    def has_pending_actions(self) -> bool:
        """Whether actions wait for the quorum state to be on disk."""
        return bool(self._actions)

    def _take(self, actions: Sequence[Action]) -> None:
        self._process.note_actions(actions)
        super()._take(actions)


class Process:
    """See the module. It is the outlet of its shell (`raft.shell.shell.Outlet`)."""

    def __init__(self, world: World, machine: Machine) -> None:
        self.world = world
        self.machine = machine
        self.ended = False
        self.stalled_us = 0
        """How long the present step has kept the loop waiting for the disk."""
        self.is_on_disk_thread = False
        self.sync_ahead_us = 0
        """Of the time before work of the disk's thread became a step: what its sync takes, until it is called."""
        self.crash_after: int | None = None
        """It is killed at the point after that many more."""
        self.crash = Crash.KILLED
        """How it ends when it is killed at a point."""
        self.killed_after_vote: Crash | None = None
        """If set: it is killed like that as soon as a vote that it granted has left."""
        self.killed_before_sync: Crash | None = None
        """If set: it is killed like that as soon as it is about to sync its log."""
        self.transfer: tuple[OffsetAndEpoch, Endpoint] | None = None
        """The snapshot that it asked for last, and whom."""
        self.step = Step(0, machine.view, "")
        self.committed_end_offset = Offset(0)
        self.leader: tuple[LeaderAndEpoch, Endpoint | None, Offset | None] | None = None
        self.configured_voters = world.configured_voters
        """The voter set in its configuration when it was started."""
        self._busy_until_us = 0
        self._backlog: list[tuple[str, Callable[[], None], Appointment | None]] = []
        self._waiting: dict[int, _Waiting] = {}
        self._is_leaving = False
        self.is_fenced = False
        """Its state machine differs from the quorum's."""

    # --- steps --------------------------------------------------------------------------------------------------------

    def after(self, delay_us: int, label: str, callback: Callable[[], None]) -> Appointment:
        """Let `callback` be a step of this process in `delay_us`."""

        def run() -> None:
            self.run(label, callback, appointment)

        appointment = self.world.agenda.after(delay_us, run)
        return appointment

    def run(self, label: str, callback: Callable[[], None], appointment: Appointment | None = None) -> None:
        """Let `callback` be a step now, or as soon as the process is neither paused nor waiting for its disk."""
        if self.ended or (appointment is not None and appointment.is_cancelled):
            return
        if self.machine.view.is_paused:
            self._backlog.append((label, callback, appointment))
            return
        now_us = self.world.agenda.now_us
        if self._busy_until_us > now_us:
            self.world.agenda.after(self._busy_until_us - now_us, lambda: self.run(label, callback, appointment))
            return
        self.stalled_us = 0
        self.step = Step(now_us, self.machine.view, label)
        try:
            callback()
        except BaseException as error:
            self.fatal(error)
        self._busy_until_us = now_us + self.stalled_us
        self.machine.view.is_behind = not self.ended and self.shell.has_pending_actions
        self.world.finish_step(self.step)

    def resume(self) -> None:
        """It was paused and goes on: everything that came meanwhile comes now, messages before timers as on asyncio."""
        backlog, self._backlog = self._backlog, []
        for label, callback, appointment in sorted(backlog, key=lambda entry: entry[0] == "timer"):
            self.run(label, callback, appointment)

    def crash_point(self) -> None:
        """A point at which the process may be killed."""
        if self.ended:
            raise ProcessKilled
        if self.crash_after is not None:
            self.crash_after -= 1
            if self.crash_after < 0:
                self.world.marks.hit("fault: killed between two operations")
                raise ProcessKilled

    def _before_operation(self, operation: str, path: str) -> None:
        self.crash_point()
        if (
            self.killed_before_sync is not None
            and operation in SYNCS
            and parse_segment_name(path.rpartition("/")[2]) is not None
        ):
            self.crash = self.killed_before_sync
            raise ProcessKilled
        if operation not in SYNCS:
            return
        if self.is_on_disk_thread:
            self.sync_ahead_us = 0
        else:
            self.stalled_us += self.machine.disk.draw_sync_us()

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open what is on the disk and take up the role that it gives."""
        self.step.started = True
        machine, world = self.machine, self.world
        files = machine.disk.files
        files.before_operation = self._before_operation
        directory = DataDirectory.open(files, DIRECTORY, cluster_id=world.cluster_id, node_id=machine.key.node_id)
        quorum_state = QuorumStateStore(files, directory.path)
        election_state = quorum_state.load()
        self.tables = machine.database.open()
        self.snapshots = SnapshotStore(files, directory.snapshots_path, token=machine.new_token)
        if machine.database.must_forget_snapshots:
            self.snapshots.delete_all()
            machine.database.must_forget_snapshots = False
        voters, _ = starting_voters(directory, self.configured_voters)
        applied = OffsetAndEpoch(epoch=self.tables.applied.epoch, offset=self.tables.applied.end_offset)
        self.log = open_log(
            directory,
            world.parameters.log,
            self.snapshots,
            election_state=election_state,
            has_others=not voters.is_only_voter(machine.key),
            applied=applied,
        )
        self.log.reserve(0)
        if self.log.recovering is not None:
            world.marks.hit("recovery: a damaged log is fetched again")
            if not self.log.epochs.holds(applied, self.log.log_end_offset):
                world.marks.hit("recovery: a log behind what was applied is fetched again")
        world.atlas.note_start(machine, is_recovering=self.log.recovering is not None)
        self.applying = Applying(self)
        self._slow_listener = SlowListener(self)
        self.runtime = SimulatedRuntime(self)
        self.service = Service(self)
        self.controlling = Controlling(self)
        self.shell = ObservedShell(
            self,
            identity=Identity(
                cluster_id=world.cluster_id,
                key=machine.key,
                endpoint=machine.endpoint,
                voters=voters,
                bootstrap_endpoints=world.bootstrap_endpoints,
            ),
            config=replace(world.parameters.quorum, fetch_version=machine.fetch_version),
            log=self.log,
            quorum_state=quorum_state,
            election_state=election_state,
            snapshots=self.snapshots,
            log_start=world.parameters.log_start,
            applied=applied,
            random=machine.new_random(),
            runtime=self.runtime,
            outlet=self,
        )
        view = machine.view
        view.replica, view.log = self.shell.replica, self.log
        if self.tables.applied.end_offset == 0:
            view.has_diverged = view.has_rotted = False
        self.applying.note_applied()
        self.shell.start()
        self._slow_listener.start()
        if self.tables.state_digest is not None:
            self.shell.step(StateDigestReported(self.tables.state_digest))
        self.scrub()

    def shut_down(self) -> None:
        """Ask it to hand over and end."""
        self._is_leaving = True
        self.shell.step(ShutdownRequested())

    def end(self, reason: str, crash: Crash) -> None:
        """The process is gone, and the disk keeps what such an end leaves it."""
        if self.ended:
            return
        self.ended = True
        self.step.ended = reason
        if reason != "shut down" and hasattr(self, "shell") and self.shell.replica._context.download is not None:
            self.world.marks.hit("killed while a snapshot is received")
        if reason != "shut down" and hasattr(self, "applying") and self.applying.has_acknowledged:
            self.world.marks.hit("killed between an acknowledgement and its application")
        if hasattr(self, "shell"):
            self.shell.close()
        self.machine.disk.files.before_operation = None
        self.machine.disk.crash(crash)
        self.machine.database.crash(crash)
        view = self.machine.view
        view.replica, view.log, view.applied, view.tables = None, None, None, None
        view.positions = ()
        view.is_paused = view.is_behind = False
        for waiting in self._waiting.values():
            self._break_connection(waiting)
        self._waiting.clear()
        self.world.process_ended(self, reason)

    def _break_connection(self, waiting: _Waiting) -> None:
        """Who waits for an answer learns that the connection broke, if the news gets through."""
        source = waiting.source
        self.world.network.send(
            self.machine.node_id,
            source.machine.node_id,
            lambda: source.run("connection broke", lambda: source.shell.outcome(RequestFailed(waiting.correlation_id))),
        )

    def forget_requests_of(self, source: Process) -> None:
        """A peer is gone; whoever waits in its name waits no more."""
        gone = [request_id for request_id, waiting in self._waiting.items() if waiting.source is source]
        for request_id in gone:
            del self._waiting[request_id]
            self.after(1_000, "caller gone", partial(self._forget, request_id))

    def _forget(self, request_id: int) -> None:
        self.shell.step(RequestCancelled(request_id))

    # --- messages -----------------------------------------------------------------------------------------------------

    def receive(self, request: Request, source: Process, correlation_id: int) -> None:
        """A request arrived."""
        request_id = self.shell.new_id()
        self._waiting[request_id] = _Waiting(request, source, correlation_id)
        self.shell.step(RequestReceived(request_id, request))

    def receive_foreign(self, request: Request) -> None:
        """A request arrived that nobody waits for the answer to."""
        self.shell.step(RequestReceived(self.shell.new_id(), request))

    def send(self, send: Send) -> None:
        """Send a request to a peer."""
        self.crash_point()
        self.world.send_request(self, send)

    def reply(self, request_id: int, response: Response, records: bytes) -> None:
        """Answer a request."""
        self.crash_point()
        waiting = self._waiting.pop(request_id, None)
        self.world.marks.hit(f"error: {response.error.name}")
        if waiting is None:
            return
        self.step.replies.append((waiting.request, response))
        self.world.send_response(self, waiting.source, waiting.correlation_id, response, records)
        if self.killed_after_vote is not None and isinstance(response, VoteResponse) and _counts(response):
            self.crash = self.killed_after_vote
            raise ProcessKilled

    def append_too_much(self) -> None:
        """A client appends more than a batch may hold: that must be refused."""
        too_much = bytes(self.shell.config.batch_bytes_max + 1)
        try:
            self.shell.prepare_append(self.shell.new_id(), self.shell.replica.epoch, too_much, 1)
        except ProtocolError as error:
            self.world.marks.hit(f"error: {error.code.name}")

    # --- what the shell says (raft.shell.ports.Outlet) ----------------------------------------------------------------

    def append_settled(self, append_id: int, error: ProtocolError | None) -> None:
        """An append of the controller's or the service's is settled."""
        if not self.controlling.append_settled(append_id, error):
            self.service.append_settled(append_id, error)

    def committed(self, committed_end_offset: Offset) -> None:
        """More is committed."""
        if committed_end_offset > self.committed_end_offset:
            self.committed_end_offset = committed_end_offset
            self.applying.schedule()

    def leader_changed(
        self, leader: LeaderAndEpoch, leader_endpoint: Endpoint | None, epoch_start_offset: Offset | None
    ) -> None:
        """There is another leader, or none."""
        self.leader = (leader, leader_endpoint, epoch_start_offset)
        self.applying.schedule()

    def leader_refused(self, refused: RefusedLeader | None) -> None:
        """The leader lacks what is committed, or none does any more."""
        self.world.marks.hit(
            "a leader was refused" if refused is not None else "a leader that was refused is followed again"
        )

    def shutdown_complete(self) -> None:
        """It has handed over and ends, not from within its own shell."""
        if self._is_leaving:
            self._is_leaving = False
            self.after(0, "end", self._end_in_good_order)

    def _end_in_good_order(self) -> None:
        self.controlling.shut_down()
        self.end("shut down", Crash.KILLED)

    def listener_positions(self) -> list[ListenerPosition]:
        """How far the listeners have read."""
        return [
            ListenerPosition(STATE_MACHINE, self.applying.next_offset),
            ListenerPosition(SLOW_LISTENER, self._slow_listener.cursor.next_offset),
        ]

    def snapshots_changed(self) -> None:
        """The state machine may be waiting for one."""
        self.applying.schedule()

    def snapshot_damaged(self) -> None:
        """Another one is taken."""
        self.world.marks.hit("recovery: a damaged snapshot was deleted")
        if hasattr(self, "applying"):
            self.applying.take_snapshot_soon()

    def state_diverged(self, expected: StateDigest, own: StateDigest) -> None:
        """The state machine came to something else than the quorum's: it stops, and is made anew at the next start."""
        self.is_fenced = True
        self.machine.database.is_set_aside = True
        self.world.state_diverged(self, expected, own)

    def scrub(self) -> None:
        """Read the tables through; a state machine that finds rot stops, and asks to be made anew."""
        reason = self.machine.database.find_rot()
        if reason is None or self.is_fenced:
            return
        self.world.marks.hit("rot was found by a scrub")
        if not self.machine.view.has_rotted:
            self.world.complain(f"node {self.machine.node_id} found rot where there is none: {reason}")
        self.is_fenced = True
        self.machine.database.is_set_aside = self.machine.database.is_rotten = True
        self.shell.step(StateMachineFenced())

    def may_rebuild_state(self) -> None:
        """The node starts over: its database is made anew then."""
        self.world.marks.hit("a fenced state machine may be made anew")
        self.world.start_over(self)

    def fatal(self, error: BaseException) -> None:
        """The process must end, or is being killed."""
        if isinstance(error, ProcessKilled):
            self.end("killed", self.crash)
        elif not self.ended:
            self.world.process_failed(self, error)
            self.end(f"stopped itself: {error}", Crash.KILLED)

    def note_actions(self, actions: Sequence[Action]) -> None:
        """Read along what the core orders."""
        self.step.actions.extend(actions)
        for action in actions:
            self.world.marks.hit(type(action).__name__)

    def note_positions(self) -> None:
        """Let the checkers see how far the listeners are."""
        if not self.ended and hasattr(self, "shell"):
            self.machine.view.positions = tuple(self.listener_positions())
            self.machine.view.now_ms = int(self.runtime.now_ms())


def _counts(response: VoteResponse) -> bool:
    return response.vote_granted and not response.pre_vote
