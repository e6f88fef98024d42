"""A node's snapshots: served to replicas that fetch, fetched from the leader, deleted when no longer needed.

The only owner of the node's snapshot store. Long work runs in another thread, and nothing damaged is served: a snapshot
is verified before its first byte is sent, and a damaged one is deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, TypeAlias

import structlog

from kraftbase.errors import CorruptSnapshot, ErrorCode, StorageError
from kraftbase.runtime import Runtime
from raft.core.types import OffsetAndEpoch
from snapshot.format import SnapshotHeader
from snapshot.incoming import IncomingSnapshot
from snapshot.log_start_policy import StoredSnapshot, surplus
from snapshot.reader import SnapshotReader
from snapshot.store import SnapshotStore
from snapshot.writer import SnapshotWriter

DELETE_DELAY_MS: Final = 60_000
"""How long the bytes of a deleted snapshot stay after the deletion and after each read: a replica may be fetching it
(SN-42).
"""

FETCHED_DELETED_MS_MAX: Final = 3_600_000
"""How long the bytes of a deleted snapshot stay at most."""

FETCHED_DELETED_MAX: Final = 2
"""The most deleted snapshots that stay; the oldest are removed first."""

REFUSAL_PAUSE_MS: Final = 500
"""How long to wait before the next request to the leader, after a snapshot was damaged or had no room."""

READ_THROUGH_FOR_MS: Final = 10_000
"""How long a verification is valid for new transfers; after that the snapshot is verified again."""

READS_WAITING_MAX: Final = 256
"""How many reads may wait until a snapshot is verified; each replica has one at a time."""

Respond: TypeAlias = Callable[[ErrorCode, int, bytes], None]
"""Called with an error, or with the size of a snapshot and some of its bytes."""

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _WaitingRead:
    position: int
    max_bytes: int
    respond: Respond


class NodeSnapshots:
    """The snapshots of one node. Lives on the loop of its runtime."""

    def __init__(
        self,
        store: SnapshotStore,
        cluster_id: str,
        runtime: Runtime,
        *,
        on_changed: Callable[[], None],
        on_damaged: Callable[[], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """`on_changed` is called when the newest snapshot changes, `on_damaged` when a damaged one was deleted."""
        self._store = store
        self._cluster_id = cluster_id
        self._runtime = runtime
        self._on_changed = on_changed
        self._on_damaged = on_damaged
        self._on_fatal = on_fatal
        self._stored: dict[OffsetAndEpoch, StoredSnapshot] = {}
        self._whole: dict[OffsetAndEpoch, SnapshotReader] = {}
        self._read_through_at_ms: dict[OffsetAndEpoch, float] = {}
        self._read_at_ms: dict[OffsetAndEpoch, float] = {}
        """When its bytes were last sent."""
        self._reading_through: dict[OffsetAndEpoch, list[_WaitingRead]] = {}
        self._incoming: tuple[int, IncomingSnapshot] | None = None
        """The snapshot that is being fetched, and its `fetch_id`. Only the disk's thread accesses it."""
        self._has_fetched = False
        self._is_closed = False
        self._list()
        self._count_from_what_is_on_disk()

    # --- the stored snapshots -----------------------------------------------------------------------------------------

    @property
    def latest(self) -> OffsetAndEpoch | None:
        """The id of the newest one."""
        return max(self._stored, default=None)

    def stored(self) -> tuple[StoredSnapshot, ...]:
        """All of them, the oldest first."""
        return tuple(self._stored[snapshot_id] for snapshot_id in sorted(self._stored))

    def refresh(self) -> None:
        """List the directory again: a snapshot may have been written."""
        before = self.latest
        self._list()
        if self.latest != before:
            self._on_changed()

    def _list(self) -> None:
        ids = self._store.ids()
        now_ms = int(self._runtime.now_ms())
        known, self._stored = self._stored, {}
        for snapshot_id in ids:
            entry = known.get(snapshot_id) or self._describe(snapshot_id)
            if entry is not None:
                self._stored[snapshot_id] = entry
        latest = self.latest
        for snapshot_id, entry in self._stored.items():
            if snapshot_id != latest and entry.eligible_since_ms is None:
                self._stored[snapshot_id] = replace(entry, eligible_since_ms=now_ms)

    def _count_from_what_is_on_disk(self) -> None:
        """Count the age of snapshots of an earlier process from their time on disk, not from this start (SN-51).

        A newer snapshot existed, at the earliest, at the timestamp of its last record, by the clock of that record's
        leader. Consider a cluster without records for a day, then a snapshot: readers that are behind have had that
        day, too.
        """
        offset_ms = int(self._runtime.now_ms()) - self._runtime.wall_clock_ms()
        found = self.stored()
        for entry, newer in pairwise(found):
            if entry.eligible_since_ms is not None:
                since_ms = min(entry.eligible_since_ms, newer.timestamp_ms + offset_ms)
                self._stored[entry.snapshot_id] = replace(entry, eligible_since_ms=since_ms)

    def _describe(self, snapshot_id: OffsetAndEpoch) -> StoredSnapshot | None:
        try:
            with self._store.open(snapshot_id) as reader:
                timestamp_ms = reader.header.last_contained_log_timestamp_ms
                return StoredSnapshot(snapshot_id, reader.size_bytes, timestamp_ms, eligible_since_ms=None)
        except CorruptSnapshot as error:
            self._delete_damaged(snapshot_id, error)
        except StorageError as error:
            logger.error("a snapshot cannot be read", reason=str(error))
        return None

    def create(self, snapshot_id: OffsetAndEpoch, last_contained_log_timestamp_ms: int) -> SnapshotWriter | None:
        """Begin a snapshot of the program's own; None if it exists already. Raises OutOfSpace or StorageError."""
        return self._store.create(snapshot_id, SnapshotHeader(last_contained_log_timestamp_ms, self._cluster_id))

    def delete_surplus(self, log_start: OffsetAndEpoch) -> None:
        """Delete the snapshots that are not needed when the log starts there."""
        for snapshot_id in surplus(sorted(self._stored), log_start.offset):
            self._delete(snapshot_id)

    def _delete(self, snapshot_id: OffsetAndEpoch) -> None:
        self._stored.pop(snapshot_id, None)
        try:
            self._store.delete(snapshot_id)
        except StorageError as error:
            logger.warning("a snapshot was not deleted", reason=str(error))
        deleted_at_ms = self._runtime.now_ms()
        self._runtime.call_later(DELETE_DELAY_MS, lambda: self._forget(snapshot_id, deleted_at_ms))

    def _forget(self, snapshot_id: OffsetAndEpoch, deleted_at_ms: float) -> None:
        """Remove the bytes of a snapshot that was deleted long enough ago, unless a replica is still fetching it.

        Other deleted snapshots lose their names with it: a reader that has one open can still read it.
        """
        if self._is_closed or snapshot_id in self._stored:
            return
        wait_ms = self._still_fetched_for_ms(snapshot_id, deleted_at_ms)
        if wait_ms > 0:
            self._runtime.call_later(wait_ms, lambda: self._forget(snapshot_id, deleted_at_ms))
            return
        self._close_reader(snapshot_id)
        self._store.remove_deleted()

    def _still_fetched_for_ms(self, snapshot_id: OffsetAndEpoch, deleted_at_ms: float) -> float:
        """How long to wait for the next read of a deleted snapshot; 0 or less if it may be removed."""
        read_at_ms = self._read_at_ms.get(snapshot_id)
        fetched = sorted(found for found in self._whole if found not in self._stored)
        if read_at_ms is None or snapshot_id not in fetched[-FETCHED_DELETED_MAX:]:
            return 0
        return min(read_at_ms + DELETE_DELAY_MS, deleted_at_ms + FETCHED_DELETED_MS_MAX) - self._runtime.now_ms()

    def _close_reader(self, snapshot_id: OffsetAndEpoch) -> None:
        reader = self._whole.pop(snapshot_id, None)
        if reader is not None:
            reader.close()
            del self._read_through_at_ms[snapshot_id]
            self._read_at_ms.pop(snapshot_id, None)

    def _delete_damaged(self, snapshot_id: OffsetAndEpoch, error: CorruptSnapshot) -> None:
        logger.error("snapshot deleted", reason=str(error))
        self._close_reader(snapshot_id)
        self._delete(snapshot_id)
        self._on_damaged()

    # --- serving them -------------------------------------------------------------------------------------------------

    def read(self, snapshot_id: OffsetAndEpoch, position: int, max_bytes: int, respond: Respond) -> None:
        """Read some bytes of a whole snapshot (SN-10).

        It is verified in another thread before its first byte is sent, and again for later transfers: it may have been
        corrupted since. Answers SNAPSHOT_NOT_FOUND or POSITION_OUT_OF_RANGE, THROTTLING_QUOTA_EXCEEDED if too many
        wait.
        """
        read = _WaitingRead(position, max_bytes, respond)
        if snapshot_id in self._whole and not (position == 0 and self._is_stale(snapshot_id)):
            self._respond(snapshot_id, read)
        elif snapshot_id not in self._stored:
            respond(ErrorCode.SNAPSHOT_NOT_FOUND, 0, b"")
        elif snapshot_id in self._reading_through:
            waiting = self._reading_through[snapshot_id]
            if len(waiting) >= READS_WAITING_MAX:
                respond(ErrorCode.THROTTLING_QUOTA_EXCEEDED, 0, b"")
            else:
                waiting.append(read)
        else:
            self._reading_through[snapshot_id] = [read]
            self._read_through(snapshot_id)

    def _is_stale(self, snapshot_id: OffsetAndEpoch) -> bool:
        return self._runtime.now_ms() - self._read_through_at_ms[snapshot_id] > READ_THROUGH_FOR_MS

    def _read_through(self, snapshot_id: OffsetAndEpoch) -> None:
        found: list[SnapshotReader] = []

        def done(error: BaseException | None) -> None:
            reads = self._reading_through.pop(snapshot_id)
            if self._is_closed:
                for reader in found:
                    reader.close()
                return
            if error is not None and not self._is_handled(snapshot_id, error):
                return
            if found:
                self._close_reader(snapshot_id)
                self._whole[snapshot_id] = found[0]
                self._read_through_at_ms[snapshot_id] = self._runtime.now_ms()
            for read in reads:
                self._respond(snapshot_id, read)

        self._runtime.run_aside(lambda: found.append(self._store.open_whole(snapshot_id)), done)

    def _is_handled(self, snapshot_id: OffsetAndEpoch, error: BaseException) -> bool:
        """Handle an error of reading a snapshot. Return False if it is not a storage error; then the process ends."""
        if isinstance(error, CorruptSnapshot):
            if snapshot_id in self._stored:
                self._delete_damaged(snapshot_id, error)
                self._on_changed()
        elif isinstance(error, StorageError):
            logger.error("a snapshot cannot be read", reason=str(error))
        else:
            self._on_fatal(error)
            return False
        return True

    def _respond(self, snapshot_id: OffsetAndEpoch, read: _WaitingRead) -> None:
        reader = self._whole.get(snapshot_id)
        if reader is None:
            read.respond(ErrorCode.SNAPSHOT_NOT_FOUND, 0, b"")
            return
        if read.position >= reader.size_bytes:
            read.respond(ErrorCode.POSITION_OUT_OF_RANGE, 0, b"")
            return
        try:
            data = reader.read_at(read.position, read.max_bytes)
        except StorageError as error:
            logger.error("a snapshot cannot be read", reason=str(error))
            self._close_reader(snapshot_id)  # the next read verifies the snapshot again
            read.respond(ErrorCode.SNAPSHOT_NOT_FOUND, 0, b"")
            return
        self._read_at_ms[snapshot_id] = self._runtime.now_ms()
        read.respond(ErrorCode.NONE, reader.size_bytes, data)

    def open_latest(self, on_opened: Callable[[SnapshotReader | None], None]) -> None:
        """Open the newest whole snapshot, which the caller closes; None if none exists (SN-60).

        Damaged snapshots are deleted on the way.
        """
        snapshot_id = self.latest
        if snapshot_id is None:
            on_opened(None)
            return
        found: list[SnapshotReader] = []

        def done(error: BaseException | None) -> None:
            if error is None:
                on_opened(found[0])
            elif self._is_handled(snapshot_id, error):
                self._stored.pop(snapshot_id, None)
                self.open_latest(on_opened)

        self._runtime.run_aside(lambda: found.append(self._store.open_whole(snapshot_id)), done)

    # --- fetching one from the leader ---------------------------------------------------------------------------------

    def append(
        self,
        fetch_id: int,
        snapshot_id: OffsetAndEpoch,
        data: bytes,
        on_appended: Callable[[int], None],
        on_refused: Callable[[], None],
    ) -> None:
        """Write the next bytes of a snapshot that is being fetched, then report how many bytes have arrived."""
        position = 0
        self._has_fetched = True

        def work() -> None:
            nonlocal position
            if self._incoming is None or self._incoming[0] != fetch_id:
                self._close_incoming()
                self._incoming = (fetch_id, self._receive(snapshot_id))
            self._incoming[1].append(data)
            position = self._incoming[1].size_bytes

        self._run_fetch(work, lambda: on_appended(position), on_refused)

    def _receive(self, snapshot_id: OffsetAndEpoch) -> IncomingSnapshot:
        incoming = self._store.receive(snapshot_id, self._cluster_id)
        if incoming is None:  # a snapshot of that name exists, and it cannot be used, or it would not be fetched
            self._store.delete(snapshot_id)
            incoming = self._store.receive(snapshot_id, self._cluster_id)
        if incoming is None:
            raise StorageError(f"the snapshot {snapshot_id} exists and cannot be deleted")
        return incoming

    def freeze(self, fetch_id: int, on_received: Callable[[], None], on_refused: Callable[[], None]) -> None:
        """The snapshot is completely written: freeze it."""

        def work() -> None:
            if self._incoming is None or self._incoming[0] != fetch_id:
                raise StorageError(f"fetch {fetch_id} of a snapshot was abandoned")
            self._incoming[1].freeze()
            self._close_incoming()

        def done() -> None:
            self._list()
            on_received()

        self._run_fetch(work, done, on_refused)

    def drop(self) -> None:
        """Abandon the snapshot that is being fetched."""
        self._run_fetch(self._close_incoming, lambda: None, lambda: None)

    def _run_fetch(self, work: Callable[[], None], on_done: Callable[[], None], on_refused: Callable[[], None]) -> None:
        def finish(error: BaseException | None) -> None:
            if self._is_closed:
                return
            if error is None:
                on_done()
            elif isinstance(error, StorageError):
                logger.error("fetch of a snapshot abandoned", reason=str(error))
                self.drop()
                self._runtime.call_later(REFUSAL_PAUSE_MS, on_refused)
            else:
                self._on_fatal(error)

        self._runtime.run_on_disk(work, finish)

    def _close_incoming(self) -> None:
        if self._incoming is not None:
            incoming, self._incoming = self._incoming[1], None
            incoming.close()

    def close(self) -> None:
        """Close every file; the disk thread removes a partly fetched snapshot, or the next start does."""
        self._is_closed = True
        if self._has_fetched:
            self._runtime.run_on_disk(self._close_incoming, lambda _: None)
        for reader in self._whole.values():
            reader.close()
        self._whole.clear()
