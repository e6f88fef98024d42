"""How logs leave a log directory: they are deleted, or set aside under a name of their own.

What is renamed is not found any more, durably, under the name of the partition. The files of deleted logs are removed
later, and those that were set aside stay until an operator deletes them.
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
    """Of one log directory. For one thread."""

    def __init__(
        self, host: LogHost, files: FileSystem, path: str, folders: LogFolders,
        retire: Callable[[TopicPartition, ApiError], None],
    ) -> None:  # fmt: skip
        """`retire` has the directory use a log no longer; who waits for its appends gets the error."""
        self._host = host
        self._files = files
        self._path = path
        self._folders = folders
        self._retire = retire
        self._is_removing = False

    def delete_log(self, partition: TopicPartition, unique: UUID, reason: ApiError) -> None:
        """Take a partition's log away, durably; its files are removed by `remove_deleted`, later.

        Who waits for its appends gets `reason`. `unique` makes the name of what is left one of its own. Raises
        ApiError(KAFKA_STORAGE_ERROR). The directory has no such log then either: consider a topic whose log is on a
        disk that has failed. Another topic with its name must not find that log. The files are a stray of the next
        start that finds them.
        """
        self._take_away(partition, deleted_directory_name(partition, unique), reason)

    def set_stray_aside(self, partition: TopicPartition, unique: UUID, reason: ApiError) -> str:
        """As `delete_log`, but the files stay, under a name of their own, which is returned."""
        name = stray_directory_name(partition, unique)
        self._take_away(partition, name, reason)
        return name

    def has_stray(self, partition: TopicPartition) -> bool:
        """Whether files of a log of a partition were set aside. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        self._host.check_online()
        try:
            return any(is_stray_directory(name, partition) for name in self._files.list_directory(self._path))
        except StorageError as error:
            raise self._host.refusal(error) from error

    def _take_away(self, partition: TopicPartition, new_name: str, reason: ApiError) -> None:
        self._retire(partition, reason)
        run_at_once(self._rename_all([partition], lambda _: new_name))

    def delete_logs(self, partitions: Sequence[TopicPartition], new_id: Callable[[], UUID]) -> Steps:
        """Take the files of retired logs away, all with a few syncs (DB-95); `remove_deleted` removes them later.

        Durable at its end: from then on no crash brings a log back. Raises ApiError(KAFKA_STORAGE_ERROR), and then the
        files are strays of the next start that finds them.
        """
        yield from self._rename_all(partitions, lambda partition: deleted_directory_name(partition, new_id()))

    def _rename_all(self, partitions: Sequence[TopicPartition], new_name: Callable[[TopicPartition], str]) -> Steps:
        """As `LogFolders.rename_all`. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        self._host.check_online()
        try:
            yield from self._folders.rename_all(partitions, new_name)
        except (StorageError, FlushFailed) as error:
            raise self._host.refusal(error) from error

    def remove_deleted(self) -> Steps:
        """Remove the files of deleted partitions, one after the other, in the disk's thread. Does not raise.

        That need not be durable: the next start removes what comes back. Nothing of them is open.
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
