"""The file of a partition's leader epochs, which may lag behind the log: a start adds what its batches show (DB-68)."""

from __future__ import annotations

import structlog

from kraftbase.files.files import FileSystem, join, read_whole, write_new_file
from kraftlog.broker.log.formats.checkpoints import decode_epochs, encode_epochs
from kraftlog.broker.log.formats.names import LEADER_EPOCHS_NAME
from kraftlog.broker.log.leader_epochs import LeaderEpochs
from kraftlog.kafka.errors import MalformedBytes

logger = structlog.get_logger(__name__)


def read_epochs(files: FileSystem, directory: str) -> list[tuple[int, int]] | None:
    """The epochs in a partition's directory; None if the file is missing or damaged: they follow from the batches."""
    path = join(directory, LEADER_EPOCHS_NAME)
    if not files.exists(path):
        return None
    try:
        return decode_epochs(read_whole(files, path), path) or None
    except MalformedBytes as error:
        logger.warning("the leader epochs are read from the batches", reason=str(error))
        return None


def write_epochs(files: FileSystem, directory: str, epochs: LeaderEpochs) -> None:
    """Write the file, durably. Raises StorageError, FlushFailed."""
    write_new_file(files, join(directory, LEADER_EPOCHS_NAME), encode_epochs(epochs.entries()))
    epochs.saved()
