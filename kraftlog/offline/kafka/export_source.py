"""A Kafka's directory as a log to export, with the same rows as from kraftlog's own log. Exported rows are never
removed, so an export ends where the newest snapshot does: later records may be uncommitted. They are exported only on
request; a later export into the same directory then checks that they were committed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import NamedTuple

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Offset
from kraftlog.analytics.manifest import latest_manifest
from kraftlog.analytics.source import LogDescription
from kraftlog.kafka.notation import Message
from kraftlog.offline.kafka.batch_files import BrokenEnd
from kraftlog.offline.kafka.directory import KafkaDirectory, Progress, log_batches
from kraftlog.offline.kafka.log_conversion import batch_of_ours, converted
from kraftlog.offline.kafka.secrets import without_password
from kraftpb.v1.metadata_pb2 import MetadataRecord
from raft.core.types import Batch


class LogEnds(NamedTuple):
    """Where a log ends."""

    certain_offset: int
    """The end of the newest snapshot: everything below is committed."""
    end_offset: int
    """The log end offset; records from `certain_offset` on may be uncommitted."""


def log_ends(directory: KafkaDirectory, progress: Progress | None = None) -> LogEnds:
    """Read the records after the newest snapshot. Raises StorageError."""
    newest = directory.newest_checkpoint
    certain = end = 0 if newest is None else newest.snapshot_id.offset
    for found in log_batches(directory, certain, progress):
        if isinstance(found, BrokenEnd):
            break
        end = found.batch.end_offset
    return LogEnds(certain, end)


class KafkaSource:
    """The log in a directory, up to `end_offset`."""

    def __init__(self, directory: KafkaDirectory, end_offset: int, progress: Progress | None = None) -> None:
        self._directory = directory
        self._end_offset = end_offset
        self._progress = progress

    async def describe(self) -> LogDescription:
        """What there is to export."""
        segments = self._directory.segments
        start_offset = segments[0].base_offset if segments else self._end_offset
        end_offset = max(start_offset, self._end_offset)
        return LogDescription(self._directory.identity.cluster_id, Offset(start_offset), Offset(end_offset))

    async def batches(self, start_offset: Offset, end_offset: Offset) -> AsyncGenerator[Batch]:
        """The batches of the range, in order, passwords hidden. Raises StorageError."""
        for found in log_batches(self._directory, start_offset, self._progress):
            if isinstance(found, BrokenEnd) or found.batch.base_offset >= end_offset:
                return
            yield batch_of_ours(found, _shown)


def _shown(record: Message, version: int) -> MetadataRecord:
    return converted(without_password(record), version)


def check_continues(directory: KafkaDirectory, export: Path, progress: Progress | None = None) -> None:
    """Raise ApiError(CORRUPT_MESSAGE) if the last offset of an export has another epoch in this log.

    With the same epoch all earlier records are the same, too: a leader writes each offset of its epoch once.
    """
    manifest = latest_manifest(export) if export.is_dir() else None
    if manifest is None or not manifest.files:
        return
    last_offset, epoch = manifest.end_offset - 1, manifest.files[-1].epoch
    found = _epoch_of(directory, last_offset, progress)
    if found is not None and found != epoch:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the export in {export} ends with offset {last_offset} of epoch {epoch}, and {directory.path} has that"
            f" offset of epoch {found}: the exported records were never committed; export to an empty directory",
        )


def _epoch_of(directory: KafkaDirectory, offset: int, progress: Progress | None) -> int | None:
    for checkpoint in directory.checkpoints:
        if checkpoint.snapshot_id.offset == offset + 1:
            return checkpoint.snapshot_id.epoch
    for found in log_batches(directory, offset, progress):
        if isinstance(found, BrokenEnd) or found.batch.base_offset > offset:
            return None
        return found.batch.partition_leader_epoch
    return None
