"""Deletes logs of a log directory, or sets them aside, both by a durable rename of the log's directory.

The files of deleted logs are removed later. Those of logs that were set aside stay until an operator deletes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from kraftbase.errors import ApiError, FlushFailed, StorageError
from kraftbase.files.files import FileSystem
from kraftbase.partition import TopicPartition
from kraftlog.storage.formats.names import deleted_directory_name, is_stray_directory, stray_directory_name
from kraftlog.storage.log_folders import LogFolders
from kraftlog.storage.log_host import LogHost
from kraftlog.storage.slices import Steps, run_at_once


class LogRemoval:
    """The removal of logs from one log directory. For one thread."""

    def __init__(
        self, host: LogHost, files: FileSystem, path: str, folders: LogFolders,
        retire: Callable[[TopicPartition, ApiError], None],
    ) -> None:  # fmt: skip
        """`retire` makes the directory stop using a log; the log's waiting appends fail with the error."""
        self._host = host
        self._files = files
        self._path = path
        self._folders = folders
        self._retire = retire
        self._is_removing = False

    def delete_log(self, partition: TopicPartition, unique: UUID, reason: ApiError) -> None:
        """Rename a partition's log for deletion, durably; `remove_deleted` removes its files later.

        Waiting appends fail with `reason`. `unique` makes the new name unique. Raises ApiError(KAFKA_STORAGE_ERROR);
        also then the directory has stopped using the log. Consider a topic whose log is on a disk that has failed: a
        new topic of that name must not find the old log. A later startup that finds the files treats them as a stray.
        """
        self._take_away(partition, deleted_directory_name(partition, unique), reason)

    def set_stray_aside(self, partition: TopicPartition, unique: UUID, reason: ApiError) -> str:
        """Like `delete_log`, but keep the files under a unique name; return that name."""
        name = stray_directory_name(partition, unique)
        self._take_away(partition, name, reason)
        return name

    def has_stray(self, partition: TopicPartition) -> bool:
        """Whether a log of a partition was set aside here. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        self._host.check_online()
        try:
            return any(is_stray_directory(name, partition) for name in self._files.list_directory(self._path))
        except StorageError as error:
            raise self._host.refusal(error) from error

    def _take_away(self, partition: TopicPartition, new_name: str, reason: ApiError) -> None:
        self._retire(partition, reason)
        run_at_once(self._rename_all([partition], lambda _: new_name))

    def delete_logs(self, partitions: Sequence[TopicPartition], new_id: Callable[[], UUID]) -> Steps:
        """Rename retired logs for deletion, with a few syncs for all (DB-95); `remove_deleted` removes them later.

        After the last step no crash brings a log back. Raises ApiError(KAFKA_STORAGE_ERROR); then a later startup that
        finds the files treats them as strays.
        """
        yield from self._rename_all(partitions, lambda partition: deleted_directory_name(partition, new_id()))

    def _rename_all(self, partitions: Sequence[TopicPartition], new_name: Callable[[TopicPartition], str]) -> Steps:
        """Call `LogFolders.rename_all`. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        self._host.check_online()
        try:
            yield from self._folders.rename_all(partitions, new_name)
        except (StorageError, FlushFailed) as error:
            raise self._host.refusal(error) from error

    def remove_deleted(self) -> Steps:
        """Remove the files of deleted partitions, one after the other, in the disk's thread. Does not raise.

        No sync is needed: the next startup removes files that a crash brings back. None of the files is open.
        """
        if self._host.offline_reason or self._is_removing:
            return
        self._is_removing = True
        try:
            yield from self._folders.remove_deleted()
        except (StorageError, FlushFailed) as error:
            self._host.refusal(error)
        finally:
            self._is_removing = False
