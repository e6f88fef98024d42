"""In which registration each log directory of a broker was last in use (CT-38).

    LOGDIR/broker-epoch         the epoch of the last registration with the directory
    DIR/log-directory-epochs    in the broker's own directory: that of each log directory, also of those not in use now

Both are lines of key=value (docs/formats). The second one tells a directory whose disk had failed for a while, and is
repaired, from an older copy: it has missed registrations as well, but is as it was left.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final, Protocol
from uuid import UUID

import structlog

from kraftbase.errors import FlushFailed, OutOfSpace, StorageError
from kraftbase.files.files import FileSystem, join, read_whole, write_new_file
from kraftbase.files.properties import decode_properties, encode_properties
from kraftbase.uuids import uuid_from_text, uuid_to_text
from kraftlog.broker.log.registered_epoch import note_registration, registered_epoch
from raft.shell.runtime import Runtime, awaited

MEMORY_NAME: Final = "log-directory-epochs"
VERSION: Final = 1
REMEMBERED_MAX: Final = 1_000
"""How many directories are remembered, those that were in use last: as many as a broker may have."""

logger = structlog.get_logger(__name__)


class EpochDirectory(Protocol):
    """A log directory (`kraftlog.broker.log.log_directory.LogDirectory`)."""

    path: str
    directory_id: UUID
    offline_reason: str

    def note_registration(self, broker_epoch: int) -> None:
        """Note a registration in its inventory. Raises StorageError, FlushFailed."""
        ...

    def fail(self, error: BaseException) -> None:
        """Its disk has failed."""
        ...


def named_epoch(found: int, remembered: Mapping[UUID, int], directory_id: UUID) -> int:
    """The registration up to which a directory is known to be as it was left; `found` is what it has itself.

    Consider directories A and B, used with epoch 500. The disk of A fails, and the broker registers with epoch 700,
    without A: it remembers 500 of A and 700 of B. When A is repaired and still has 500, it is what it was at 700, too.
    A copy of A from before has 300, and names that. If what is remembered is of an older copy itself, and knows of
    nothing above 500, then both name 500: the controller knows better.
    """
    last = remembered.get(directory_id)
    if last is None or found < last:
        return found
    return max(found, *remembered.values())


class RegisteredEpochs:
    """Of the log directories that one process uses."""

    def __init__(
        self, files: FileSystem, own_path: str, directories: Sequence[EpochDirectory], runtime: Runtime
    ) -> None:
        """`own_path` is the broker's own directory."""
        self._files = files
        self._memory_path = join(own_path, MEMORY_NAME)
        self._own_path = own_path
        self.directories = tuple(directories)
        """Those that were online when the process started."""
        self._runtime = runtime

    def named(self) -> list[int]:
        """What a registration names for each of the directories."""
        remembered = self._remembered()
        return [
            named_epoch(registered_epoch(self._files, of.path), remembered, of.directory_id) for of in self.directories
        ]

    async def note(self, broker_epoch: int, older_log_dirs: Collection[bytes]) -> None:
        """Make a registration's epoch durable, and say which directories the controller found to be older copies.

        Raises StorageError, FlushFailed if it cannot be remembered in the broker's own directory. A log directory where
        it cannot be written is offline.
        """
        self.say_older(older_log_dirs)
        self.note_in_inventories(broker_epoch)
        failed: list[tuple[EpochDirectory, StorageError | FlushFailed]] = []
        await awaited(partial(self._runtime.run_on_disk, lambda: failed.extend(self.write(broker_epoch))))
        for directory, error in failed:
            directory.fail(error)

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
                    " the brokers with other replicas, or put the directory back as the broker left it; if neither is"
                    " possible, `kraftlog elect --type unclean` makes this copy lead, and what it lacks is lost",
                    path=directory.path,
                )  # fmt: skip

    def write(self, broker_epoch: int) -> list[tuple[EpochDirectory, StorageError | FlushFailed]]:
        """Write the epoch, and remember it; returns the directories where that failed.

        For the thread of the disk. Raises StorageError, FlushFailed as `note` does.
        """
        failed: list[tuple[EpochDirectory, StorageError | FlushFailed]] = []
        remembered = self._remembered()
        for directory in self.directories:
            if directory.offline_reason:
                continue
            try:
                note_registration(self._files, directory.path, broker_epoch)
            except (StorageError, FlushFailed) as error:
                failed.append((directory, error))
            else:
                remembered[directory.directory_id] = broker_epoch
        self._remember(remembered)
        return failed

    def _remembered(self) -> dict[UUID, int]:
        if not self._files.exists(self._memory_path):
            return {}
        found = decode_properties(read_whole(self._files, self._memory_path)) or {}
        if found.pop("version", "") != str(VERSION):
            logger.warning("what is remembered of log directories is damaged, and not used", path=self._memory_path)
            return {}
        return {uuid_from_text(key): int(epoch) for key, epoch in found.items() if epoch.isdecimal()}

    def _remember(self, epochs: Mapping[UUID, int]) -> None:
        latest = sorted(epochs.items(), key=lambda item: (item[1], item[0]))[-REMEMBERED_MAX:]
        lines = "".join(f"{uuid_to_text(directory_id)}={epoch}\n" for directory_id, epoch in latest)
        try:
            write_new_file(self._files, self._memory_path, encode_properties(f"version={VERSION}\n{lines}"))
        except OutOfSpace as error:
            logger.warning("the epochs of log directories are not remembered", reason=str(error))
            if self._files.exists(self._memory_path):
                self._files.remove(self._memory_path)
                self._files.fsync_directory(self._own_path)
