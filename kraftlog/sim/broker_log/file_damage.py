"""Damage to the files of a log while its broker is down. Later an operator puts the files back.

Only logs in the inventory are damaged, and only files that it describes: no record shows that an unflushed segment is
missing. Everything in the log is made durable first, because loss of power is another fault.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final
from uuid import UUID

from kraftbase.files.files import join, read_whole
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.partition import TopicPartition
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.sim.broker_log.checkers.batches import Batch
from kraftlog.sim.broker_log.checkers.log_files import read_log, read_segments
from kraftlog.sim.broker_log.checkers.rules import AS_IT_WAS
from kraftlog.sim.engine.violation import Violation
from kraftlog.storage.formats.checkpoints import decode_offsets, decode_partition_metadata, encode_partition_metadata
from kraftlog.storage.formats.inventory import LogEntry, decode_inventory
from kraftlog.storage.formats.names import (
    CLEAN_SHUTDOWN_NAME,
    INVENTORY_NAME,
    LOG_STARTS_NAME,
    LOG_SUFFIX,
    PARTITION_METADATA_NAME,
    RECOVERY_POINTS_NAME,
    SWAP_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    directory_name,
    file_name,
    offset_in_name,
    partition_in_name,
)
from kraftlog.storage.inventory import decode_clean_shutdown
from kraftlog.storage.partition_log import PartitionLog

LOG_DELETED: Final = "files: a log's directory is deleted"
SEGMENT_DELETED: Final = "files: a segment is deleted"
SEGMENT_SHORTER: Final = "files: a closed segment is shorter"
LOG_START_CHANGED: Final = "files: a log start offset changes"
RECOVERY_POINT_CHANGED: Final = "files: a recovery point changes"
TOPIC_ID_CHANGED: Final = "files: a topic id changes"
TOPIC_ID_DELETED: Final = "files: a topic id is deleted"
CHECKPOINT_OLDER: Final = "files: a checkpoint is an older one"
ABORTED_INDEX_CHANGED: Final = "files: an index of aborted transactions changes"

LOSSES: Final = (LOG_DELETED, SEGMENT_DELETED, SEGMENT_SHORTER)
"""Records are missing: the log is offline until an operator puts the files back or the log is copied from its leader.
"""
DAMAGES: Final = (
    *LOSSES, LOG_START_CHANGED, RECOVERY_POINT_CHANGED, TOPIC_ID_CHANGED, TOPIC_ID_DELETED, CHECKPOINT_OLDER,
    ABORTED_INDEX_CHANGED,
)  # fmt: skip
"""Kinds that are drawn by themselves, after all other draws, so that these did not change."""

_CHECKPOINT_NAMES: Final = (LOG_STARTS_NAME, RECOVERY_POINTS_NAME)
_COPIES_MAX: Final = 8


@dataclass(slots=True)
class FileDamage:
    """The damage to a log, and the files before it."""

    kind: str
    directory: str
    """The log directory."""
    partition: TopicPartition
    topic_id: UUID
    log_start_offset: int
    batches: list[Batch]
    """The flushed batches."""
    before: dict[str, bytes]
    """By path: the former content of the damaged files."""
    latest_start: int
    """The offset at which the rest of the log begins if its loss is accepted.

    It is the first remaining segment's, but not below the log's start. Without segments it is the flushed end.
    """
    corrupt_indexes: Collection[str] = ()

    @property
    def path(self) -> str:
        """The directory of the log."""
        return join(self.directory, directory_name(self.partition))

    @property
    def is_loss(self) -> bool:
        """Whether records are missing."""
        return self.kind in LOSSES

    def put_back(self, files: MemoryFileSystem) -> None:
        """Restore the files, while the broker is down."""
        files.make_directories(self.path)
        for path, data in self.before.items():
            _write(files, path, data)
        files.fsync_directory(self.path)

    def has_its_topic_id(self, files: MemoryFileSystem) -> bool:
        """Whether the log's file has the right topic id."""
        path = join(self.path, PARTITION_METADATA_NAME)
        try:
            return files.exists(path) and decode_partition_metadata(read_whole(files, path), path) == self.topic_id
        except MalformedBytes:
            return False

    def check(self, files: MemoryFileSystem, log: PartitionLog) -> None:
        """Check that a log which was just opened has its start and its batches unchanged. Raises Violation."""
        if log.log_start_offset != self.log_start_offset:
            self._violated(f"it begins at {log.log_start_offset}, but began at {self.log_start_offset}")
        found = {batch.base_offset: batch.data for batch in read_log(files, self.path, self.corrupt_indexes)}
        for batch in self.batches:
            if batch.last_offset >= self.log_start_offset and found.get(batch.base_offset) != batch.data:
                self._violated(f"it lacks the batch at {batch.base_offset}")

    def _violated(self, what: str) -> None:
        raise Violation(f"{AS_IT_WAS}: {self.path}, after '{self.kind}': {what}")


@dataclass(slots=True)
class FilesToDamage:
    """The files of one disk."""

    files: MemoryFileSystem
    directories: Sequence[str]
    corrupt_indexes: Collection[str] = ()
    """Paths of indexes that a fault has changed. Their content is not checked."""
    _copies: dict[str, list[bytes]] = field(default_factory=dict)

    def copy_checkpoints(self) -> None:
        """Keep a copy of each checkpoint, which may replace it later."""
        for path in [join(directory, name) for directory in self.directories for name in _CHECKPOINT_NAMES]:
            if self.files.exists(path):
                copies = self._copies.setdefault(path, [])
                copies.append(read_whole(self.files, path))
                del copies[:-_COPIES_MAX]

    def logs(self) -> list[tuple[str, TopicPartition, LogEntry]]:
        """Return the logs that can be damaged, each with its log directory and its entry in the inventory."""
        found = []
        for directory in self.directories:
            entries = _entries(self.files, directory)
            for partition, entry in entries.items():
                places = [other for other in self.directories if self._has(other, partition)]
                if places == [directory] and entry.last_base_offset is not None:
                    found.append((directory, partition, entry))
        return found

    def _has(self, directory: str, partition: TopicPartition) -> bool:
        return self.files.exists(join(directory, directory_name(partition)))

    def damage(
        self, kind: str, directory: str, partition: TopicPartition, entry: LogEntry, random: Random
    ) -> FileDamage | None:
        """Damage a log; return None if it is not suitable."""
        path = join(directory, directory_name(partition))
        names = self.files.list_directory(path)
        bases = [base for name in names if (base := offset_in_name(name, LOG_SUFFIX)) is not None]
        changes = self._changes(kind, directory, partition, entry, random)
        if not changes or not bases or any(name.endswith(SWAP_SUFFIX) for name in names):
            return None  # during a replacement of segments, the log's batches are in files with two kinds of names
        for name in names:
            self.files.open_to_read(join(path, name)).fsync()
        self.files.fsync_directory(path)
        flushed = [
            batch for _, batches in read_segments(self.files, path) for batch in batches
            if batch.last_offset < entry.recovery_point
        ]  # fmt: skip
        left = [base for base in bases if changes.get(join(path, file_name(base, LOG_SUFFIX)), b"") is not None]
        end = flushed[-1].last_offset + 1 if flushed else 0
        damage = FileDamage(
            kind, directory, partition, entry.topic_id, max(entry.log_start_offset, min(bases)), flushed,
            {changed: read_whole(self.files, changed) for changed in changes},
            max(entry.log_start_offset, min(left, default=end)), self.corrupt_indexes,
        )  # fmt: skip
        for changed, data in changes.items():
            if data is None:
                self.files.remove(changed)
            else:
                _write(self.files, changed, data)
        self.files.fsync_directory(path)
        if kind == LOG_DELETED:
            self.files.remove_directory(path)
            self.files.fsync_directory(directory)
        return damage

    def _changes(
        self, kind: str, directory: str, partition: TopicPartition, entry: LogEntry, random: Random
    ) -> dict[str, bytes | None]:
        """Return the new content of files, by path; None: the file is deleted."""
        path = join(directory, directory_name(partition))
        metadata_path = join(path, PARTITION_METADATA_NAME)
        match kind:
            case "files: a log's directory is deleted":
                return {join(path, name): None for name in self.files.list_directory(path)}
            case "files: a segment is deleted":
                bases = [closed.base_offset for closed in entry.closed]
                last = entry.last_base_offset
                if last is not None and entry.recovery_point > max(last, entry.log_start_offset):
                    bases.append(last)
                return {join(path, file_name(random.choice(bases), LOG_SUFFIX)): None} if bases else {}
            case "files: a closed segment is shorter":
                if not entry.closed:
                    return {}
                closed = random.choice(entry.closed)
                segment_path = join(path, file_name(closed.base_offset, LOG_SUFFIX))
                return {segment_path: read_whole(self.files, segment_path)[: random.randrange(closed.byte_count)]}
            case "files: a topic id changes":
                return {metadata_path: encode_partition_metadata(UUID(int=random.getrandbits(120)))}
            case "files: a topic id is deleted":
                return {metadata_path: None} if self.files.exists(metadata_path) else {}
            case "files: a checkpoint is an older one":
                return self._older(directory, random)
            case "files: an index of aborted transactions changes":
                return self._with_another_bit(_aborted_indexes(self.files, directory, path, entry), random)
        name = LOG_STARTS_NAME if kind == LOG_START_CHANGED else RECOVERY_POINTS_NAME
        return self._with_another_number(join(directory, name), partition, random)

    def _older(self, directory: str, random: Random) -> dict[str, bytes | None]:
        known = _entries(self.files, directory)
        logs = [partition_in_name(name) for name in self.files.list_directory(directory)]
        if any(partition is not None and partition not in known for partition in logs):
            return {}
        path = join(directory, random.choice(_CHECKPOINT_NAMES))
        if not self.files.exists(path):
            return {}
        present = read_whole(self.files, path)
        older = [copy for copy in self._copies.get(path, []) if copy != present]
        return {path: random.choice(older)} if older else {}

    def _with_another_bit(self, paths: Sequence[str], random: Random) -> dict[str, bytes | None]:
        if not paths:
            return {}
        path = random.choice(paths)
        data = bytearray(read_whole(self.files, path))
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        return {path: bytes(data)}

    def _with_another_number(self, path: str, partition: TopicPartition, random: Random) -> dict[str, bytes | None]:
        """Return a checkpoint with one bit changed, so that one digit of the partition's offset differs."""
        if not self.files.exists(path):
            return {}
        data = read_whole(self.files, path)
        offset = decode_offsets(data, path).get(partition)
        if offset is None:
            return {}
        line = f"\n{partition.topic} {partition.partition_id} {offset}\n".encode("ascii")
        end = data.index(line) + len(line) - 1
        position = random.randrange(end - len(str(offset)), end)
        digits = [digit for bit in range(4) if chr(digit := data[position] ^ 1 << bit).isdigit()]
        return {path: data[:position] + bytes([random.choice(digits)]) + data[position + 1 :]}


def _entries(files: MemoryFileSystem, directory: str) -> dict[TopicPartition, LogEntry]:
    """Return the entries of a log directory's inventory, if the next start will use it."""
    path, clean_path = join(directory, INVENTORY_NAME), join(directory, CLEAN_SHUTDOWN_NAME)
    if not files.exists(path):
        return {}
    content = decode_inventory(read_whole(files, path), path)
    if files.exists(clean_path):
        clean_epoch = decode_clean_shutdown(read_whole(files, clean_path))
        return content.entries if clean_epoch == content.shutdown_epoch else {}
    return content.entries if content.is_running else {}


def _aborted_indexes(files: MemoryFileSystem, directory: str, path: str, entry: LogEntry) -> list[str]:
    """Return the indexes of aborted transactions in the log at `path` whose checksums the inventory has."""
    bases = [closed.base_offset for closed in entry.closed if closed.aborted_checksum]
    was_shut_down = files.exists(join(directory, CLEAN_SHUTDOWN_NAME))
    if was_shut_down and entry.last_base_offset is not None and entry.last_aborted_checksum:
        bases.append(entry.last_base_offset)
    paths = [join(path, file_name(base, TRANSACTION_INDEX_SUFFIX)) for base in bases]
    return [path for path in paths if files.exists(path)]


def _write(files: MemoryFileSystem, path: str, data: bytes) -> None:
    """Write a file durably, even on a full disk."""
    space_limit, files.space_limit = files.space_limit, None
    file = files.open(path, create=not files.exists(path))
    file.truncate(0)
    file.write_at(0, data)
    file.fsync()
    file.close()
    files.space_limit = space_limit
