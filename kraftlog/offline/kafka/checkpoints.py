"""A Kafka snapshot: `.checkpoint`.

The first batch has control records: a header, and with a dynamic quorum the version of KRaft and the voters. Then come
batches of metadata records, and a last one with a footer. Offsets in it count from 0 and are not offsets of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kraftbase.errors import CorruptSnapshot
from kraftlog.kafka.control_records import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    VotersVoter,
)
from kraftlog.kafka.notation import Message
from kraftlog.kafka.record_batch import RecordBatch
from kraftlog.offline.kafka.batch_files import control_of, metadata_of, records_of
from kraftlog.offline.kafka.directory import Progress, found_batches


class CheckpointHeader(NamedTuple):
    """The content of the first batch."""

    last_contained_log_timestamp_ms: int
    kraft_version: int
    """0: the voters are in each node's configuration."""
    voters: tuple[VotersVoter, ...]


def read_header(path: Path) -> CheckpointHeader:
    """The description of a checkpoint in its first batch. Raises CorruptSnapshot, and StorageError."""
    for found in found_batches(path):
        return _header(path, found.batch)
    raise CorruptSnapshot(f"{path} is empty; copy it again, or read from another controller")


def checkpoint_records(path: Path, progress: Progress | None = None) -> Iterator[tuple[Message, int]]:
    """The metadata records with their versions.

    Raises CorruptSnapshot if the checkpoint is not whole, which is known only after the last record, and StorageError.
    """
    is_begun = is_whole = False
    for found in found_batches(path, progress):
        if is_whole:
            raise CorruptSnapshot(
                f"{path} has a batch after its footer; copy it again, or read from another controller"
            )
        batch = found.batch
        if not is_begun:
            _header(path, batch)
            is_begun = True
        elif batch.is_control:
            controls = [control_of(path, record) for record in records_of(path, batch)]
            is_whole = any(isinstance(control, SnapshotFooterRecord) for control in controls)
        else:
            yield from (metadata_of(path, record) for record in records_of(path, batch))
    if not is_whole:
        raise CorruptSnapshot(f"{path} has no footer: it is not whole; copy it again, or read from another controller")


def _header(path: Path, batch: RecordBatch) -> CheckpointHeader:
    controls = [control_of(path, record) for record in records_of(path, batch)] if batch.is_control else []
    if not controls or not isinstance(controls[0], SnapshotHeaderRecord):
        raise CorruptSnapshot(f"{path} does not begin with a snapshot's header; name a checkpoint of Kafka's metadata")
    kraft_version, voters = 0, tuple[VotersVoter, ...]()
    for control in controls:
        match control:
            case KRaftVersionRecord():
                kraft_version = control.kraft_version
            case VotersRecord():
                voters = control.voters
    return CheckpointHeader(controls[0].last_contained_log_timestamp, kraft_version, voters)
