"""The first step of a start: open the log directories, and decide about their ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from uuid import UUID

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.files.files import FileSystem, join
from kraftbase.partition import TopicPartition
from kraftbase.runtime import Runtime
from kraftlog.broker.directory import BrokerDirectory
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.file_handles import OPEN_FILES_MAX
from kraftlog.storage.loading import RecoveryProgress
from kraftlog.storage.log_manager import LogManager
from raft.storage.directory import META_NAME

LogConfigs = Callable[[TopicPartition], PartitionLogConfig]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsToOpen:
    """The log directories of a broker, and what is needed to open them."""

    cluster_id: str
    broker_id: int
    paths: Sequence[str]
    last_configs: Callable[[], AbstractContextManager[LogConfigs]]
    """The last configs of logs that the broker has applied, for as long as logs are opened. Called in any thread."""
    open_files_max: int = OPEN_FILES_MAX
    new_id: Callable[[], UUID]
    """Returns a random id."""
    on_progress: Callable[[RecoveryProgress], None]
    """Called while logs are recovered, in the thread that opens them."""


def open_logs(to_open: LogsToOpen, files: FileSystem, directory: BrokerDirectory, runtime: Runtime) -> LogManager:
    """Open every log directory and recover its logs. It may take minutes: use a thread. Raises DirectoryError."""
    with to_open.last_configs() as config_of:
        return LogManager.open(
            files,
            to_open.paths,
            runtime,
            cluster_id=to_open.cluster_id,
            node_id=to_open.broker_id,
            config_of=config_of,
            on_progress=to_open.on_progress,
            open_files_max=to_open.open_files_max,
            new_id=_directory_ids(to_open, files, directory).__next__,
        )


def _directory_ids(to_open: LogsToOpen, files: FileSystem, directory: BrokerDirectory) -> Iterator[UUID]:
    """Yield ids for new log directories. The first one that a broker ever has gets the id of the broker's own
    directory.

    A broker of an earlier version has registered that id, and its partitions are assigned to it. An empty directory in
    place of one that had logs gets another id, because with the same id the controller would assume that its logs
    exist.
    """
    is_first = not directory.has_log_directories and not any(
        files.exists(join(path, META_NAME)) for path in to_open.paths
    )
    if is_first and directory.directory_id is not None:
        yield directory.directory_id
    while True:
        yield to_open.new_id()


def use_log_directories(directory: BrokerDirectory, logs: LogManager) -> None:
    """Record that the broker has log directories.

    Raises ApiError(KAFKA_STORAGE_ERROR) if none can be used; StorageError.
    """
    directory.note_log_directories()
    if not logs.online:
        reasons = "; ".join([*logs.failed.values(), *(log_dir.offline_reason for log_dir in logs.directories)])
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"no log directory can be used: {reasons}")
