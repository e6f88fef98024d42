"""Closed segments of a log are rewritten: others with the same records, or fewer of them, take their place (DB-117).

    rewrite = log.rewrites.begin(range(0, 2000), now_ms)      the segments that begin at 0 and 1000
    segment = rewrite.add(0)                                  made beside the log, in any number of turns
    segment.append(data, headers, config)
    rewrite.finish()                                          in one turn; True: readers have the new one from now on

While that is made, the log goes on: it is appended to, cut, and loses its oldest segments. If one of those to be
replaced has changed, `finish` leaves the log as it is.
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
    """Of one log. One is under way at most. For one thread."""

    def __init__(
        self, handles: FileHandles, directory: str, partition: TopicPartition, segments: SegmentList,
        producers: ProducerHistory, durability: Durability, health: LogHealth, host: LogHost, note: Callable[[], None],
    ) -> None:  # fmt: skip
        """`note` has the inventory say which files the log has."""
        self._handles = handles
        self._directory = directory
        self._partition = partition
        self._segments = segments
        self._producers = producers
        self._durability = durability
        self._health = health
        self._host = host
        self._note = note
        self._under_way: Rewrite | None = None

    @property
    def end_offset(self) -> int:
        """The segments below may be rewritten: they are closed and flushed, also for a start after a crash."""
        return min(self._durability.durable_base_offset, self._durability.recovery_point_to_save)

    def begin(self, replaced: range, now_ms: int) -> Rewrite:
        """Begin to rewrite the segments that begin in a range of offsets.

        InvariantViolation unless segments begin at both ends of it, it is not empty, and ends at `end_offset` at most;
        or while another rewrite is under way. Raises ApiError(KAFKA_STORAGE_ERROR).
        """
        self._health.check()
        check(self._under_way is None, "one rewrite of a log is under way at most")
        check(len(replaced) > 0 and replaced.stop <= self.end_offset, "what is rewritten is closed and flushed")
        self._under_way = Rewrite(self, replaced, self._segments.within(replaced), now_ms)
        return self._under_way

    def create(self, base_offset: int, now_ms: int) -> Segment:
        """For `Rewrite.add`."""
        with self._health:
            return Segment.create(self._handles, self._directory, base_offset, now_ms, CLEANED_SUFFIX)

    def finish(self, rewrite: Rewrite) -> bool:
        """For `Rewrite.finish`."""
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
        self._note()  # else a start after a crash might look for what it lost in segments that are shorter now
        self._host.records.about_to_rewrite(self._partition, rewrite.replaced)
        self._producers.forget_snapshots(rewrite.old, rewrite.new)
        self._segments.replace(rewrite.replaced, rewrite.new)
        self._producers.replaced(rewrite.old, rewrite.new)
        self._note()

    def _make_durable(self, segment: Segment) -> None:
        for path in segment.paths:
            self._handles.get(path).fsync()

    def abandon(self, rewrite: Rewrite) -> None:
        """For `Rewrite.abandon`."""
        self._under_way = None
        with self._health:
            self._remove(rewrite)

    def _remove(self, rewrite: Rewrite) -> None:
        remove_unfinished(self._handles, self._directory, [segment.base_offset for segment in rewrite.new])


class Rewrite:
    """One, from `Rewrites.begin` to `finish` or `abandon`. What a crash leaves of it, the next start removes."""

    def __init__(self, rewrites: Rewrites, replaced: range, old: list[Segment], now_ms: int) -> None:
        self.replaced = replaced
        """The offsets at which the segments begin that are replaced."""
        self.old = old
        self.new: list[Segment] = []
        self._rewrites = rewrites
        self._now_ms = now_ms

    def add(self, base_offset: int) -> Segment:
        """Add a segment, behind the others, for batches below the end of `replaced`; the first begins at its start.

        Raises ApiError(KAFKA_STORAGE_ERROR).
        """
        segment = self._rewrites.create(base_offset, self._now_ms)
        self.new.append(segment)
        return segment

    def finish(self) -> bool:
        """Put the new segments in the place of the old ones, durably; returns False if the old ones have changed.

        Offsets stay. Raises ApiError(KAFKA_STORAGE_ERROR): without room the log is as it was.
        """
        return self._rewrites.finish(self)

    def abandon(self) -> None:
        """Leave the log as it is, and remove what was made. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        self._rewrites.abandon(self)
