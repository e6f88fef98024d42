"""The inventory of one log directory: the record with which a startup compares the files of its logs.

    DIR/kraftlog-inventory

Kafka's checkpoint files have no checksum, and no file of Kafka's lists the segments of a log. So one changed bit in a
log start offset, or a missing segment, looks like the effect of retention. The inventory has each log's topic id,
recovery point, log start offset and segments, in lines with checksums. It never claims more than the disk has: an entry
is added when the files are durable, and removed before the files are.

The inventory counts, that is, its entries are used, only if no stock Kafka has used the directory since it was written.
A clean shutdown writes its broker epoch here and to `.kafka_cleanshutdown`, and the two must agree. Without that file,
the last line must be of a running broker. The shutdown writes `.kafka_cleanshutdown` under a temporary name before the
line in the inventory, and renames it after; a startup without room for its own line renames it back. The temporary name
shows that no stock Kafka has used the directory since, but not that the shutdown was clean.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

import structlog

from kraftbase.errors import OutOfSpace, StorageError
from kraftbase.files.files import (
    TEMPORARY_SUFFIX,
    File,
    FileSystem,
    join,
    parent_directory,
    read_whole,
    write_new_file,
)
from kraftbase.partition import TopicPartition
from kraftbase.sentinels import UNKNOWN_EPOCH
from kraftbase.uuids import uuid_to_text
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.storage.formats.inventory import (
    InventoryContent,
    LogEntry,
    decode_inventory,
    encode_change,
    encode_registration,
    encode_shutdown,
    encode_start,
    encode_whole,
)
from kraftlog.storage.formats.names import CLEAN_SHUTDOWN_NAME, INVENTORY_NAME
from kraftlog.storage.registered_epoch import registered_epoch

logger = structlog.get_logger(__name__)

_CLEAN_SHUTDOWN_VERSION: Final = 0

APPENDED_BYTES_MAX: Final = 256 * 1024
"""The file is rewritten when the bytes appended to it exceed this, and exceed its size after the last rewrite.

This many bytes are reserved on the disk: on a full disk, retention must record a log's new start to free room.
"""


class Inventory:
    """The entries of the file. For one thread."""

    def __init__(self, files: FileSystem, directory: str, directory_id: UUID) -> None:
        """Call `read` instead."""
        self.entries: dict[TopicPartition, LogEntry] = {}
        """The entries by partition; until `begin`, those that the previous process left, if the inventory counts."""
        self._broker_epoch = UNKNOWN_EPOCH
        self._files = files
        self._path = join(directory, INVENTORY_NAME)
        self._directory_id = directory_id
        self._byte_count = 0
        self._whole_bytes = 0
        self._file: File | None = None

    @classmethod
    def read(cls, files: FileSystem, directory: str, directory_id: UUID) -> Inventory:
        """Read the inventory, which is empty if the file is missing or does not count. Changes nothing.

        Raises StorageError, also if the file is another directory's.
        """
        inventory = cls(files, directory, directory_id)
        notes = DirectoryNotes.read(files, directory)
        inventory._broker_epoch = notes.broker_epoch
        if not files.exists(inventory._path):
            return inventory
        try:
            content = decode_inventory(read_whole(files, inventory._path), inventory._path)
            inventory._check_counts(content, notes)
        except MalformedBytes as error:
            logger.warning("an inventory is rebuilt from the logs and the checkpoints", reason=str(error))
            return inventory
        inventory.entries, inventory._byte_count = content.entries, content.byte_count
        inventory._broker_epoch = content.broker_epoch
        return inventory

    def start(self) -> bool:
        """Record that the directory is in use; return False if there is no room for that. Raises StorageError."""
        if self._byte_count:
            try:
                self._append(encode_start())
            except OutOfSpace as error:
                logger.warning("no room to continue an inventory", reason=str(error))
                return False
        else:
            self.remove()  # the file does not count now, and must not count later
        return True

    def _check_counts(self, content: InventoryContent, notes: DirectoryNotes) -> None:
        """Raise MalformedBytes if the inventory does not count, and StorageError if it is another directory's.

        Consider one changed bit in the directory id of `meta.properties`: with that id the controller would conclude
        that every replica here has lost its records.
        """
        reason = why_it_does_not_count(content, content.directory_id, notes)
        if reason:
            raise MalformedBytes(self._path, reason)
        if content.directory_id != self._directory_id:
            right = uuid_to_text(content.directory_id)
            raise StorageError(
                f"meta.properties has directory.id={uuid_to_text(self._directory_id)}, and {self._path} is of the log"
                f" directory {right}. Restore directory.id={right}; if the inventory is another directory's, remove it"
            )

    def begin(self, entries: Mapping[TopicPartition, LogEntry]) -> None:
        """Rewrite the file, durably. Raises StorageError."""
        data = encode_whole(self._directory_id, entries, self._broker_epoch)
        self._close()
        write_new_file(self._files, self._path, data)
        self.entries = dict(entries)
        self._byte_count = self._whole_bytes = len(data)
        with contextlib.suppress(OutOfSpace):
            self._opened().reserve(len(data) + APPENDED_BYTES_MAX)

    def register(self, broker_epoch: int) -> None:
        """Record a registration, before it is recorded in `broker-epoch`. Raises StorageError, FlushFailed."""
        self._broker_epoch = broker_epoch
        if self._byte_count:
            self._append(encode_registration(broker_epoch))

    def save(self, changes: Mapping[TopicPartition, LogEntry | None], *, is_synced: bool = True) -> None:
        """Make changes durable, all of them or none; None removes an entry. Raises StorageError, FlushFailed.

        Without `is_synced` they are durable after `sync`, or after a later call with `is_synced`.
        """
        lines = b"".join(
            encode_change(partition, self.entries.get(partition), entry) for partition, entry in changes.items()
        )
        if not lines:
            return
        appended_bytes = self._byte_count - self._whole_bytes + len(lines)
        if not self._byte_count or appended_bytes > max(APPENDED_BYTES_MAX, self._whole_bytes):
            after = {**self.entries, **changes}
            try:
                self.begin({partition: entry for partition, entry in after.items() if entry is not None})
            except OutOfSpace:
                if not self._byte_count:
                    raise
            else:
                return
        self._append(lines, is_synced=is_synced)
        for partition, entry in changes.items():
            if entry is None:
                self.entries.pop(partition, None)
            else:
                self.entries[partition] = entry

    def sync(self) -> None:
        """Make saved changes durable; callable from any thread. Raises StorageError, FlushFailed.

        The sync uses its own descriptor, since the file may be removed or durably rewritten at the same time.
        """
        if self._files.exists(self._path):
            file = self._files.open(self._path)
            try:
                file.fdatasync()
            finally:
                file.close()

    def remove(self) -> None:
        """Remove the file, durably, and all entries. Raises StorageError, FlushFailed."""
        self._close()
        self.entries, self._byte_count = {}, 0
        if self._files.exists(self._path):
            self._files.remove(self._path)
            self._files.fsync_directory(parent_directory(self._path))

    def end(self, broker_epoch: int) -> None:
        """Record a clean shutdown, between the write and the rename of `.kafka_cleanshutdown`.

        Raises StorageError, FlushFailed.
        """
        if not self._byte_count:
            self.begin(self.entries)
        self._append(encode_shutdown(broker_epoch))
        self._close()

    def _append(self, lines: bytes, *, is_synced: bool = True) -> None:
        file = self._opened()
        try:
            file.write_at(self._byte_count, lines)
        except StorageError:
            # A partial line with sound lines after it would be taken for damage.
            with contextlib.suppress(StorageError):
                file.truncate(self._byte_count)
            raise
        if is_synced:
            file.fdatasync()
        self._byte_count += len(lines)

    def _opened(self) -> File:
        if self._file is None:
            self._file = self._files.open(self._path)
        return self._file

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def release(self) -> None:
        """Close the file."""
        self._close()


class DirectoryNotes(NamedTuple):
    """The traces in other files of a log directory of the last broker that used it."""

    clean: bytes | None
    """The content of `.kafka_cleanshutdown`; None if there is none."""
    unfinished: bytes | None
    """The content of the same file under its temporary name; None if there is none."""
    broker_epoch: int
    """The epoch in `broker-epoch`; UNKNOWN_EPOCH if that file is missing or damaged."""

    @classmethod
    def read(cls, files: FileSystem, directory: str) -> DirectoryNotes:
        """Read the files of a log directory. Raises StorageError."""
        path = join(directory, CLEAN_SHUTDOWN_NAME)
        clean, unfinished = (
            read_whole(files, name) if files.exists(name) else None for name in (path, path + TEMPORARY_SUFFIX)
        )
        return cls(clean, unfinished, registered_epoch(files, directory))


def why_it_does_not_count(content: InventoryContent, directory_id: UUID, notes: DirectoryNotes) -> str:
    """Return why an inventory does not count; empty if it counts."""
    if content.directory_id != directory_id:
        return f"it is of the log directory {uuid_to_text(content.directory_id)}"
    epoch = content.shutdown_epoch
    ours = None if epoch is None else encode_clean_shutdown(epoch)
    if notes.clean is not None:
        counts = notes.clean == ours
    else:
        counts = content.is_running or (ours is not None and notes.unfinished == ours)
    if counts and content.broker_epoch < notes.broker_epoch:
        return f"its broker epoch is {content.broker_epoch}, and the log directory's is {notes.broker_epoch}"
    return "" if counts else "another program has used the log directory since it was written"


def decode_clean_shutdown(data: bytes) -> int | None:
    """Return the broker epoch in a `.kafka_cleanshutdown`; None if it has no valid one."""
    try:
        epoch = json.loads(data)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return None
    return epoch if isinstance(epoch, int) and epoch >= 0 else None


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """Return the content of `.kafka_cleanshutdown`; Kafka writes the same without spaces."""
    return json.dumps({"version": _CLEAN_SHUTDOWN_VERSION, "brokerEpoch": broker_epoch}).encode("ascii")
