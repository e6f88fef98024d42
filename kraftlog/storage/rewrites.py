"""Replaces closed segments of a log by rewritten ones, with the same records or fewer of them (DB-117).

    rewrite = log.rewrites.begin(range(0, 2000), now_ms)      the segments that begin at 0 and 1000
    segment = rewrite.add(0)                                  written beside the log, in any number of turns
    segment.append(data, headers, config)
    rewrite.finish()                                          in one turn; True: readers now read the new segment

During a rewrite the log remains in use: it may be appended to, truncated, and lose its oldest segments. If one of the
segments to be replaced has changed, `finish` leaves the log as it is.
"""

from __future__ import annotations

from collections.abc import Callable

from kraftbase.checks import check
from kraftbase.errors import OutOfSpace
from kraftbase.partition import TopicPartition
from kraftlog.storage.durability import Durability
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.formats.names import CLEANED_SUFFIX
from kraftlog.storage.health import LogHealth
from kraftlog.storage.log_host import LogHost
from kraftlog.storage.producer_history import ProducerHistory
from kraftlog.storage.segment import Segment
from kraftlog.storage.segment_list import SegmentList
from kraftlog.storage.swaps import remove_unfinished


class Rewrites:
    """The rewrites of one log, at most one at a time. For one thread."""

    def __init__(
        self, handles: FileHandles, directory: str, partition: TopicPartition, segments: SegmentList,
        producers: ProducerHistory, durability: Durability, health: LogHealth, host: LogHost, record_files: Callable[[],
        None],
    ) -> None:  # fmt: skip
        """`record_files` records the log's files in the inventory."""
        self._handles = handles
        self._directory = directory
        self._partition = partition
        self._segments = segments
        self._producers = producers
        self._durability = durability
        self._health = health
        self._host = host
        self._record_files = record_files
        self._under_way: Rewrite | None = None

    @property
    def end_offset(self) -> int:
        """Segments below this offset may be rewritten: they are closed, flushed, and not recovered after a crash."""
        return min(self._durability.durable_base_offset, self._durability.recovery_point_to_save)

    def begin(self, replaced: range, now_ms: int) -> Rewrite:
        """Begin to rewrite the segments whose base offsets are in a range.

        Raises InvariantViolation while another rewrite is in progress, for an empty range, for one that ends above
        `end_offset`, and unless segments begin at both of its ends. Raises ApiError(KAFKA_STORAGE_ERROR).
        """
        self._health.check()
        check(self._under_way is None, "one rewrite of a log is under way at most")
        check(len(replaced) > 0 and replaced.stop <= self.end_offset, "only closed and flushed segments are rewritten")
        self._under_way = Rewrite(self, replaced, self._segments.within(replaced), now_ms)
        return self._under_way

    def create(self, base_offset: int, now_ms: int) -> Segment:
        """Create a new segment, for `Rewrite.add`."""
        with self._health:
            return Segment.create(self._handles, self._directory, base_offset, now_ms, CLEANED_SUFFIX)

    def finish(self, rewrite: Rewrite) -> bool:
        """End a rewrite, for `Rewrite.finish`; return whether the segments were replaced."""
        self._under_way = None
        with self._health:
            is_as_before = rewrite.replaced.stop <= self.end_offset and self._segments.has(rewrite.old)
            try:
                if is_as_before:
                    self._replace(rewrite)
            except OutOfSpace:
                self._remove(rewrite)
                raise
            if not is_as_before:
                self._remove(rewrite)
        return is_as_before

    def _replace(self, rewrite: Rewrite) -> None:
        for segment in rewrite.new:
            segment.close_indexes()
            self._make_durable(segment)
        self._producers.write_indexes(rewrite.old, rewrite.new, CLEANED_SUFFIX)
        self._record_files()  # so that a startup after a crash does not recover segments that have become shorter
        self._host.records.about_to_rewrite(self._partition, rewrite.replaced)
        self._producers.forget_snapshots(rewrite.old, rewrite.new)
        self._segments.replace(rewrite.replaced, rewrite.new)
        self._producers.replaced(rewrite.old, rewrite.new)
        self._record_files()

    def _make_durable(self, segment: Segment) -> None:
        for path in segment.paths:
            self._handles.get(path).fsync()

    def abandon(self, rewrite: Rewrite) -> None:
        """End a rewrite without a change, for `Rewrite.abandon`."""
        self._under_way = None
        with self._health:
            self._remove(rewrite)

    def _remove(self, rewrite: Rewrite) -> None:
        remove_unfinished(self._handles, self._directory, [segment.base_offset for segment in rewrite.new])


class Rewrite:
    """A rewrite in progress, until `finish` or `abandon`. A startup removes the files of one that a crash has ended."""

    def __init__(self, rewrites: Rewrites, replaced: range, old: list[Segment], now_ms: int) -> None:
        self.replaced = replaced
        """The range of base offsets of the segments to replace."""
        self.old = old
        self.new: list[Segment] = []
        self._rewrites = rewrites
        self._now_ms = now_ms

    def add(self, base_offset: int) -> Segment:
        """Add a new segment after the others, for batches below the end of `replaced`.

        The first new segment must begin at the start of `replaced`. Raises ApiError(KAFKA_STORAGE_ERROR).
        """
        segment = self._rewrites.create(base_offset, self._now_ms)
        self.new.append(segment)
        return segment

    def finish(self) -> bool:
        """Replace the old segments by the new ones, durably; return False if the old ones have changed.

        Records keep their offsets. Raises ApiError(KAFKA_STORAGE_ERROR); without room the log does not change.
        """
        return self._rewrites.finish(self)

    def abandon(self) -> None:
        """Leave the log as it is, and remove the new segments. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        self._rewrites.abandon(self)
