"""The broker epoch of the registration in which a log directory was last in use: LOGDIR/broker-epoch (CT-38)."""

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
        """Record a registration in the directory's inventory. Raises StorageError, FlushFailed."""
        ...

    def fail(self, error: BaseException) -> None:
        """Take the directory offline: its disk has failed."""
        ...


class RegisteredEpochs:
    """The epochs in the log directories that one process uses."""

    def __init__(self, files: FileSystem, directories: Sequence[EpochDirectory], runtime: Runtime) -> None:
        """`directories` are the log directories that were online when the process started."""
        self._files = files
        self.directories = tuple(directories)
        """The log directories that were online when the process started."""
        self._runtime = runtime

    def named(self) -> list[int]:
        """Return the epoch of each directory, for a registration."""
        return [registered_epoch(self._files, directory.path) for directory in self.directories]

    def store(self, broker_epoch: int, older_log_dirs: Collection[bytes], on_noted: OnDone) -> None:
        """Record a registration's epoch durably, and log which directories the controller found to be older copies.

        A log directory that cannot be written goes offline. `on_noted` is called after that.
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
        """Record a registration in each inventory, before `write`: an inventory without it will show an older copy."""
        for directory in self.directories:
            try:
                if not directory.offline_reason:
                    directory.note_registration(broker_epoch)
            except OutOfSpace as error:
                logger.warning("inventory not updated: an older copy of it would not be recognized", reason=str(error))
            except (StorageError, FlushFailed) as error:
                directory.fail(error)

    def say_older(self, older_log_dirs: Collection[bytes]) -> None:
        """Log which directories are older copies, and what to do about them."""
        for directory in self.directories:
            if directory.directory_id.bytes in older_log_dirs:
                logger.error(
                    "a log directory is an older copy: its replicas are not in sync, and do not lead by themselves."
                    " Start the brokers with other replicas; a partition that has a leader then needs nothing. For one"
                    " that has none see \"An older copy of a disk\" in docs/operations/brokers.md: `kraftlog elect"
                    " --type unclean` would lose what this copy lacks, which the directory as it was left may still"
                    " have",
                    path=directory.path,
                )  # fmt: skip

    def write(self, broker_epoch: int) -> list[tuple[EpochDirectory, StorageError | FlushFailed]]:
        """Write the epoch. Return the directories where that failed, with the errors. Runs in the disk's thread."""
        failed: list[tuple[EpochDirectory, StorageError | FlushFailed]] = []
        for directory in self.directories:
            if directory.offline_reason:
                continue
            try:
                note_registration(self._files, directory.path, broker_epoch)
            except (StorageError, FlushFailed) as error:
                failed.append((directory, error))
        return failed


# Consider a broker that was registered with epoch 900, and a quorum that is restored from a snapshot which ends at 200:
# the broker gets epoch 201. By the restored metadata it would set logs aside, and truncate acknowledged records.
def check_follows(broker_id: int, broker_epoch: int, noted: Sequence[int]) -> None:
    """Check that a registration is newer than those in the log directories: the epochs of a quorum only grow.

    Raises ApiError(INVALID_REGISTRATION): the quorum has lost what it committed (CT-38).
    """
    last = max(noted, default=UNKNOWN_EPOCH)
    if broker_epoch < last:
        raise ApiError(
            ErrorCode.INVALID_REGISTRATION,
            f"broker {broker_id} was registered with epoch {broker_epoch}, but its log directories have noted epoch"
            f" {last}: the quorum has lost what it had committed, by a restore from an old snapshot or a loss of its"
            " own directories. The broker ends, and changes nothing on its disks. Leave them as they are, and see"
            " docs/operations/all-voters-are-lost.md",
        )
