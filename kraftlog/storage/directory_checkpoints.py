"""The checkpoint files of one log directory: recovery points, log start offsets and high watermarks, as Kafka has them.

Memory has the content of the files, except lines of logs that are gone. After a write that failed for lack of room the
next write makes up for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

import structlog

from kraftbase.errors import StorageError
from kraftbase.files.files import TEMPORARY_SUFFIX, FileSystem, join, read_whole, write_new_file, write_temporary
from kraftbase.partition import TopicPartition
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.storage.formats.checkpoints import decode_offsets, encode_offsets
from kraftlog.storage.formats.names import HIGH_WATERMARKS_NAME, LOG_STARTS_NAME, RECOVERY_POINTS_NAME
from kraftlog.storage.slices import Steps

logger = structlog.get_logger(__name__)

REWRITTEN_SUFFIX: Final = ".next"
"""Marks the temporary name of a file that the disk's thread writes: the loop's thread may write the same file."""

Offsets = dict[TopicPartition, int]


class DirectoryCheckpoints:
    """Three offsets of each partition. For one thread. Each `save_` method is durable, or raises StorageError."""

    def __init__(self, files: FileSystem, directory: str) -> None:
        """Start empty; `read` reads the files of the directory."""
        self.recovery_points: Offsets = {}
        """The offset up to which each log is known to be flushed."""
        self.log_starts: Offsets = {}
        self.high_watermarks: Offsets = {}
        """The offset up to which each log is known to be committed."""
        self._changes: Counter[str] = Counter()  # of each file: how often its required content has changed
        self._outdated: set[str] = set()  # names of files with lines of logs that are gone
        self._urgent: set[str] = set()  # of these, the files with lines that are not 0
        self._files = files
        self._directory = directory

    def read(self, *, has_inventory: bool) -> None:
        """Read the files. Raises StorageError for damaged log starts, unless an inventory has them as well."""
        try:
            self.recovery_points = self._read(RECOVERY_POINTS_NAME)
        except MalformedBytes as error:
            logger.warning("recovery points are unreadable: all segments are read", reason=str(error))
        try:
            self.high_watermarks = self._read(HIGH_WATERMARKS_NAME)
        except MalformedBytes as error:
            logger.warning("high watermarks are unreadable: replicas determine them again", reason=str(error))
        try:
            self.log_starts = self._read(LOG_STARTS_NAME)
        except MalformedBytes as error:
            if not has_inventory:
                raise StorageError(
                    f"{error}. It says which records were deleted. Put the file back, or remove it if DeleteRecords was"
                    " never used"
                ) from None
            logger.warning("log start offsets are unreadable: the inventory's are used", reason=str(error))

    def _read(self, name: str) -> Offsets:
        path = join(self._directory, name)
        return decode_offsets(read_whole(self._files, path), path) if self._files.exists(path) else {}

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the offsets of partitions that have no log here; call `write_outdated` afterwards.

        A line with 0 means the same as no line: it is only dropped the next time that the file is written.
        """
        gone = set(partitions)
        for name, offsets in self._by_name().items():
            self._changes[name] += 1
            if any(offsets.get(partition, 0) for partition in gone):
                self._urgent.add(name)
            if not gone.isdisjoint(offsets):
                self._set(name, {key: offset for key, offset in offsets.items() if key not in gone})
                self._outdated.add(name)

    def write_outdated(self) -> None:
        """Write the files that have offsets other than 0 of logs that are gone. Raises StorageError, FlushFailed."""
        for name, offsets in self._by_name().items():
            if name in self._urgent:
                self._write(name, offsets)

    def lower(self, partition: TopicPartition, offset: int) -> None:
        """Lower a log's recovery point and high watermark to `offset`, if they are above it."""
        self._changes.update((RECOVERY_POINTS_NAME, HIGH_WATERMARKS_NAME))
        if self.recovery_points.get(partition, 0) > offset:
            self.save_recovery_points(self.recovery_points | {partition: offset})
        if self.high_watermarks.get(partition, 0) > offset:
            self.save_high_watermarks(self.high_watermarks | {partition: offset})

    def accepted(self, partition: TopicPartition, log_start_offset: int, recovery_point: int) -> None:
        """Set the offsets of a damaged log that continues with its remaining records."""
        self.save_recovery_points(self.recovery_points | {partition: recovery_point})
        self.lower(partition, max(log_start_offset, recovery_point))
        self.save_log_start(partition, log_start_offset)

    def save_log_start(self, partition: TopicPartition, offset: int) -> None:
        """Save the log start offset of one log."""
        self._changes[LOG_STARTS_NAME] += 1
        if self.log_starts.get(partition, 0) != offset:
            self.save_log_starts(self.log_starts | {partition: offset})

    def save_recovery_points(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write the file, if it changes."""
        if offsets != self.recovery_points or RECOVERY_POINTS_NAME in self._outdated:
            self._save(RECOVERY_POINTS_NAME, offsets)

    def save_log_starts(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write the file, if it changes."""
        if offsets != self.log_starts or LOG_STARTS_NAME in self._outdated:
            self._save(LOG_STARTS_NAME, offsets)

    def save_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write the file, if it changes."""
        if offsets != self.high_watermarks or HIGH_WATERMARKS_NAME in self._outdated:
            self._save(HIGH_WATERMARKS_NAME, offsets)

    def changes(self, name: str) -> int:
        """The number of changes so far to the required content of a file, except those by `rewrite`."""
        return self._changes[name]

    def rewrite(self, name: str, offsets: Offsets, changes: int) -> Steps:
        """Write a file with new offsets, unless `changes` shows that they are out of date, or the file has them.

        `changes` is the result of `changes()` from before the offsets were gathered. Consider a log that is truncated
        while the disk's thread writes the file: the truncation has written the file itself, and the offsets gathered
        before are too high. They are dropped; the next checkpoint is soon enough. Raises StorageError, FlushFailed.
        """
        if changes != self._changes[name] or (offsets == self._by_name()[name] and name not in self._outdated):
            return
        path = join(self._directory, name)
        yield lambda: write_temporary(self._files, path + REWRITTEN_SUFFIX, encode_offsets(offsets))
        if changes == self._changes[name]:
            self._files.rename(path + REWRITTEN_SUFFIX + TEMPORARY_SUFFIX, path)
            self._written(name, offsets)
            yield partial(self._files.fsync_directory, self._directory)

    def _save(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        self._write(name, dict(offsets))

    def _write(self, name: str, offsets: Offsets) -> None:
        write_new_file(self._files, join(self._directory, name), encode_offsets(offsets))
        self._written(name, offsets)

    def _written(self, name: str, offsets: Offsets) -> None:
        self._set(name, offsets)
        self._outdated.discard(name)
        self._urgent.discard(name)

    def _by_name(self) -> dict[str, Offsets]:
        return {
            RECOVERY_POINTS_NAME: self.recovery_points,
            LOG_STARTS_NAME: self.log_starts,
            HIGH_WATERMARKS_NAME: self.high_watermarks,
        }

    def _set(self, name: str, offsets: Offsets) -> None:
        if name == RECOVERY_POINTS_NAME:
            self.recovery_points = offsets
        elif name == LOG_STARTS_NAME:
            self.log_starts = offsets
        else:
            self.high_watermarks = offsets
