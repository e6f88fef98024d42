"""The names of files and directories in a log directory (FM-01)."""

from __future__ import annotations

import re
from typing import Final
from uuid import UUID

from kraftbase.partition import TopicPartition

LOG_SUFFIX: Final = ".log"
OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
PRODUCER_SNAPSHOT_SUFFIX: Final = ".snapshot"
SEGMENT_SUFFIXES: Final = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, LOG_SUFFIX)
"""The suffixes of one segment's files; `.log`, without which the segment does not exist, is last."""

DELETED_SUFFIX: Final = ".deleted"
"""Ends the name of a file that Kafka is about to delete."""

CLEANED_SUFFIX: Final = ".cleaned"
"""Ends the name of a file of an unfinished segment that will replace others."""

SWAP_SUFFIX: Final = ".swap"
"""Ends the name of a file of a complete segment that is about to replace others."""

DAMAGED_SUFFIX: Final = ".damaged"
"""Our own: ends the name of a damaged segment's log that was set aside."""

LOST_SUFFIX: Final = ".lost"
"""Our own: ends the name of a damaged segment's log after its loss was accepted; a new log has its valid batches."""

LEADER_EPOCHS_NAME: Final = "leader-epoch-checkpoint"
PARTITION_METADATA_NAME: Final = "partition.metadata"
RECOVERY_POINTS_NAME: Final = "recovery-point-offset-checkpoint"
LOG_STARTS_NAME: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS_NAME: Final = "replication-offset-checkpoint"
META_NAME: Final = "meta.properties"
CLEAN_SHUTDOWN_NAME: Final = ".kafka_cleanshutdown"
INVENTORY_NAME: Final = "kraftlog-inventory"
"""Our own: the file with which a startup compares a log directory's files."""

LOCK_NAME: Final = ".lock"

_OFFSET_DIGITS: Final = 20
_NAME_BYTES_MAX: Final = 255
_DELETED_DIRECTORY: Final = re.compile(r".+-\d+\.[0-9a-f]{32}-delete\Z")

_STRAY_DIRECTORY: Final = re.compile(r".+-\d+\.[0-9a-f]{32}-stray\Z")


def file_name(offset: int, suffix: str) -> str:
    """Return the name of a file of the segment with the base offset `offset`."""
    return f"{offset:0{_OFFSET_DIGITS}d}{suffix}"


def offset_in_name(name: str, suffix: str) -> int | None:
    """Return the offset in the name of a file with this suffix; None for any other name."""
    digits = name.removesuffix(suffix)
    if digits + suffix != name or len(digits) != _OFFSET_DIGITS or not digits.isascii() or not digits.isdigit():
        return None
    return int(digits)


def offset_of_segment_file(name: str, suffix: str = "") -> int | None:
    """Return the offset in the name of any file of a segment, with or without `suffix` at its end; else None."""
    name = name if not suffix or not name.endswith(suffix) else name.removesuffix(suffix)
    return next((at for kind in SEGMENT_SUFFIXES if (at := offset_in_name(name, kind)) is not None), None)


def directory_name(partition: TopicPartition) -> str:
    """Return the name of a partition's directory."""
    return f"{partition.topic}-{partition.partition_id}"


def partition_in_name(name: str) -> TopicPartition | None:
    """Return the partition whose directory has that name; None for any other name."""
    topic, dash, digits = name.rpartition("-")
    if not topic or not dash or not digits.isascii() or not digits.isdigit() or str(int(digits)) != digits:
        return None
    return TopicPartition(topic, int(digits))


def deleted_directory_name(partition: TopicPartition, unique: UUID) -> str:
    """Return the name of a partition's directory during its deletion: Kafka's form, which no partition has."""
    suffix = f"-{partition.partition_id}.{unique.hex}-delete"
    return partition.topic[: _NAME_BYTES_MAX - len(suffix)] + suffix


def stray_directory_name(partition: TopicPartition, unique: UUID) -> str:
    """Return the name of the directory of a stray log: Kafka's form, which no partition has."""
    suffix = f"-{partition.partition_id}.{unique.hex}-stray"
    return partition.topic[: _NAME_BYTES_MAX - len(suffix)] + suffix


def is_stray_directory(name: str, partition: TopicPartition) -> bool:
    """Whether `name` is that of the directory of a stray log of a partition."""
    shortest = stray_directory_name(partition, UUID(int=0))
    at = len(shortest) - len("-stray")
    return name[: at - 32] + name[at:] == shortest[: at - 32] + shortest[at:]


def is_any_stray_directory(name: str) -> bool:
    """Whether `name` is that of the directory of a stray log."""
    return _STRAY_DIRECTORY.match(name) is not None


def is_deleted_directory(name: str) -> bool:
    """Whether `name` is that of the directory of a deleted log, whose files are still to be removed."""
    return _DELETED_DIRECTORY.match(name) is not None
