"""Feeds listeners from the committed log, by the contract in `raft.listener`; on a node and in the simulator.

Everything happens in callbacks of the runtime: each listener has at most one call in progress, and its next call is
chosen in a callback of its own, so that a listener that catches up does not block the others (LI-07).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from kraftbase.errors import ApiError, ErrorCode, StorageError
from kraftbase.runtime import OnDone, Runtime
from kraftbase.sentinels import UNKNOWN_OFFSET
from kraftbase.types import Offset
from raft.commits import Snapshots
from raft.core.types import Batch, LeaderAndEpoch, OffsetAndEpoch
from raft.listener import Listener
from raft.shell.log_start_keeper import ListenerPosition
from raft.synchronous_listener import SynchronousListener, TaskListener
from snapshot.reader import SnapshotReader

READER_BYTES_MAX: Final = 1024 * 1024
"""The size of a reader: about this many bytes, and at least one batch."""

FAULTS_KEPT_MAX: Final = 16
"""How many failed listeners are remembered by name; a program may register any number of listeners."""

FAULT_LETTERS_MAX: Final = 200

AnyListener: TypeAlias = Listener | SynchronousListener


class CommittedLog(Protocol):
    """The source of batches: a node's log."""

    @property
    def log_start_offset(self) -> Offset:
        """The offset below which records exist only in a snapshot."""
        ...

    def read_batches(self, start_offset: Offset, max_bytes: int, end_offset: Offset | None = None) -> tuple[Batch, ...]:
        """Batches from the one that holds `start_offset`: at least one, none past `end_offset`."""
        ...


class CommitState(Protocol):
    """The committed end of the log, and the leader. `raft.commits.CommitFeed` is one implementation."""

    @property
    def committed_end_offset(self) -> Offset:
        """The offset below which everything is committed and on this node's disk."""
        ...

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader."""
        ...

    @property
    def epoch_start_offset(self) -> Offset | None:
        """Set iff this node leads: where its epoch starts (LI-05)."""
        ...

    def set_change_callback(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` after each change from now on, and after each new snapshot."""
        ...


class Delivery:
    """The listeners of one node. An exception that a listener raises goes to `on_fault` (LI-08)."""

    def __init__(
        self,
        log: CommittedLog,
        snapshots: Snapshots,
        feed: CommitState,
        runtime: Runtime,
        on_fault: Callable[[Any, Exception], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """`on_fault` is called with the listener and its exception.

        `on_fatal` is called with errors that must end the process: a violated invariant, wherever raised, or a failed
        read.
        """
        self._log = log
        self._snapshots = snapshots
        self._feed = feed
        self._runtime = runtime
        self._on_fault = on_fault
        self._on_fatal = on_fatal
        self._feedings: dict[int, _Feeding] = {}
        """The feedings, by the identity of the registered listener."""
        self.faults: dict[str, str] = {}
        """The exceptions of failed listeners, by listener name; for operators."""
        feed.set_change_callback(self._wake)

    def register(self, listener: AnyListener, start_offset: Offset | None) -> bool:
        """Start to feed `listener` from the batch that holds `start_offset`; return False if it is registered (LI-06).

        None: the listener is new. It begins with the newest snapshot, if one exists and it can load it, else where the
        log starts.
        """
        if id(listener) in self._feedings:
            return False
        target = TaskListener(listener) if isinstance(listener, Listener) else listener
        cursor = ListenerCursor(self._log, start_offset, can_load_snapshots=target.can_load_snapshots)
        feeding = _Feeding(target, cursor, self._snapshots, self._feed, self._runtime, partial(self._failed, listener))
        self._feedings[id(listener)] = feeding
        feeding.wake()
        return True

    def unregister(self, listener: AnyListener) -> bool:
        """Stop feeding `listener`, even in the middle of a call; return False if it was not registered."""
        feeding = self._feedings.pop(id(listener), None)
        if feeding is not None:
            feeding.abandon()
        return feeding is not None

    def positions(self) -> list[ListenerPosition]:
        """How far every listener has read."""
        feedings = self._feedings.values()
        return [ListenerPosition(feeding.listener.name, feeding.cursor.next_offset) for feeding in feedings]

    def close(self, on_done: OnDone) -> None:
        """Call `begin_shutdown` of every listener, and stop; `on_done` is called when all have stopped."""
        feedings, self._feedings = self._feedings, {}
        running = {id(feeding) for feeding in feedings.values()}

        def stopped(feeding: _Feeding, error: BaseException | None) -> None:
            running.discard(id(feeding))
            if error is not None:
                feeding.on_error(error)
            if not running:
                on_done(None)

        for feeding in feedings.values():
            feeding.shut_down(partial(stopped, feeding))
        if not feedings:
            on_done(None)

    def _wake(self) -> None:
        for feeding in self._feedings.values():
            feeding.wake()

    def _failed(self, listener: AnyListener, error: BaseException) -> None:
        """A call of `listener`, or the preparation of one, has failed: stop feeding it."""
        self._feedings.pop(id(listener), None)
        if isinstance(error, _LogUnreadable):  # not the listener's fault
            self._on_fatal(error.reason)
        elif isinstance(error, Exception):
            if listener.name in self.faults or len(self.faults) < FAULTS_KEPT_MAX:
                self.faults[listener.name] = f"{type(error).__name__}: {error}"[:FAULT_LETTERS_MAX]
            self._on_fault(listener, error)
        else:
            self._on_fatal(error)


class ListenerCursor:
    """The position of one listener, and its next input. Synchronous, so that any loop can drive it."""

    __slots__ = ("_announced", "_can_load_snapshots", "_log", "next_offset")

    def __init__(self, log: CommittedLog, start_offset: Offset | None, *, can_load_snapshots: bool = True) -> None:
        self._log = log
        self._can_load_snapshots = can_load_snapshots
        self.next_offset = UNKNOWN_OFFSET if start_offset is None else start_offset
        """The listener has processed everything below; -1: it is new, and has processed nothing (SN-60)."""
        self._announced: LeaderAndEpoch | None = None

    def needs_snapshot(self, committed_end_offset: Offset, latest: OffsetAndEpoch | None) -> bool:
        """Whether the listener must get the newest snapshot now (SN-60).

        Raises ApiError(OFFSET_OUT_OF_RANGE) if its next offset was deleted and it cannot load a snapshot.
        """
        if self.next_offset >= committed_end_offset:
            return False
        is_behind = 0 <= self.next_offset < self._log.log_start_offset
        if is_behind and not self._can_load_snapshots:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"the listener's next offset is {self.next_offset}, but the log starts at"
                f" {self._log.log_start_offset}; override its handle_load_snapshot",
            )
        return self._can_load_snapshots and latest is not None and (is_behind or self.next_offset == UNKNOWN_OFFSET)

    def next_batches(self, committed_end_offset: Offset) -> tuple[Batch, ...]:
        """The next committed batches for the listener; none if it has everything, or must wait (LI-02)."""
        if self.next_offset >= committed_end_offset:
            return ()
        log_start_offset = self._log.log_start_offset
        if self.next_offset == UNKNOWN_OFFSET and (log_start_offset == 0 or not self._can_load_snapshots):
            self.next_offset = log_start_offset  # SN-61
        if self.next_offset < log_start_offset:
            return ()  # until there is a snapshot again
        return self._log.read_batches(self.next_offset, READER_BYTES_MAX, committed_end_offset)

    def may_have_more(self, committed_end_offset: Offset, leader: LeaderAndEpoch) -> bool:
        """Whether the listener may need a call: mostly it is level with the log, and knows the leader."""
        return self.next_offset < committed_end_offset or leader != self._announced

    def next_leader(self, leader: LeaderAndEpoch, epoch_start_offset: Offset | None) -> LeaderAndEpoch | None:
        """The leader, if the listener must be notified of it now; `epoch_start_offset` is set iff this node leads."""
        if leader == self._announced:
            return None
        if epoch_start_offset is not None and self.next_offset <= epoch_start_offset:
            return None  # this node leads, but this listener has not read up to its epoch yet (LI-05)
        self._announced = leader
        return leader


class _LogUnreadable(Exception):
    """Committed records cannot be read from this node's disk."""

    def __init__(self, reason: StorageError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class _Feeding:
    """The feeding of one listener, as its cursor directs."""

    def __init__(
        self,
        listener: SynchronousListener,
        cursor: ListenerCursor,
        snapshots: Snapshots,
        feed: CommitState,
        runtime: Runtime,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self.listener = listener
        self.cursor = cursor
        self._snapshots = snapshots
        self._feed = feed
        self._runtime = runtime
        self.on_error = on_error
        self._is_scheduled = False
        self._is_busy = False
        """Whether a call of the listener is in progress, or a snapshot is being opened for it."""
        self._has_given = False
        """Whether it has received records or a snapshot since it was last notified of a leader."""
        self._loading: SnapshotReader | None = None
        """The snapshot that it is loading."""
        self._has_ended = False

    def wake(self) -> None:
        """Check, in a callback of its own, whether there is input for the listener."""
        if not self._is_scheduled and not self._is_busy and not self._has_ended:
            self._is_scheduled = True
            self._runtime.call_soon(self._look)

    def abandon(self) -> None:
        """Stop feeding it, while the node continues."""
        self._has_ended = True
        self.listener.abandon()
        self._close_snapshot()

    def shut_down(self, on_done: OnDone) -> None:
        """Stop feeding it, and let it shut down."""
        self._has_ended = True

        def stopped(error: BaseException | None) -> None:
            self._close_snapshot()
            on_done(error)

        try:
            self.listener.begin_shutdown(stopped)
        except BaseException as error:
            stopped(error)

    def _look(self) -> None:
        self._is_scheduled = False
        if self._has_ended or self._is_busy:
            return
        try:
            # The listener is notified of a leader between two readers, too: a listener that is far behind learns that
            # this node leads as soon as it has read past the start of the epoch (LI-05).
            if self._has_given:
                self._has_given = False
                if self._announce_leader():
                    return
            if not self._give_next():
                self._announce_leader()
        except BaseException as error:
            self._done(error)

    def _give_next(self) -> bool:
        """Pass it a snapshot or some batches; return False if there is nothing for it."""
        committed_end_offset = self._feed.committed_end_offset
        if self.cursor.needs_snapshot(committed_end_offset, self._snapshots.latest):
            self._is_busy = True
            self._snapshots.open_latest(self._load)
            return True
        try:
            batches = self.cursor.next_batches(committed_end_offset)
        except StorageError as error:
            raise _LogUnreadable(error) from error
        if batches:
            self._is_busy = self._has_given = True
            self.listener.handle_commit(batches, partial(self._taken, batches[-1].end_offset))
        return bool(batches)

    def _load(self, snapshot: SnapshotReader | None) -> None:
        if snapshot is None:  # damaged snapshots were deleted: check again
            self._done(None)
            return
        self._loading = snapshot
        if self._has_ended:
            self._close_snapshot()
            return
        self._has_given = True
        try:
            self.listener.handle_load_snapshot(snapshot, partial(self._taken, snapshot.snapshot_id.offset))
        except BaseException as error:
            self._done(error)

    def _announce_leader(self) -> bool:
        leader = self.cursor.next_leader(self._feed.leader, self._feed.epoch_start_offset)
        if leader is None:
            return False
        self._is_busy = True
        self.listener.handle_leader_change(leader, self._done)
        return True

    def _taken(self, end_offset: Offset, error: BaseException | None) -> None:
        """The listener has processed everything below `end_offset`."""
        if error is None and not self._has_ended:
            self.cursor.next_offset = end_offset
        self._done(error)

    def _done(self, error: BaseException | None) -> None:
        """A call has ended: choose the next one."""
        if self._has_ended:
            return  # the listener is stopping, and may still need the snapshot
        self._close_snapshot()
        self._is_busy = False
        if error is not None:
            self._has_ended = True
            self.on_error(error)
        elif self.cursor.may_have_more(self._feed.committed_end_offset, self._feed.leader):
            self.wake()
        else:
            self._has_given = False

    def _close_snapshot(self) -> None:
        if self._loading is not None:
            self._loading.close()
            self._loading = None
