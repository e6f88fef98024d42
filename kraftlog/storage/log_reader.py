"""Reading a log: the bytes from an offset on, offsets by timestamp, and aborted transactions."""

from __future__ import annotations

from collections.abc import Callable

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.partition import TopicPartition
from kraftlog.storage.batch_records import InflationMemory
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.formats.indexes import AbortedTransaction
from kraftlog.storage.health import LogHealth
from kraftlog.storage.log_host import LogSlice
from kraftlog.storage.producer_history import ProducerHistory
from kraftlog.storage.segment_list import SegmentList
from kraftlog.storage.timestamps import FoundRecord, Search, first_not_older, newest_of, result_of


class LogReader:
    """Reads one log without owning any of its state. Every method raises ApiError(KAFKA_STORAGE_ERROR) if offline."""

    def __init__(
        self, handles: FileHandles, partition: TopicPartition, segments: SegmentList, producers: ProducerHistory,
        health: LogHealth, log_start_offset: Callable[[], int], inflation: InflationMemory,
    ) -> None:  # fmt: skip
        """`log_start_offset` returns the first offset that may be read."""
        self._handles = handles
        self._partition = partition
        self._segments = segments
        self._producers = producers
        self._health = health
        self._log_start_offset = log_start_offset
        self._inflation = inflation

    def locate(self, offset: int, max_bytes: int, end_offset: int, *, min_one_batch: bool = True) -> LogSlice | None:
        """Find the bytes from the batch with `offset` to the beginning of the batch with `end_offset`; None if none.

        The slice is of one segment and has at most `max_bytes`. If the first batch is larger, the result is None, or
        with `min_one_batch` that whole batch (DB-66). Raises ApiError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """
        if offset == end_offset == self._segments.last.end_offset:  # most of a follower's partitions, at each fetch
            self._health.check()
            return None
        with self._health:
            self._check_in_range(offset)
            found = self._segments.locate(offset)
            if found is None or found[1].header.base_offset >= end_offset:
                return None
            segment, place = found
            end_position = segment.size_bytes
            if end_offset < segment.end_offset:
                last = segment.locate(end_offset)
                end_position = end_position if last is None else last.position
        first_bytes = place.header.size_bytes
        bytes_max = max(max_bytes, first_bytes) if min_one_batch else max_bytes
        byte_count = min(bytes_max, end_position - place.position)
        if byte_count < first_bytes:
            return None
        return LogSlice(segment.path, place.position, byte_count, is_older_segment=segment.end_offset < end_offset)

    def _check_in_range(self, offset: int) -> None:
        start_offset, end_offset = self._log_start_offset(), self._segments.last.end_offset
        if not start_offset <= offset <= end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is out of range: {self._partition.topic}-{self._partition.partition_id} has offsets"
                f" {start_offset} to {end_offset}",
            )

    def read(self, offset: int, max_bytes: int, end_offset: int, *, min_one_batch: bool = True) -> bytes:
        """Return the bytes that `locate` finds, which may be none. Raises the errors of `locate`."""
        found = self.locate(offset, max_bytes, end_offset, min_one_batch=min_one_batch)
        return b"" if found is None else self.read_slice(found)

    def read_slice(self, found: LogSlice) -> bytes:
        """Read the bytes of a slice."""
        with self._health:
            return self._handles.get(found.path).read_at(found.position, found.byte_count)

    def open_slice(self, found: LogSlice) -> OpenSlice:
        """Open a slice to read it in later turns; call this in the turn in which it was located."""
        with self._health:
            return OpenSlice(self._handles, found)

    def search_timestamp(self, timestamp_ms: int) -> Search:
        """Search for the first record that is not older, by the records' own timestamps (DB-51)."""
        start_offset = self._log_start_offset()
        while True:
            with self._health:
                batch = self._segments.batch_not_older(timestamp_ms, start_offset)
            if batch is None:
                return None
            found = yield from first_not_older(batch, timestamp_ms, start_offset, self._inflation)
            if found is not None:
                return found
            # The records with the header's largest timestamp are below the log's start, or do not exist.
            start_offset = max(batch.header.last_offset + 1, self._log_start_offset())

    def search_newest(self) -> Search:
        """Search for the record with the largest timestamp (DB-51); the result is None if no record has a timestamp."""
        start_offset = self._log_start_offset()
        with self._health:
            batches = self._segments.newest_batches(start_offset)
        return (yield from newest_of(batches, start_offset, self._inflation))

    def find_timestamp(self, timestamp_ms: int) -> FoundRecord | None:
        """Return the result of `search_timestamp`, without pauses."""
        return result_of(self.search_timestamp(timestamp_ms))

    def find_newest(self) -> FoundRecord | None:
        """Return the result of `search_newest`, without pauses."""
        return result_of(self.search_newest())

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that a reader of these offsets must leave out (DB-73)."""
        with self._health:
            return self._producers.aborted(self._segments.from_offset(start_offset), start_offset, end_offset)


class OpenSlice:
    """A slice of a segment's log whose file stays open until `close`, also if the segment is deleted or replaced."""

    def __init__(self, handles: FileHandles, found: LogSlice) -> None:
        """Call `LogReader.open_slice` instead."""
        self._handles = handles
        self._found = found
        self._file = handles.pin(found.path)

    def read(self) -> bytes:
        """Read the bytes. Raises StorageError."""
        return self._file.read_at(self._found.position, self._found.byte_count)

    def close(self) -> None:
        """Release the file."""
        self._handles.unpin(self._file)
