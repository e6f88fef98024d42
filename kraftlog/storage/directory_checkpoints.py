"""The checkpoint files of one log directory: recovery points, log start offsets and high watermarks, as Kafka has them.

What is in memory is what the files have, but for lines of logs that are gone. What could not be written, for want of
room, is written the next time.
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
"""In the temporary name of a file that is written in the disk's thread: the loop's thread may write the same file."""

Offsets = dict[TopicPartition, int]


class DirectoryCheckpoints:
    """An offset for each partition, three times. For one thread; each `save_` is durable, or raises StorageError."""

    def __init__(self, files: FileSystem, directory: str) -> None:
        """Of a directory whose files were not read."""
        self.recovery_points: Offsets = {}
        """How far each log is known to be flushed."""
        self.log_starts: Offsets = {}
        self.high_watermarks: Offsets = {}
        """What of each log is committed."""
        self._changes: Counter[str] = Counter()  # of each file: how often what it must have has changed
        self._outdated: set[str] = set()  # names of files with lines of logs that are gone
        self._urgent: set[str] = set()  # of these, the files with lines that are not 0
        self._files = files
        self._directory = directory

    def read(self, *, has_inventory: bool) -> None:
        """Read the files. Raises StorageError for damaged log starts, unless an inventory has them as well."""
        try:
            self.recovery_points = self._read(RECOVERY_POINTS_NAME)
        except MalformedBytes as error:
            logger.warning("all segments are read: the recovery points are not known", reason=str(error))
        try:
            self.high_watermarks = self._read(HIGH_WATERMARKS_NAME)
        except MalformedBytes as error:
            logger.warning("leaders and followers find out again what is committed", reason=str(error))
        try:
            self.log_starts = self._read(LOG_STARTS_NAME)
        except MalformedBytes as error:
            if not has_inventory:
                raise StorageError(
                    f"{error}. It says which records were deleted. Put the file back, or remove it if DeleteRecords was"
                    " never used"
                ) from None
            logger.warning("log start offsets are taken from the inventory", reason=str(error))

    def _read(self, name: str) -> Offsets:
        path = join(self._directory, name)
        return decode_offsets(read_whole(self._files, path), path) if self._files.exists(path) else {}

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget what is known of partitions that are not there, or no longer are; `write_outdated` is to follow.

        A line with 0 says what no line says: it goes when the file is written again.
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
        """Write the files that have offsets of logs which are gone. Raises StorageError, FlushFailed."""
        for name, offsets in self._by_name().items():
            if name in self._urgent:
                self._write(name, offsets)

    def lower(self, partition: TopicPartition, offset: int) -> None:
        """A log is known to be flushed, and committed, up to here only."""
        self._changes.update((RECOVERY_POINTS_NAME, HIGH_WATERMARKS_NAME))
        if self.recovery_points.get(partition, 0) > offset:
            self.save_recovery_points(self.recovery_points | {partition: offset})
        if self.high_watermarks.get(partition, 0) > offset:
            self.save_high_watermarks(self.high_watermarks | {partition: offset})

    def accepted(self, partition: TopicPartition, log_start_offset: int, recovery_point: int) -> None:
        """A damaged log goes on with what is left of it, of which all below the recovery point is flushed."""
        self.save_recovery_points(self.recovery_points | {partition: recovery_point})
        self.lower(partition, max(log_start_offset, recovery_point))
        self.save_log_start(partition, log_start_offset)

    def save_log_start(self, partition: TopicPartition, offset: int) -> None:
        """A log starts there."""
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
        """How often what a file must have has changed, but by `rewrite`."""
        return self._changes[name]

    def rewrite(self, name: str, offsets: Offsets, changes: int) -> Steps:
        """Write a file, if it changes, with what was gathered since `changes`. Raises StorageError, FlushFailed.

        Consider a log that is cut while the file is written in the disk's thread: that cut has written the file, and
        what was gathered before it says too much. It is not used then, and the next time is soon enough.
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
