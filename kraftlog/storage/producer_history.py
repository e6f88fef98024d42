"""The state of a log's producers on disk: snapshots at offsets of the log, and the indexes of aborted transactions.

A snapshot is written at each roll, named after the new segment's base offset, and at a clean shutdown (DB-75). It need
not be durable: an unreadable snapshot is removed, and an older one is used, with more batches to replay.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import structlog

from kraftbase.checksum import crc32c
from kraftbase.errors import OutOfSpace
from kraftbase.files.files import join, read_whole
from kraftbase.sentinels import NO_TIMESTAMP
from kraftlog.kafka.control_records import EndTxnMarker
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.notation import Buffer
from kraftlog.kafka.record_batch import read_batch
from kraftlog.kafka.record_values import ControlType, decode_control_record
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.formats.batch_header import BatchHeader
from kraftlog.storage.formats.indexes import TRANSACTION_ENTRY, AbortedTransaction, can_be_decoded, decode_aborted
from kraftlog.storage.formats.names import PRODUCER_SNAPSHOT_SUFFIX, TRANSACTION_INDEX_SUFFIX, file_name, offset_in_name
from kraftlog.storage.formats.producer_snapshot import checksum_in, decode_snapshot, encode_snapshot
from kraftlog.storage.producer_states import EndMarker, ProducerStates
from kraftlog.storage.segment import BatchPlace, Segment

logger = structlog.get_logger(__name__)


class ProducerHistory:
    """The producers of one log, their snapshots, and its segments' indexes of aborted transactions."""

    def __init__(self, handles: FileHandles, directory: str, snapshot_checksums: Mapping[int, int]) -> None:
        """`snapshot_checksums` are the known CRCs of snapshots, by offset."""
        self.states = ProducerStates()
        self._snapshot_checksums = dict(snapshot_checksums)
        self._handles = handles
        self._directory = directory
        self._snapshots: list[int] = []
        self._latest_ms = NO_TIMESTAMP
        """The time of the last append, or of the startup: no batch of the log was appended later."""
        self._waiting: list[tuple[str, AbortedTransaction]] = []  # index entries that wait for room on the disk
        self._indexes: set[str] = set()
        """The paths of existing indexes of aborted transactions, so that readers need not check each segment."""
        self._checksums: dict[str, int] = {}  # of the indexes, by path, as far as they are known
        self.unflushed: set[str] = set()
        """The paths of files that were written and not flushed."""

    # --- loading ------------------------------------------------------------------------------------------------------

    def load(
        self, segments: Sequence[Segment], end_offset: int, replay_from: int | None, high_watermark: int, now_ms: int
    ) -> None:
        """Build the states at `end_offset` from the newest usable snapshot and the batches after it.

        `replay_from` is the first offset whose aborted transactions may be missing in the indexes; None if the indexes
        are complete. The append times of replayed batches are unknown: they count as appended at `now_ms`.
        """
        self._latest_ms = now_ms
        names = self._handles.files.list_directory(self._directory)
        offsets = [offset_in_name(name, PRODUCER_SNAPSHOT_SUFFIX) for name in names]
        self._snapshots = sorted(offset for offset in offsets if offset is not None)
        self._indexes = {join(self._directory, name) for name in names if name.endswith(TRANSACTION_INDEX_SUFFIX)}
        self._checksums.clear()
        first_offset = segments[0].base_offset
        limit = end_offset if replay_from is None else replay_from
        for offset in [found for found in self._snapshots if found > limit]:
            self._remove(offset)
        start_offset = self._load_newest(self.states, first_offset, limit)
        self._restore_ended(segments, high_watermark, start_offset)
        for segment in segments:
            self._replay(segment, start_offset, end_offset)
        self.states.pass_high_watermark(high_watermark)

    def _load_newest(self, states: ProducerStates, first_offset: int, limit: int) -> int:
        """Load the newest snapshot up to `limit`; return its offset, or `first_offset` if there is none."""
        for offset in reversed(self._snapshots):
            if first_offset <= offset <= limit:
                path = self._path_of(offset)
                try:
                    data = read_whole(self._handles.files, path)
                    states.load(decode_snapshot(data, path, self._snapshot_checksums.get(offset)), self._latest_ms)
                except MalformedBytes as error:
                    logger.warning("removed an unreadable snapshot of producers", reason=str(error))
                    self._remove(offset)
                else:
                    return offset
        states.load((), self._latest_ms)
        return first_offset

    def _replay(self, segment: Segment, start_offset: int, end_offset: int) -> None:
        known = max((entry.last_offset for entry in self._aborted_in(segment)), default=-1)
        for place, marker in self._produced(segment, start_offset, end_offset):
            aborted = self.states.append(place.header, marker, self._latest_ms)
            if aborted is not None and aborted.last_offset > known:
                self._enter(segment, aborted)

    def _restore_ended(self, segments: Sequence[Segment], high_watermark: int, snapshot_offset: int) -> None:
        """Add the ended transactions whose markers are below the snapshot's offset but not below the high watermark.

        A snapshot has only open transactions. But an ended transaction whose marker is not committed also holds back
        the last stable offset (DB-72). Consider a transaction that begins at offset 3, its commit marker at 8, a roll
        at 10, and a startup with a high watermark of 5: no read_committed consumer may read offset 3.

        The batches in between are read only if a producer in the snapshot has a coordinator epoch, which shows that it
        once had a marker.
        """
        if high_watermark >= snapshot_offset or not self.states.had_transactions:
            return
        if not any(
            marker is not None
            for segment in segments
            for _, marker in self._produced(segment, high_watermark, snapshot_offset)
        ):
            return
        earlier = ProducerStates()
        start_offset = self._load_newest(earlier, segments[0].base_offset, high_watermark)
        for segment in segments:
            for place, marker in self._produced(segment, start_offset, snapshot_offset):
                earlier.append(place.header, marker, self._latest_ms)
        self.states.add_ended(earlier)

    def _produced(
        self, segment: Segment, start_offset: int, end_offset: int
    ) -> Iterator[tuple[BatchPlace, EndMarker | None]]:
        """Yield the batches with a producer id from `start_offset` to before `end_offset`, and their markers."""
        first = segment.locate(start_offset) if segment.base_offset < end_offset else None
        for place in segment.batches(first.position) if first is not None else ():
            position, header = place
            if header.base_offset >= end_offset:
                return
            if header.producer_id >= 0:
                yield (
                    place,
                    read_marker(segment.read(position, header.size_bytes), header) if header.is_control else None,
                )

    # --- appending ----------------------------------------------------------------------------------------------------

    def append(self, segment: Segment, header: BatchHeader, marker: EndMarker | None, now_ms: int) -> None:
        """Note an appended batch with a producer id."""
        while self._snapshots and self._snapshots[-1] > header.base_offset:
            self._remove(self._snapshots[-1])  # of a roll after a gap in the offsets, which failed for lack of room
        self._latest_ms = now_ms
        aborted = self.states.append(header, marker, now_ms)
        if aborted is not None:
            self._enter(segment, aborted)

    def _enter(self, segment: Segment, aborted: AbortedTransaction) -> None:
        """Add a transaction to the segment's index; without room the entry waits in memory: the log has its marker."""
        self._waiting.append((self._index_of(segment), aborted))
        with contextlib.suppress(OutOfSpace):
            self.write_aborted()

    def write_aborted(self) -> None:
        """Write the entries that wait for room. Raises StorageError."""
        files = self._handles.files
        while self._waiting:
            path, aborted = self._waiting[0]
            file = self._handles.get(path) if files.exists(path) else self._handles.create(path)
            size = file.size()
            file.write_at(size - size % TRANSACTION_ENTRY.size, aborted.encode())
            self.unflushed.add(path)
            self._indexes.add(path)
            self._checksums.pop(path, None)
            self._waiting.pop(0)

    @property
    def has_unwritten(self) -> bool:
        """Whether files that a startup after a clean shutdown relies on are not durable."""
        return bool(self.unflushed or self._waiting)

    def sync(self) -> None:
        """Make the index entries that a startup has added durable, since the next one does not replay their batches."""
        for path in sorted(self.unflushed):
            self._handles.get(path).fsync()
        if self.unflushed:
            self._handles.files.fsync_directory(self._directory)
        self.unflushed.clear()

    def snapshot(self, offset: int) -> None:
        """Write a snapshot of the present states, named after `offset`; without room there is none.

        No batch with a producer id may be between the last one noted and `offset`.
        """
        if offset in self._snapshots:
            return
        path = self._path_of(offset)
        with contextlib.suppress(OutOfSpace):
            try:
                data = encode_snapshot(self.states.to_entries())
                self._handles.create(path).write_at(0, data)
            except OutOfSpace:
                self._handles.remove(path)
                raise
            self._snapshots.append(offset)
            self._snapshot_checksums[offset] = checksum_in(data)
            self.unflushed.add(path)

    # --- reading ------------------------------------------------------------------------------------------------------

    def aborted(self, segments: Sequence[Segment], start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records from `start_offset` to before `end_offset` (DB-73).

        `segments` begin with the one of `start_offset`. The search ends at an entry whose last stable offset shows that
        later entries do not overlap the range.
        """
        found: list[AbortedTransaction] = []
        if not self._indexes and not self._waiting:
            return found
        for segment in segments:
            for entry in self._aborted_in(segment):
                if entry.last_offset >= start_offset and entry.first_offset < end_offset:
                    found.append(entry)
                if entry.last_stable_offset >= end_offset:
                    return found
        return found

    def _aborted_in(self, segment: Segment) -> list[AbortedTransaction]:
        path = self._index_of(segment)
        waiting = [aborted for waiting_path, aborted in self._waiting if waiting_path == path]
        if path not in self._indexes or not self._handles.files.exists(path):
            return waiting
        return decode_aborted(read_whole(self._handles.files, path), path) + waiting

    def aborted_checksum(self, segment: Segment) -> int:
        """Return the CRC-32C of the segment's index of aborted transactions; 0 if it has none."""
        if not self._indexes:
            return 0
        path = self._index_of(segment)
        if path not in self._indexes or not self._handles.files.exists(path):
            return 0
        if path not in self._checksums:
            self._checksums[path] = crc32c(read_whole(self._handles.files, path))
        return self._checksums[path]

    # --- truncating ---------------------------------------------------------------------------------------------------

    def truncate(self, segments: Sequence[Segment], end_offset: int, high_watermark: int) -> None:
        """Drop everything after a truncation to `end_offset`; the removal of snapshots is not durable."""
        self._waiting = [(path, entry) for path, entry in self._waiting if entry.last_offset < end_offset]
        self._forget_removed()
        for segment in segments[-1:]:
            kept = [entry for entry in self._aborted_in(segment) if entry.last_offset < end_offset]
            path = self._index_of(segment)
            if self._handles.files.exists(path):
                self._handles.get(path).truncate(len(kept) * TRANSACTION_ENTRY.size)
                self.unflushed.add(path)
        self.load(segments, end_offset, None, high_watermark, self._latest_ms)

    def remove_all(self) -> None:
        """Drop everything: the log is empty. The removal of snapshots is not durable."""
        for found in list(self._snapshots):
            self._remove(found)
        self.states.load((), self._latest_ms)

    def remove_below(self, offset: int) -> None:
        """Remove the snapshots of removed segments."""
        for found in [snapshot for snapshot in self._snapshots if snapshot < offset]:
            self._remove(found)
        self._forget_removed()

    # --- segments that are rewritten ----------------------------------------------------------------------------------

    def write_indexes(self, old: Sequence[Segment], new: Sequence[Segment], suffix: str) -> None:
        """Write the indexes of aborted transactions of new segments that replace old ones, durably.

        Their names, which end with `suffix`, are not durable. Raises StorageError, FlushFailed.
        """
        entries = [entry for segment in old for entry in self._aborted_in(segment)]
        for segment in reversed(new):
            found = [entry for entry in entries if entry.last_offset >= segment.base_offset]
            if found:
                del entries[-len(found) :]
                file = self._handles.create(self._index_of(segment) + suffix)
                file.write_at(0, b"".join(entry.encode() for entry in found))
                file.fsync()

    def forget_snapshots(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Remove the snapshots at which no segment will begin, not durably. A startup may have to replay more."""
        kept = {segment.base_offset for segment in new}
        for offset in [segment.base_offset for segment in old if segment.base_offset not in kept]:
            if offset in self._snapshots:
                self._remove(offset)

    def replaced(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Note that new segments, and their indexes, have replaced old ones, durably."""
        paths = {self._index_of(segment) for segment in (*old, *new)}
        self._waiting = [waiting for waiting in self._waiting if waiting[0] not in paths]
        self.unflushed -= paths
        self._indexes = (self._indexes - paths) | set(filter(self._handles.files.exists, paths))
        for path in paths:
            self._checksums.pop(path, None)

    def _forget_removed(self) -> None:
        """Stop tracking unflushed files that no longer exist."""
        exists = self._handles.files.exists
        self.unflushed = {path for path in self.unflushed if exists(path)}

    def snapshot_checksum(self, offset: int) -> int:
        """Return the CRC in the snapshot at an offset; 0 if it is unknown, or there is no snapshot."""
        return self._snapshot_checksums.get(offset, 0)

    def _remove(self, offset: int) -> None:
        self._snapshots.remove(offset)
        self._snapshot_checksums.pop(offset, None)
        path = self._path_of(offset)
        self.unflushed.discard(path)
        self._handles.remove(path)

    def _path_of(self, offset: int) -> str:
        return join(self._directory, file_name(offset, PRODUCER_SNAPSHOT_SUFFIX))

    def _index_of(self, segment: Segment) -> str:
        return join(self._directory, file_name(segment.base_offset, TRANSACTION_INDEX_SUFFIX))


def remove_wrong_indexes(
    handles: FileHandles, directory: str, names: Iterable[str], checksums: Mapping[int, int]
) -> int | None:
    """Remove corrupt indexes of aborted transactions, since readers trust their entries.

    `names` are the files in the directory. `checksums` are the known checksums, by base offset. Return the offset from
    which the log must be read to rebuild the indexes; None if none was removed.
    """
    found = {offset_in_name(name, TRANSACTION_INDEX_SUFFIX) for name in names}
    removed = []
    for base_offset in sorted({offset for offset in found if offset is not None} | checksums.keys()):
        checksum = checksums.get(base_offset)
        path = join(directory, file_name(base_offset, TRANSACTION_INDEX_SUFFIX))
        if base_offset not in found and not checksum:
            continue
        data = read_whole(handles.files, path) if base_offset in found else b""
        if not (can_be_decoded(data, path) if checksum is None else crc32c(data) == checksum):
            logger.warning("an index of aborted transactions is rebuilt", path=path)
            handles.remove(path)
            removed.append(base_offset)
    return min(removed, default=None)


def read_marker(data: Buffer, header: BatchHeader) -> EndMarker | None:
    """Decode the end marker of a transaction; None for any other control batch. Raises MalformedBytes."""
    batch = read_batch(data)
    records = batch.records() if batch is not None and header.record_count else ()
    if not records:
        return None  # compaction has removed it
    kind, value = decode_control_record(records[0].key, records[0].value)
    if not isinstance(value, EndTxnMarker):
        return None
    return EndMarker(is_abort=kind is ControlType.ABORT, coordinator_epoch=value.coordinator_epoch)
