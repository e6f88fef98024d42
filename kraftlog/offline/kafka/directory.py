"""A directory of Kafka's log.dirs, as far as the cluster's metadata is in it (FM-06, FM-07).

    meta.properties
    bootstrap.checkpoint                                the records that a new cluster begins with
    __cluster_metadata-0/
        00000000000000000000.log                        segments, by the offset of their first record
        00000000000000000163-0000000001.checkpoint      snapshots, by end offset and epoch
        leader-epoch-checkpoint, quorum-state, partition.metadata

Index files are never read: those of a node that runs are ten megabytes of zeros. Nothing is written, locked or created.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from kraftbase.errors import CorruptLog, StorageError
from kraftlog.kafka.record_batch import RecordBatch
from kraftlog.offline.kafka.batch_files import BrokenEnd, FoundBatch, walk_file
from kraftlog.offline.kafka.small_files import (
    COPY_AGAIN,
    KafkaIdentity,
    KafkaQuorumState,
    check_partition_metadata,
    read_identity,
    read_quorum_state,
)
from raft.core.types import OffsetAndEpoch
from snapshot.names import parse_snapshot_name

PARTITION_NAME: Final = "__cluster_metadata-0"
META_NAME: Final = "meta.properties"
BOOTSTRAP_RECORDS_NAME: Final = "bootstrap.checkpoint"
QUORUM_STATE_NAME: Final = "quorum-state"
EPOCHS_NAME: Final = "leader-epoch-checkpoint"
PARTITION_METADATA_NAME: Final = "partition.metadata"

_SEGMENT_NAME: Final = re.compile(r"([0-9]{20})\.log")

Progress = Callable[[int, int], None]
"""Called with the number of bytes read, and the total."""


class Segment(NamedTuple):
    """A file of the log."""

    base_offset: int
    path: Path


class Checkpoint(NamedTuple):
    """A snapshot. Its id is in its name only."""

    snapshot_id: OffsetAndEpoch
    path: Path


class LogBatch(NamedTuple):
    """A batch of the log, and the file that it is in."""

    path: Path
    batch: RecordBatch


@dataclass(frozen=True, slots=True)
class KafkaDirectory:
    """What there is to read."""

    path: Path
    """Of Kafka's log.dirs."""
    identity: KafkaIdentity
    segments: tuple[Segment, ...]
    """The lowest offset first."""
    checkpoints: tuple[Checkpoint, ...]
    """The oldest first; without the checkpoint of formatting, which ends at offset 0."""

    @property
    def partition(self) -> Path:
        """The directory of log and snapshots."""
        return self.path / PARTITION_NAME

    @property
    def newest_checkpoint(self) -> Checkpoint | None:
        """The newest snapshot."""
        return self.checkpoints[-1] if self.checkpoints else None

    @property
    def bootstrap_checkpoint(self) -> Path | None:
        """The records that the cluster began with; None if the file does not exist."""
        path = self.path / BOOTSTRAP_RECORDS_NAME
        return path if path.is_file() else None

    def quorum_state(self) -> KafkaQuorumState | None:
        """The node's quorum state; None if it has none yet. Raises StorageError."""
        path = self.partition / QUORUM_STATE_NAME
        return read_quorum_state(path) if path.exists() else None

    def refuse_inside(self, target: Path) -> None:
        """Raise StorageError if `target` is in this directory, where nothing may be written."""
        if target.resolve().is_relative_to(self.path.resolve()):
            raise StorageError(
                f"{target} is in {self.path}, a Kafka's directory, where nothing is ever written; name another"
            )

    def segments_from(self, offset: int) -> tuple[Segment, ...]:
        """The segments that may have records at `offset` or later."""
        first = sum(segment.base_offset <= offset for segment in self.segments[1:])
        return self.segments[first:]


def open_directory(path: Path) -> KafkaDirectory:
    """The content of one of Kafka's log.dirs, or of its __cluster_metadata-0.

    Raises StorageError if it is not Kafka's, has no metadata, or is of a version that is not known.
    """
    if path.name == PARTITION_NAME or (path.resolve().name == PARTITION_NAME and path.is_dir()):
        path = path.resolve().parent
    partition = path / PARTITION_NAME
    if not path.is_dir():
        raise StorageError(f"directory {path} does not exist; name a Kafka node's metadata.log.dir, or a copy of it")
    if not partition.is_dir():
        raise StorageError(
            f"{path} has no {PARTITION_NAME}: it holds no metadata of a Kafka; name a node's metadata.log.dir, or the"
            " first of its log.dirs, or a copy of it"
        )
    if not (path / META_NAME).is_file():
        raise StorageError(f"{path} has no {META_NAME}, which identifies the node; copy that file, too")
    if (partition / PARTITION_METADATA_NAME).exists():
        check_partition_metadata(partition / PARTITION_METADATA_NAME)
    segments, checkpoints = [], []
    for file in partition.iterdir():
        segment, snapshot_id = _SEGMENT_NAME.fullmatch(file.name), parse_snapshot_name(file.name)
        if segment is not None:
            segments.append(Segment(int(segment[1]), file))
        elif snapshot_id is not None and snapshot_id.offset > 0:
            checkpoints.append(Checkpoint(snapshot_id, file))
    if not segments and not checkpoints:
        raise StorageError(
            f"{partition} has neither segments nor snapshots: the Kafka was formatted and never started, or the copy is"
            f" not whole; start it, or {COPY_AGAIN}"
        )
    return KafkaDirectory(
        path,
        read_identity(path / META_NAME),
        tuple(sorted(segments)),
        tuple(sorted(checkpoints, key=lambda checkpoint: (checkpoint.snapshot_id.offset, checkpoint.snapshot_id))),
    )


def behind_snapshot(certain_offset: int, end_offset: int) -> list[str]:
    """A warning about the offsets between the newest snapshot and the end of the log. None if there are none."""
    if end_offset <= certain_offset:
        return []
    return [
        f"offsets {certain_offset} to {end_offset - 1} are after the newest snapshot and may be uncommitted: the high"
        " watermark is not on disk"
    ]


def log_batches(
    directory: KafkaDirectory, start_offset: int = 0, progress: Progress | None = None
) -> Iterator[LogBatch | BrokenEnd]:
    """The batches of the log from the one with `start_offset` on; at the end maybe a torn batch, at which the log ends.

    Raises CorruptLog if batches are damaged, or do not follow one another, and StorageError as `walk_file`.
    """
    segments = directory.segments_from(start_offset)
    sizes = [segment.path.stat().st_size for segment in segments]
    expected = segments[0].base_offset if segments else 0
    epoch = 0
    for number, segment in enumerate(segments):
        if segment.base_offset != expected:
            raise CorruptLog(
                f"{segment.path} begins at offset {segment.base_offset}, and the segment before it ends at {expected}:"
                f" one is missing or cut short; {COPY_AGAIN}, from a node that is stopped"
            )
        for found in walk_file(segment.path):
            if isinstance(found, BrokenEnd):
                _check_torn(found, is_last=number == len(segments) - 1)
                yield found
                return
            batch = found.batch
            if batch.base_offset != expected or batch.partition_leader_epoch < epoch:
                raise CorruptLog(
                    f"{segment.path}: a batch at offset {batch.base_offset} of epoch {batch.partition_leader_epoch}"
                    f" follows what ends at offset {expected}, epoch {epoch};"
                    f" {COPY_AGAIN}, or read from another controller"
                )
            expected, epoch = batch.end_offset, batch.partition_leader_epoch
            if progress is not None:
                progress(sum(sizes[:number]) + found.end_position, sum(sizes))
            if expected > start_offset:
                yield LogBatch(segment.path, batch)


def _check_torn(end: BrokenEnd, *, is_last: bool) -> None:
    if not is_last:
        raise CorruptLog(
            f"{end}, and the log continues in another segment; {COPY_AGAIN}, or read from another controller"
        )
    if not end.is_torn:
        raise CorruptLog(f"{end}, and others follow; {COPY_AGAIN}, or read from another controller")


def found_batches(path: Path, progress: Progress | None = None) -> Iterator[FoundBatch]:
    """The batches of a file that must be whole, such as a checkpoint. Raises CorruptLog, and StorageError."""
    size = path.stat().st_size
    for found in walk_file(path):
        if isinstance(found, BrokenEnd):
            raise CorruptLog(f"{found}; copy it again, or read from another controller")
        if progress is not None:
            progress(found.end_position, size)
        yield found
