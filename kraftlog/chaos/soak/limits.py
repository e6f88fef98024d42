"""All bounds of a soak, and the figures that are checked against them. docs/chaos.md describes them.

Bounds of files follow docs/formats/directory.md; the others are twice the values measured on a node with this much
metadata.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kraftlog.chaos.arena import Reading, Start
from kraftlog.chaos.soak.samples import FileKind, Sample, Written
from snapshot.log_start_policy import SNAPSHOTS_KEPT_MAX

MEBIBYTE: Final = 1024 * 1024

RETENTION_BYTES: Final = MEBIBYTE
SEGMENT_BYTES: Final = 128 * 1024
BYTES_BETWEEN_SNAPSHOTS: Final = 256 * 1024
LAG_TIME_MAX_SECONDS: Final = 10
SETTINGS: Final = {
    "metadata.log.segment.bytes": SEGMENT_BYTES,
    "metadata.log.preallocate.bytes": 64 * 1024,
    "metadata.log.max.record.bytes.between.snapshots": BYTES_BETWEEN_SNAPSHOTS,
    "metadata.max.retention.bytes": RETENTION_BYTES,
    "metadata.start.offset.lag.time.max.ms": LAG_TIME_MAX_SECONDS * 1000,
    "metadata.start.offset.replica.restart.grace.ms": LAG_TIME_MAX_SECONDS * 1000,
}
"""The settings of the nodes: the log start moves several times a minute, and a snapshot is taken every few seconds."""

WAL_BYTES_MAX: Final = 64 * MEBIBYTE
"""The bound while no read transaction is older than `OLD_READER_SECONDS`."""
OLD_READER_SECONDS: Final = 1.0
READER_GRACE_SECONDS: Final = 10.0
"""How long a reader counts after its end: copying the write-ahead log that it held takes that long."""
WAL_STOP_BYTES: Final = 512 * MEBIBYTE
"""The bound with any reader: a node stops applying at this size."""
WAL_STOP_SLACK_BYTES: Final = 16 * MEBIBYTE
"""The size of the transaction that exceeds the bound, which is still completed."""

DATABASE_BYTES_MAX: Final = 8 * MEBIBYTE
UNFINISHED_BYTES_MAX: Final = 16 * MEBIBYTE
"""Mostly deleted snapshots, whose bytes stay for a minute: about ten of 600 KB at 600 operations per second."""
DAMAGED_BYTES_MAX: Final = 0
"""No fault of a soak damages a file."""
SMALL_BYTES_MAX: Final = 8 * MEBIBYTE
"""SQLite's shared memory takes a hundredth of the largest size of the write-ahead log: at most 5 MiB."""
SNAPSHOTS_MAX: Final = SNAPSHOTS_KEPT_MAX + 3
"""A new snapshot exists for about a second before the oldest one is deleted. And consider a node that is killed while
it takes a snapshot: the process that writes it completes it after the restarted node has listed its snapshots, so the
node learns of it only when it takes one itself. Two such snapshots may exist at a time."""
RUNAWAY_BYTES: Final = 1024 * MEBIBYTE
"""A soak ends when a node's files take this much: without bounds it would fill the whole disk of the machine."""

RESIDENT_BYTES_MAX: Final = 192 * MEBIBYTE
DESCRIPTORS_MAX: Final = 128
THREADS_MAX: Final = 32
START_SECONDS_MAX: Final = 3.0
STARTS_OF_AN_EMPTY_NODE: Final = 2
"""On a slow machine a start may take this many times the slowest start of an empty node."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure and its bound."""

    name: str
    value: float
    limit: float

    @property
    def holds(self) -> bool:
        """Whether the figure is within its bound."""
        return self.value <= self.limit


def log_bytes_max(operations_per_second: float) -> int:
    """Return the bound of all segments of a node, at this rate of operations.

    It is the sum of what retention leaves; the segment of the log start, and the active one; the records between two
    snapshots, twice, since the log start moves from snapshot to snapshot; and the records that are appended while the
    log start waits.
    """
    waiting = round(operations_per_second * LOG_BYTES_PER_OPERATION * LOG_START_WAITS_SECONDS)
    return RETENTION_BYTES + 2 * SEGMENT_BYTES + 2 * BYTES_BETWEEN_SNAPSHOTS + waiting


LOG_BYTES_PER_OPERATION: Final = 128
"""About 75 were measured; a single operation has its own frame and batch."""
LOG_START_WAITS_SECONDS: Final = 100
"""A new leader waits 9 s for replicas that have not fetched yet, then LAG_TIME_MAX_SECONDS for replicas that are
behind. The run kills leaders every 10 to 20 s, so several leaders in a row may not advance the log start."""


def wal_bytes_max(at_seconds: float, readings: Sequence[Reading], written: Written) -> int:
    """Return the bound of a node's write-ahead log: 64 MiB, plus the bytes written since an old reader began."""
    open_readings = [
        reading for reading in readings if reading.began <= at_seconds < reading.ended + READER_GRACE_SECONDS
    ]
    began = min((reading.began for reading in open_readings), default=at_seconds)
    if at_seconds - began <= OLD_READER_SECONDS:
        return WAL_BYTES_MAX
    return min(WAL_BYTES_MAX + written.since(began), WAL_STOP_BYTES + WAL_STOP_SLACK_BYTES)


def measures(
    sample: Sample, readings: Sequence[Reading], written: Written, operations_per_second: float
) -> Iterator[Measure]:
    """Yield all figures of a sample that have a bound. `readings` and `written` belong to its node."""
    found = sample.file_bytes
    wal_limit = wal_bytes_max(sample.at_seconds, readings, written)
    held = "" if wal_limit == WAL_BYTES_MAX else ", behind a slow reader"
    yield Measure(f"{FileKind.WAL} bytes{held}", found[FileKind.WAL], wal_limit)
    yield Measure("log bytes", found[FileKind.LOG], log_bytes_max(operations_per_second))
    for kind, limit in (
        (FileKind.DATABASE, DATABASE_BYTES_MAX),
        (FileKind.UNFINISHED, UNFINISHED_BYTES_MAX),
        (FileKind.DAMAGED, DAMAGED_BYTES_MAX),
        (FileKind.SMALL, SMALL_BYTES_MAX),
    ):
        yield Measure(f"{kind} bytes", found[kind], limit)
    yield Measure("snapshots", sample.snapshots, SNAPSHOTS_MAX)
    if sample.process is not None:
        yield Measure("resident bytes", sample.process.resident_bytes, RESIDENT_BYTES_MAX)
        yield Measure("descriptors", sample.process.descriptors, DESCRIPTORS_MAX)
        yield Measure("threads", sample.process.threads, THREADS_MAX)


def own_seconds(start: Start) -> float:
    """Return the time of a start without the time that the process waited for a processor."""
    return start.seconds - start.waited_seconds


def start_measure(start: Start, first_start_seconds: float) -> Measure:
    """Return how long a node took to start, without the time that it waited for a processor.

    The bound is 3 s, or, on a slow machine, twice the time of the slowest empty node at the beginning of the run.
    """
    limit = max(START_SECONDS_MAX, STARTS_OF_AN_EMPTY_NODE * first_start_seconds)
    return Measure("seconds to start", own_seconds(start), limit)
