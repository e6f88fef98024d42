"""Creates and deletes the directories of the logs in a log directory, many at once, and recognizes unfinished ones.

A new log's directory is created without a sync. The inventory expects it, so a startup recreates it if a power failure
has removed it (DB-95). A deleted log's directory is renamed at once, and its files are removed later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final
from uuid import UUID

import structlog

from kraftbase.errors import OutOfSpace
from kraftbase.files.files import join, read_whole
from kraftbase.partition import TopicPartition
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.storage.directory_records import DirectoryRecords
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.formats.checkpoints import decode_partition_metadata
from kraftlog.storage.formats.names import (
    LOG_SUFFIX,
    PARTITION_METADATA_NAME,
    deleted_directory_name,
    directory_name,
    is_any_stray_directory,
    is_deleted_directory,
)
from kraftlog.storage.slices import SLICE_LINES, SLICE_PARTITIONS, Steps, slices

logger = structlog.get_logger(__name__)

STRAYS_NAMED: Final = 5


class LogFolders:
    """The logs' directories in one log directory. For one thread. The methods raise StorageError and FlushFailed."""

    def __init__(self, handles: FileHandles, path: str, records: DirectoryRecords) -> None:
        self._handles = handles
        self._files = handles.files
        self._path = path
        self._records = records

    # --- creating -----------------------------------------------------------------------------------------------------

    def is_unfinished(self, partition: TopicPartition, names: list[str]) -> bool:
        """Whether a log's directory has nothing to keep; it is recreated if the metadata has the partition.

        A power failure may leave any part of a new log's files, also a file without its content.
        """
        path = join(self._path, directory_name(partition))
        has_segments = any(LOG_SUFFIX in name for name in names)
        entry = self._records.entry(partition)
        if PARTITION_METADATA_NAME not in names or (entry is not None and entry.is_new):
            return not has_segments
        return entry is None and self._has_no_record(path, names) and not self._has_topic_id(path)

    def _has_no_record(self, path: str, names: list[str]) -> bool:
        return not any(self._handles.get(join(path, name)).size() for name in names if LOG_SUFFIX in name)

    def _has_topic_id(self, path: str) -> bool:
        metadata_path = join(path, PARTITION_METADATA_NAME)
        try:
            decode_partition_metadata(read_whole(self._files, metadata_path), metadata_path)
        except MalformedBytes:
            return False
        return True

    def make_way(self, partition: TopicPartition, unique: UUID) -> None:
        """Create the empty directory of a log; rename one with segments for deletion, and empty one without."""
        path = join(self._path, directory_name(partition))
        if self._files.exists(path):
            names = self._files.list_directory(path)
            if any(LOG_SUFFIX in name for name in names):
                self._rename(partition, deleted_directory_name(partition, unique))
                self._files.fsync_directory(self._path)
            else:
                for name in names:
                    self._handles.remove(join(path, name))
                return
        self._files.make_directory(path)

    def name_strays(self, names: list[str]) -> None:
        """Log which of the names in the directory are of logs that were set aside."""
        strays = [name for name in names if is_any_stray_directory(name)]
        if strays:
            logger.warning(
                "stray logs are kept: delete the ones that are not needed", path=self._path,
                count=len(strays), first=strays[:STRAYS_NAMED],
            )  # fmt: skip

    # --- deleting -----------------------------------------------------------------------------------------------------

    def rename_all(self, partitions: Sequence[TopicPartition], new_name: Callable[[TopicPartition], str]) -> Steps:
        """Remove logs from the inventory, then rename their directories, then forget their checkpoints.

        Each of the first two steps is durable before the next one: consider a topic that is recreated under its name.
        Its log must not find the old directory, nor an entry or a checkpoint of the old log.
        """
        for some in slices(partitions, SLICE_LINES):
            self._records.about_to_go(some, is_synced=False)
            yield None
        yield self._records.sync
        for some in slices(partitions, SLICE_PARTITIONS):
            for partition in some:
                self._rename(partition, new_name(partition))
            yield None
        self._records.forget_checkpoints(partitions)
        yield partial(self._files.fsync_directory, self._path)
        with contextlib.suppress(OutOfSpace):  # the inventory is right, and the next checkpoint writes them
            self._records.write_outdated_checkpoints()

    def _rename(self, partition: TopicPartition, new_name: str) -> None:
        path = join(self._path, directory_name(partition))
        if self._files.exists(path):
            for name in self._files.list_directory(path):
                self._handles.drop(join(path, name))
            self._files.rename_directory(path, join(self._path, new_name))

    def forget_all(self, partitions: Sequence[TopicPartition]) -> Steps:
        """Remove logs without directories from the inventory, durably, and from the checkpoints."""
        known = [partition for partition in partitions if self._records.entry(partition) is not None]
        if not known:
            return
        for some in slices(known, SLICE_LINES):
            self._records.about_to_go(some, is_synced=False)
            yield None
        yield self._records.sync
        self._records.forget_checkpoints(known)
        with contextlib.suppress(OutOfSpace):  # a superfluous line does no harm
            self._records.write_outdated_checkpoints()

    def remove_deleted(self) -> Steps:
        """Remove the files of deleted logs, one log after the other, without syncs. Raises StorageError."""
        for name in filter(is_deleted_directory, self._files.list_directory(self._path)):
            yield partial(self._remove_deleted, join(self._path, name))

    def _remove_deleted(self, path: str) -> None:
        for name in self._files.list_directory(path):
            self._files.remove(join(path, name))
        self._files.remove_directory(path)
