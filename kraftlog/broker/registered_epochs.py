"""In which registration each log directory of a broker was last in use: LOGDIR/broker-epoch (CT-38)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol
from uuid import UUID

import structlog

from kraftbase.errors import ApiError, ErrorCode, FlushFailed, OutOfSpace, StorageError
from kraftbase.files.files import FileSystem
from kraftbase.runtime import OnDone, Runtime
from kraftbase.sentinels import UNKNOWN_EPOCH
from kraftlog.storage.registered_epoch import note_registration, registered_epoch

logger = structlog.get_logger(__name__)


class EpochDirectory(Protocol):
    """A log directory (`kraftlog.storage.log_directory.LogDirectory`)."""

    path: str
    directory_id: UUID
    offline_reason: str

    def note_registration(self, broker_epoch: int) -> None:
        """Note a registration in its inventory. Raises StorageError, FlushFailed."""
        ...

    def fail(self, error: BaseException) -> None:
        """Its disk has failed."""
        ...


class RegisteredEpochs:
    """Of the log directories that one process uses."""

    def __init__(self, files: FileSystem, directories: Sequence[EpochDirectory], runtime: Runtime) -> None:
        """`directories` are those that were online when the process started."""
        self._files = files
        self.directories = tuple(directories)
        """Those that were online when the process started."""
        self._runtime = runtime

    def named(self) -> list[int]:
        """What a registration names for each of the directories."""
        return [registered_epoch(self._files, directory.path) for directory in self.directories]

    def note(self, broker_epoch: int, older_log_dirs: Collection[bytes], on_noted: OnDone) -> None:
        """Make a registration's epoch durable, and say which directories the controller found to be older copies.

        A log directory where it cannot be written is offline. `on_noted` is called after that.
        """
        self.say_older(older_log_dirs)
        self.note_in_inventories(broker_epoch)
        failed: list[tuple[EpochDirectory, StorageError | FlushFailed]] = []

        def written(error: BaseException | None) -> None:
            for directory, failure in failed:
                directory.fail(failure)
            on_noted(error)

        self._runtime.run_on_disk(lambda: failed.extend(self.write(broker_epoch)), written)

    def note_in_inventories(self, broker_epoch: int) -> None:
        """Have each inventory know of a registration, before `write`: one that does not is an older copy."""
        for directory in self.directories:
            try:
                if not directory.offline_reason:
                    directory.note_registration(broker_epoch)
            except OutOfSpace as error:
                logger.warning("an older copy of an inventory would not be recognized", reason=str(error))
            except (StorageError, FlushFailed) as error:
                directory.fail(error)

    def say_older(self, older_log_dirs: Collection[bytes]) -> None:
        """Log which directories are older copies, and what to do."""
        for directory in self.directories:
            if directory.directory_id.bytes in older_log_dirs:
                logger.error(
                    "a log directory is an older copy: what it has is not in sync, and does not lead by itself. Start"
                    " the brokers with other replicas; a partition that has a leader then needs nothing. For one that"
                    " has none see \"An older copy of a disk\" in docs/operations/brokers.md: `kraftlog elect --type"
                    " unclean` would lose what this copy lacks, and what the directory as it was left may still have",
                    path=directory.path,
                )  # fmt: skip

    def write(self, broker_epoch: int) -> list[tuple[EpochDirectory, StorageError | FlushFailed]]:
        """Write the epoch; returns the directories where that failed. For the thread of the disk."""
        failed: list[tuple[EpochDirectory, StorageError | FlushFailed]] = []
        for directory in self.directories:
            if directory.offline_reason:
                continue
            try:
                note_registration(self._files, directory.path, broker_epoch)
            except (StorageError, FlushFailed) as error:
                failed.append((directory, error))
        return failed


# Consider a broker that was registered with epoch 900, and a quorum that is restored from a snapshot which ends at 200.
# It registers the broker with 201. By its metadata the broker would set logs aside, and cut what it acknowledged since.
def check_follows(broker_id: int, broker_epoch: int, noted: Sequence[int]) -> None:
    """Check that a registration is not from before those that log directories have noted: epochs of a quorum ascend.

    Raises ApiError(INVALID_REGISTRATION): the quorum has lost what it committed (CT-38).
    """
    last = max(noted, default=UNKNOWN_EPOCH)
    if broker_epoch < last:
        raise ApiError(
            ErrorCode.INVALID_REGISTRATION,
            f"broker {broker_id} was registered with epoch {broker_epoch}, and its log directories know of a"
            f" registration with epoch {last}: the quorum has lost what it had committed, by a restore from an old"
            " snapshot or a loss of its own directories. The broker ends, and changes nothing on its disks. Leave them"
            " as they are, and see docs/operations/all-voters-are-lost.md",
        )
