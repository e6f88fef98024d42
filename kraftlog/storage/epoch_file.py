"""The file of a partition's leader epochs, which may lag behind the log: a startup adds its batches' epochs (DB-68)."""

from __future__ import annotations

import contextlib

import structlog

from kraftbase.errors import StorageError
from kraftbase.files.files import TEMPORARY_SUFFIX, FileSystem, join, read_whole, write_new_file
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.formats.checkpoints import decode_epochs, encode_epochs
from kraftlog.storage.formats.names import LEADER_EPOCHS_NAME
from kraftlog.storage.leader_epochs import LeaderEpochs

logger = structlog.get_logger(__name__)


def read_epochs(files: FileSystem, directory: str) -> list[tuple[int, int]] | None:
    """Read a partition's leader epochs; None if the file is missing or damaged: the caller gets them from batches."""
    path = join(directory, LEADER_EPOCHS_NAME)
    if not files.exists(path):
        return None
    try:
        return decode_epochs(read_whole(files, path), path) or None
    except MalformedBytes as error:
        logger.warning("leader epochs are unreadable: batches are read for them", reason=str(error))
        return None


class NewEpochs:
    """A new version of the file: written under its temporary name, and renamed once a flush has made it durable.

    The constructor raises StorageError, also OutOfSpace; then it has left no file.
    """

    def __init__(self, handles: FileHandles, directory: str, epochs: LeaderEpochs) -> None:
        self.entries = epochs.entries()
        """The epochs in the new file."""
        self.temporary_path = join(directory, LEADER_EPOCHS_NAME) + TEMPORARY_SUFFIX
        self._handles = handles
        try:
            handles.create(self.temporary_path).write_at(0, encode_epochs(self.entries))
        except StorageError:
            with contextlib.suppress(StorageError):
                handles.remove(self.temporary_path)
            raise

    def rename(self) -> None:
        """Rename the file to its final name, in any thread, while the directory is this log's. Raises StorageError."""
        self._handles.files.rename(self.temporary_path, self.temporary_path.removesuffix(TEMPORARY_SUFFIX))

    def close(self) -> None:
        """Close the file."""
        self._handles.drop(self.temporary_path)


def write_epochs(files: FileSystem, directory: str, epochs: LeaderEpochs) -> None:
    """Write the file, durably. Raises StorageError, FlushFailed."""
    write_new_file(files, join(directory, LEADER_EPOCHS_NAME), encode_epochs(epochs.entries()))
    epochs.saved(epochs.entries())
