"""All bounds of a soak, and the figures that are checked against them. docs/chaos.md describes them.

Those of files are what docs/formats/directory.md promises; the others are twice what a node with this much metadata was
measured to use.
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
"""Of the nodes: a log that starts over several times a minute, and a snapshot every few seconds."""

WAL_BYTES_MAX: Final = 64 * MEBIBYTE
"""While no read transaction is older than `OLD_READER_SECONDS`."""
OLD_READER_SECONDS: Final = 1.0
READER_GRACE_SECONDS: Final = 10.0
"""How long a reader counts after its end: only then can the log that it held be copied and start over."""
WAL_STOP_BYTES: Final = 512 * MEBIBYTE
"""No reader, however old, may hold more: the node stops applying."""
WAL_STOP_SLACK_BYTES: Final = 16 * MEBIBYTE
"""The transaction that goes past it is finished."""

DATABASE_BYTES_MAX: Final = 8 * MEBIBYTE
UNFINISHED_BYTES_MAX: Final = 16 * MEBIBYTE
"""Most of it is deleted snapshots, whose bytes stay for a minute: some ten of 600 KB, at 600 operations a second."""
DAMAGED_BYTES_MAX: Final = 0
"""No fault of a soak damages a file."""
SMALL_BYTES_MAX: Final = 8 * MEBIBYTE
"""SQLite's shared memory has a hundredth of what the write-ahead log had at its largest: 5 MiB at most."""
SNAPSHOTS_MAX: Final = SNAPSHOTS_KEPT_MAX + 3
"""A new one is there for a second before a surplus one goes. And consider a node that is killed while it takes one: the
process that writes it finishes it, after the next process has looked which there are; that learns of it only when it
takes one itself. Two such may be there at a time."""
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
        """Whether the figure is within it."""
        return self.value <= self.limit


def log_bytes_max(operations_per_second: float) -> int:
    """Of all segments of a node, at this rate of operations.

    What retention leaves; the segment in which the log starts, and the active one; two snapshots' worth of records,
    since the log start moves from snapshot to snapshot; and the records appended while the log start waits.
    """
    waiting = round(operations_per_second * LOG_BYTES_PER_OPERATION * LOG_START_WAITS_SECONDS)
    return RETENTION_BYTES + 2 * SEGMENT_BYTES + 2 * BYTES_BETWEEN_SNAPSHOTS + waiting


LOG_BYTES_PER_OPERATION: Final = 128
"""Some 75 were measured; one that comes alone has a frame and a batch of its own."""
LOG_START_WAITS_SECONDS: Final = 100
"""A new leader waits 9 s for replicas that it has not heard of, then LAG_TIME_MAX_SECONDS for those that are behind.
The run kills leaders every 10 to 20 s, so several in a row may not get that far."""


def wal_bytes_max(at_seconds: float, readings: Sequence[Reading], written: Written) -> int:
    """Of a node's write-ahead log: 64 MiB, and what was written since its oldest reader began, if that is old."""
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
    """Everything about a sample that has a bound. `readings` and `written` are those of its node."""
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
    """How long a start would have taken on an otherwise idle machine."""
    return start.seconds - start.waited_seconds


def start_measure(start: Start, first_start_seconds: float) -> Measure:
    """How long a node took until it answered after it was ended, without what it waited for a processor.

    The bound is 3 s, or twice what the slowest empty node took at the very beginning: if that is more, the machine is
    slow.
    """
    limit = max(START_SECONDS_MAX, STARTS_OF_AN_EMPTY_NODE * first_start_seconds)
    return Measure("seconds to start", own_seconds(start), limit)
