"""A process that runs in steps, and its interface to the world around it.

Everything that happens to a process is a step: one callback, from start to end. The process may be killed at any crash
point of a step: before each operation on its files, before each message that it sends, before each apply.
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


class ProcessHost(Protocol):
    """The world around a process (`kraftlog.sim.quorum.cluster.cluster.Cluster`)."""

    parameters: QuorumParameters
    event_queue: EventQueue
    network: Network
    marks: Marks
    cluster_id: str
    append_kill_rate: float
    """The probability that a controller's process is killed just before an append."""

    @property
    def voters(self) -> VoterSet:
        """The voters and their present endpoints."""

    @property
    def configured_voters(self) -> VoterSet:
        """The voter set in the configuration of processes that start now."""

    @property
    def bootstrap_endpoints(self) -> tuple[Endpoint, ...]:
        """The bootstrap servers in the configuration."""

    def finish_step(self, step: Step) -> None:
        """Check the invariants after a step of a node."""

    def report_violation(self, message: str, cause: BaseException | None = None) -> None:
        """Report a violation, which ends the run."""

    def log_opened(self, hardware: Hardware, *, is_recovering: bool) -> None:
        """Record that a process has opened its log. It may have discarded damaged records, which it fetches again."""

    def process_ended(self, process: SteppedProcess, reason: str) -> None:
        """Record that a process has ended."""

    def process_failed(self, process: SteppedProcess, error: BaseException) -> None:
        """Record that a process stops because of `error`."""

    def state_diverged(self, process: SteppedProcess, expected: StateDigest, own: StateDigest) -> None:
        """Record that a node detected that its state machine differs from the quorum's."""

    def start_over(self, process: SteppedProcess) -> None:
        """Restart a process that asked for it."""

    def reply_to_connection(self, node_id: int, endpoint: Endpoint) -> tuple[Reply, int]:
        """Return the reply of a broker's listener to a connection attempt, and its delay in microseconds."""

    def send_request(self, source: SteppedProcess, send: Send) -> None:
        """Send a replica's request."""

    def send_response(
        self, replier: SteppedProcess, source: SteppedProcess, correlation_id: int, response: Response, records: bytes
    ) -> None:
        """Send the response to `source`'s request."""


class SteppedProcess(ABC):
    """One life of a node, in steps.

    `kraftlog.sim.quorum.node.process.Process` opens the production code that runs in it.
    """

    shell: Shell
    runtime: Runtime
    log: SegmentedLog
    snapshots: SnapshotStore

    def __init__(self, host: ProcessHost, machine: Hardware) -> None:
        self.host = host
        self.machine = machine
        self.ended = False
        self.stalled_us = 0
        """How long the current step has stalled the loop for the disk."""
        self.is_on_disk_thread = False
        self.sync_ahead_us = 0
        """While work of the disk thread runs: the duration of its sync, which has elapsed but is called later."""
        self.crash_after: int | None = None
        """The number of crash points until the process is killed; None: it is not killed."""
        self.crash = Crash.KILLED
        """How the process ends when it is killed at a crash point."""
        self.killed_before_sync: Crash | None = None
        """If set: the process is killed this way just before its next sync of the log."""
        self.transfer: tuple[OffsetAndEpoch, Endpoint] | None = None
        """The last snapshot that the process requested, and its source."""
        self.step = Step(0, machine.view, "")
        self.feed = CommitFeed(LeaderAndEpoch(None, Epoch(0)))
        self._busy_until_us = 0
        self._numbers = 0
        self._backlog: list[tuple[str, Callable[[], None], Timer | None]] = []

    def new_number(self) -> int:
        """Return a new number for an operation or a read."""
        self._numbers += 1
        return self._numbers

    @abstractmethod
    def fatal(self, error: BaseException) -> None:
        """End the process because of `error`, which may be a planned kill."""

    def after(self, delay_us: int, label: str, callback: Callable[[], None]) -> Timer:
        """Run `callback` as a step of this process after `delay_us`."""

        def run() -> None:
            self.run(label, callback, timer)

        timer = self.host.event_queue.after(delay_us, run)
        return timer

    def run(self, label: str, callback: Callable[[], None], timer: Timer | None = None) -> None:
        """Run `callback` as a step now, or as soon as the process is neither paused nor waiting for its disk."""
        if self.ended or (timer is not None and timer.is_cancelled):
            return
        if self.machine.view.is_paused:
            self._backlog.append((label, callback, timer))
            return
        now_us = self.host.event_queue.now_us
        if self._busy_until_us > now_us:
            self.host.event_queue.after(self._busy_until_us - now_us, lambda: self.run(label, callback, timer))
            return
        self.stalled_us = 0
        self.step = Step(now_us, self.machine.view, label)
        try:
            callback()
        except BaseException as error:
            self.fatal(error)
        self._busy_until_us = now_us + self.stalled_us
        self.machine.view.is_behind = not self.ended and self.shell.is_behind
        self.host.finish_step(self.step)

    def resume(self) -> None:
        """End the pause. What arrived during it is handled now, messages before timers, as asyncio does."""
        backlog, self._backlog = self._backlog, []
        for label, callback, timer in sorted(backlog, key=lambda entry: entry[0] == "timer"):
            self.run(label, callback, timer)

    def crash_point(self) -> None:
        """Kill the process here if a fault planned it."""
        if self.ended:
            raise ProcessKilled
        if self.crash_after is not None:
            self.crash_after -= 1
            if self.crash_after < 0:
                self.host.marks.hit("fault: killed between two operations")
                raise ProcessKilled

    def before_operation(self, operation: str, path: str) -> None:
        """Mark a crash point before a file operation. A sync stalls the loop, unless it runs on the disk thread."""
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
