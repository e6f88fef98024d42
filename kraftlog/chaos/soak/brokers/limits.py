"""All bounds of a soak of brokers. docs/chaos.md describes them; `kraftlog.chaos.soak.limits` has those of nodes.

Bounds of memory, descriptors, threads and lines are about twice the measured values. Bounds of files follow from the
settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Final

from kraftlog.admin.client.client import NewTopic
from kraftlog.chaos.soak.brokers.disturbances import (
    PASSING_PARTITIONS,
    PASSING_RECORDS,
    PASSING_TOPICS,
    PASSING_VALUE,
    TOPIC_SECONDS,
)
from kraftlog.chaos.soak.brokers.load import VALUE_BYTES_MEAN
from kraftlog.chaos.soak.brokers.samples import BrokerSample
from kraftlog.chaos.soak.limits import MEBIBYTE, Measure
from kraftlog.chaos.soak.samples import ProcessSample

SEGMENT_BYTES: Final = MEBIBYTE
RETENTION_BYTES: Final = MEBIBYTE
RETENTION_CHECK_MS: Final = 5_000
LOOP_REPORT_MS: Final = 5_000
CONFIGS: Final = {
    "allow.plaintext": "true",
    "log.segment.bytes": str(SEGMENT_BYTES),
    "log.retention.bytes": str(RETENTION_BYTES),
    "log.retention.check.interval.ms": str(RETENTION_CHECK_MS),
    "connections.max.idle.ms": "5000",
    "loop.report.interval.ms": str(LOOP_REPORT_MS),
}
"""The configs of the brokers: a log gets a new segment within a minute, and loses its oldest one."""
LARGE_TOPIC: Final = NewTopic("large", 1, 3)
TOPICS: Final = (
    NewTopic("three", 4, 3, configs={"min.insync.replicas": "2"}),
    NewTopic("two", 3, 2, configs={"min.insync.replicas": "1", "flush.before.ack": "false"}),
)

PARTITIONS: Final = sum(topic.num_partitions for topic in (*TOPICS, LARGE_TOPIC))
"""All partitions; a broker may have a replica of each."""
SEGMENTS_MAX: Final = 3
"""The most segments of a partition: retention keeps at most two, and deletes a third one at its next check."""
WAITING_SECONDS: Final = 30.0
"""How long records stay that retention deletes: the interval of its check plus the delay of a deletion, twice, since a
broker may just have started, or a deletion may wait for others."""
LARGE_BYTES: Final = MEBIBYTE
"""The bytes of one large request."""
FILES_PER_SEGMENT: Final = 4
"""Records, two indexes, and the producer states at the segment's beginning."""
FILES_PER_PARTITION: Final = 4
"""Files beside the segments: epochs, identity, one that is being written, and a snapshot of producers at the end."""
SHARED_FILES: Final = 16
"""Files of the whole log directory: checkpoints, the inventory, identity."""

OWN_BYTES_MAX: Final = 16 * MEBIBYTE
RESIDENT_BYTES_MAX: Final = 256 * MEBIBYTE
DESCRIPTORS_MAX: Final = 512
"""Half of a usual limit. About 170 were measured, and 243 in a broker that was paused while clients connected."""
THREADS_MAX: Final = 32
STEADY_LINES_MAX: Final = 60
FAULTY_LINES_MAX: Final = 600
TURN_MS_MAX: Final = 250.0
"""A bound in processor time, so that other load of the machine does not count. It is a thirtieth of a session."""

RESIDENT_GROWTH_BYTES: Final = 32 * MEBIBYTE
"""The bound of the growth from one quarter of the steady part to another. An allocator keeps its largest use, which is
higher when two large requests coincide. In an hour, with quarters of 450 s, the bound detects a leak of 130 MiB per
hour; the absolute bound detects a slower one that continues."""
DESCRIPTOR_GROWTH: Final = 24
THREAD_GROWTH: Final = 6
"""A pool has a bound on its threads, and starts a thread whenever all others are busy for the first time."""
QUARTER_SAMPLES_MIN: Final = 60
REST_ALLOWANCE: Final[Mapping[str, int]] = {"descriptors": 16, "threads": 6}
"""A restarted process may keep connections to other peers than before, and the threads of a pool."""


def log_bytes_max(records_per_second: float) -> int:
    """Return the bound of the bytes in a broker's log directory, at this rate of records."""
    kept = PARTITIONS * (RETENTION_BYTES + (SEGMENTS_MAX - 1) * SEGMENT_BYTES)
    waiting = round(records_per_second * VALUE_BYTES_MEAN * WAITING_SECONDS)
    passing = (PASSING_TOPICS + _deleted_topics()) * PASSING_RECORDS * 2 * len(PASSING_VALUE)
    return kept + waiting + passing + LARGE_BYTES


def log_files_max(records_per_second: float) -> int:
    """Return the bound of the files in a broker's log directory, at this rate of records."""
    waiting_segments = round(records_per_second * VALUE_BYTES_MEAN * WAITING_SECONDS / SEGMENT_BYTES)
    segments = PARTITIONS * SEGMENTS_MAX + waiting_segments
    passing = (PASSING_TOPICS + _deleted_topics()) * PASSING_PARTITIONS * (FILES_PER_SEGMENT + FILES_PER_PARTITION)
    return SHARED_FILES + segments * FILES_PER_SEGMENT + PARTITIONS * FILES_PER_PARTITION + passing


def _deleted_topics() -> int:
    """Return the most deleted topics whose files may still exist."""
    return 1 + round(WAITING_SECONDS / TOPIC_SECONDS)


def broker_measures(
    sample: BrokerSample, records_per_second: float, created_topics: int, *, is_steady: bool
) -> Iterator[Measure]:
    """Yield all figures of a sample that have a bound. `created_topics` is the number of temporary topics."""
    yield Measure("broker log bytes", sample.log_bytes, log_bytes_max(records_per_second))
    yield Measure("broker log files", sample.log_files, log_files_max(records_per_second))
    yield Measure("broker metadata bytes", sample.own_bytes, OWN_BYTES_MAX)
    yield Measure("broker turn of the loop, ms", sample.lines.turn_ms, TURN_MS_MAX)
    yield Measure("broker tracebacks", sample.lines.tracebacks, 0)
    if is_steady:
        yield Measure("broker log lines a minute, without faults", sample.lines.per_minute, STEADY_LINES_MAX)
        yield Measure("broker fenced, without faults", sample.lines.fenced, 0)
        yield Measure("broker stray logs, without faults", sample.stray_logs, 0)
    else:
        yield Measure("broker stray logs", sample.stray_logs, PASSING_PARTITIONS * created_topics)
        yield Measure("broker log lines a minute", sample.lines.per_minute, FAULTY_LINES_MAX)
    if sample.process is not None:
        yield Measure("broker resident bytes", sample.process.resident_bytes, RESIDENT_BYTES_MAX)
        yield Measure("broker descriptors", sample.process.descriptors, DESCRIPTORS_MAX)
        yield Measure("broker threads", sample.process.threads, THREADS_MAX)


def growth_measures(kind: str, processes: Sequence[ProcessSample]) -> Iterator[Measure]:
    """Yield the growth from the second to the last quarter of the steady part, by medians.

    `kind` is "broker" or "node". The first quarter does not count: caches fill up in it, and logs reach their number of
    segments. If the steady part is too short, there are no such measures.
    """
    quarter = len(processes) // 4
    if quarter < QUARTER_SAMPLES_MIN:
        return
    for name, limit, values in _used(processes):
        growth = median(values[-quarter:]) - median(values[quarter : 2 * quarter])
        yield Measure(f"{kind} {name}, growth", max(0, growth), limit)


def rest_measures(kind: str, steady: Sequence[ProcessSample], at_rest: ProcessSample) -> Iterator[Measure]:
    """Yield how many descriptors and threads a process has without clients, bounded by those under steady load."""
    if not steady:
        return
    for name, allowance in REST_ALLOWANCE.items():
        usual = median(getattr(process, name) for process in steady)
        yield Measure(f"{kind} {name}, at rest", getattr(at_rest, name), usual + allowance)


def _used(processes: Sequence[ProcessSample]) -> Iterator[tuple[str, float, list[int]]]:
    yield "resident bytes", RESIDENT_GROWTH_BYTES, [process.resident_bytes for process in processes]
    yield "descriptors", DESCRIPTOR_GROWTH, [process.descriptors for process in processes]
    yield "threads", THREAD_GROWTH, [process.threads for process in processes]
