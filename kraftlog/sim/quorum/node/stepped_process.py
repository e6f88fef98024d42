"""A process that runs in steps, and its interface to the world around it.

Everything that happens to a process is a step: one callback, from beginning to end. It may be killed at any point of a
step: before each operation on its files, each message that it sends, each apply.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, Protocol

from kraftbase.endpoint import Endpoint, Reply
from kraftbase.runtime import Runtime
from kraftbase.types import Epoch
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.virtual.crash import Crash, ProcessKilled
from kraftlog.sim.engine.virtual.event_queue import EventQueue, Timer
from kraftlog.sim.engine.virtual.network import Network
from kraftlog.sim.quorum.node.hardware import Hardware
from kraftlog.sim.quorum.observation.step import Step
from kraftlog.sim.quorum.parameters import QuorumParameters
from raft.commits import CommitFeed
from raft.core.actions import Send
from raft.core.messages import Response
from raft.core.types import LeaderAndEpoch, OffsetAndEpoch, StateDigest
from raft.core.voters import VoterSet
from raft.shell.shell import Shell
from raft.storage.segment import parse_segment_name
from raft.storage.segmented_log import SegmentedLog
from snapshot.store import SnapshotStore

SYNCS: Final = frozenset({"fsync", "fdatasync", "fsync_directory"})


class Environment(Protocol):
    """What a process has around it (`kraftlog.sim.quorum.cluster.cluster.Cluster`)."""

    parameters: QuorumParameters
    event_queue: EventQueue
    network: Network
    marks: Marks
    cluster_id: str
    append_kill_rate: float
    """How often a controller's process is killed as it is about to append."""

    @property
    def voters(self) -> VoterSet:
        """The voters, and where each listens now."""

    @property
    def configured_voters(self) -> VoterSet:
        """The voter set in the configuration of processes that start now."""

    @property
    def bootstrap_endpoints(self) -> tuple[Endpoint, ...]:
        """The servers to start from in the configuration."""

    def finish_step(self, step: Step) -> None:
        """Something happened to a node: check everything."""

    def report_violation(self, message: str, cause: BaseException | None = None) -> None:
        """A violation was seen: the run ends with it."""

    def log_opened(self, hardware: Hardware, *, is_recovering: bool) -> None:
        """A process has opened the log on its disk; maybe it has discarded what was there, and fetches it again."""

    def process_ended(self, process: SteppedProcess, reason: str) -> None:
        """A process has ended."""

    def process_failed(self, process: SteppedProcess, error: BaseException) -> None:
        """A process stops itself."""

    def state_diverged(self, process: SteppedProcess, expected: StateDigest, own: StateDigest) -> None:
        """A node found out that its state machine differs from the quorum's."""

    def start_over(self, process: SteppedProcess) -> None:
        """A process wants to end and to be started again."""

    def reply_to_connection(self, node_id: int, endpoint: Endpoint) -> tuple[Reply, int]:
        """What a listener of a broker replies to a connection of a node, and after how many microseconds."""

    def send_request(self, source: SteppedProcess, send: Send) -> None:
        """Send a replica's request."""

    def send_response(
        self, replier: SteppedProcess, source: SteppedProcess, correlation_id: int, response: Response, records: bytes
    ) -> None:
        """Send the answer to `source`'s request."""


class SteppedProcess(ABC):
    """One life of a node, step by step. What runs in it, `kraftlog.sim.quorum.node.process.Process` opens."""

    shell: Shell
    runtime: Runtime
    log: SegmentedLog
    snapshots: SnapshotStore

    def __init__(self, environment: Environment, machine: Hardware) -> None:
        self.environment = environment
        self.machine = machine
        self.ended = False
        self.stalled_us = 0
        """How long the present step has kept the loop waiting for the disk."""
        self.is_on_disk_thread = False
        self.sync_ahead_us = 0
        """While work of the disk's thread runs: how much of the elapsed time the sync took that it has yet to call."""
        self.crash_after: int | None = None
        """The number of crash points that it survives before it is killed; None: it is not killed."""
        self.crash = Crash.KILLED
        """How it ends when it is killed at a point."""
        self.killed_before_sync: Crash | None = None
        """If set: it is killed like that just before it next syncs its log."""
        self.transfer: tuple[OffsetAndEpoch, Endpoint] | None = None
        """The last snapshot that it requested, and from where."""
        self.step = Step(0, machine.view, "")
        self.feed = CommitFeed(LeaderAndEpoch(None, Epoch(0)))
        self._busy_until_us = 0
        self._numbers = 0
        self._backlog: list[tuple[str, Callable[[], None], Timer | None]] = []

    def new_number(self) -> int:
        """For something that the process is asked for."""
        self._numbers += 1
        return self._numbers

    @abstractmethod
    def fatal(self, error: BaseException) -> None:
        """The process must end, or is being killed."""

    def after(self, delay_us: int, label: str, callback: Callable[[], None]) -> Timer:
        """Let `callback` be a step of this process in `delay_us`."""

        def run() -> None:
            self.run(label, callback, timer)

        timer = self.environment.event_queue.after(delay_us, run)
        return timer

    def run(self, label: str, callback: Callable[[], None], timer: Timer | None = None) -> None:
        """Let `callback` be a step now, or as soon as the process is neither paused nor waiting for its disk."""
        if self.ended or (timer is not None and timer.is_cancelled):
            return
        if self.machine.view.is_paused:
            self._backlog.append((label, callback, timer))
            return
        now_us = self.environment.event_queue.now_us
        if self._busy_until_us > now_us:
            self.environment.event_queue.after(self._busy_until_us - now_us, lambda: self.run(label, callback, timer))
            return
        self.stalled_us = 0
        self.step = Step(now_us, self.machine.view, label)
        try:
            callback()
        except BaseException as error:
            self.fatal(error)
        self._busy_until_us = now_us + self.stalled_us
        self.machine.view.is_behind = not self.ended and self.shell.is_behind
        self.environment.finish_step(self.step)

    def resume(self) -> None:
        """It was paused and continues: what arrived meanwhile is handled now, messages before timers as on asyncio."""
        backlog, self._backlog = self._backlog, []
        for label, callback, timer in sorted(backlog, key=lambda entry: entry[0] == "timer"):
            self.run(label, callback, timer)

    def crash_point(self) -> None:
        """A point at which the process may be killed."""
        if self.ended:
            raise ProcessKilled
        if self.crash_after is not None:
            self.crash_after -= 1
            if self.crash_after < 0:
                self.environment.marks.hit("fault: killed between two operations")
                raise ProcessKilled

    def before_operation(self, operation: str, path: str) -> None:
        """A file operation is about to happen; a sync stalls the loop, unless it is on the disk's thread."""
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
