"""The report on a cluster, which Spark computes from an export of its committed log alone.

At the same offset, each node's SQLite tables must agree with `counts`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.analytics.manifest import Manifest, check_files, read_manifest
from kraftlog.analytics.offsets import ENDING_OFFSETS
from kraftlog.analytics.queries import BROKERS, COUNTS, LEADERS, RECORDS_OVER_TIME, STATE_COLUMNS
from kraftlog.analytics.schema import spark_ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Line = TypeVar("Line", "BrokerLoad", "RecordCount", "Leadership")

LEADERS_MAX: Final = 1000
"""The report names at most this many leaders, the latest ones."""

BUCKETS: Final = (("second", 1_000), ("minute", 60_000), ("hour", 3_600_000))
BUCKETS_MAX: Final = 120
"""Records over time are counted by the smallest of these with at most this many buckets, otherwise by the day."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What exists after the records below `end_offset`."""

    end_offset: int
    topics: int
    partitions: int
    brokers: int
    configs: int


@dataclass(frozen=True, slots=True, order=True)
class BrokerLoad:
    """What one broker holds: topics with a replica on it, replicas, and partitions that it leads."""

    broker_id: int
    topics: int
    partitions: int
    led: int


@dataclass(frozen=True, slots=True, order=True)
class RecordCount:
    """How many records of one type were appended in the bucket that starts at `start_ms` (milliseconds since 1970)."""

    start_ms: int
    record_type: str
    records: int


@dataclass(frozen=True, slots=True, order=True)
class Leadership:
    """A node that led the quorum for one epoch. `end_offset` and `until_ms` are None for the newest."""

    epoch: int
    leader: int
    start_offset: int
    end_offset: int | None
    since_ms: int
    until_ms: int | None


@dataclass(frozen=True, slots=True)
class Report:
    """Everything, as of `counts.end_offset`."""

    cluster_id: str
    start_offset: int
    counts: Counts
    brokers: tuple[BrokerLoad, ...]
    bucket: str
    records: tuple[RecordCount, ...]
    leaders: tuple[Leadership, ...]

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON has it."""
        return asdict(self)


def report(spark: SparkSession, directory: Path | str) -> Report:
    """The report on the export in a directory.

    Raises what `replayable_manifest` raises.
    """
    manifest = replayable_manifest(Path(directory))
    bucket = bucket_for(manifest)
    with _log(spark, directory, manifest) as log:
        return Report(
            cluster_id=manifest.cluster_id,
            start_offset=manifest.start_offset,
            counts=_counts(spark, log, manifest),
            brokers=_rows(BrokerLoad, spark.sql(BROKERS, log=log)),
            bucket=bucket,
            records=_rows(RecordCount, spark.sql(RECORDS_OVER_TIME, log=log, bucket=bucket)),
            leaders=_rows(Leadership, spark.sql(LEADERS, log=log, limit=LEADERS_MAX)),
        )


def counts(spark: SparkSession, directory: Path | str) -> Counts:
    """How many topics, partitions, brokers and configs exist after the last exported record; raises as `report`."""
    manifest = replayable_manifest(Path(directory))
    with _log(spark, directory, manifest) as log:
        return _counts(spark, log, manifest)


def replayable_manifest(directory: Path) -> Manifest:
    """Return the manifest of an export that can be replayed: it begins at offset 0, and no file is missing.

    Raises DirectoryError if there is none, CorruptLog if a file is missing or of another size,
    ApiError(OFFSET_OUT_OF_RANGE) if it does not begin at offset 0.
    """
    manifest = read_manifest(directory)
    check_files(directory, manifest)
    if manifest.start_offset > 0:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"the export in {directory} starts at offset {manifest.start_offset}: without the records before, it does"
            " not give the current state; it can still be queried as a table",
        )
    return manifest


def bucket_for(manifest: Manifest) -> str:
    """The width of the buckets for records over time: second, minute, hour or day."""
    if not manifest.files:
        return "second"
    earliest_ms = min(file.min_timestamp_ms for file in manifest.files)
    latest_ms = max(file.max_timestamp_ms for file in manifest.files)
    return next((name for name, width_ms in BUCKETS if latest_ms - earliest_ms < BUCKETS_MAX * width_ms), "day")


def _rows(kind: type[Line], found: DataFrame) -> tuple[Line, ...]:
    """Return the rows of a query's result as lines of the report, in order."""
    return tuple(sorted(kind(**row.asDict()) for row in found.collect()))


def _counts(spark: SparkSession, log: DataFrame, manifest: Manifest) -> Counts:
    (row,) = spark.sql(COUNTS, log=log).collect()
    return Counts(end_offset=manifest.end_offset, **row.asDict())


@contextmanager
def _log(spark: SparkSession, directory: Path | str, manifest: Manifest) -> Iterator[DataFrame]:
    """The log up to the end of this manifest, read once for all queries."""
    reader = spark.read.format("kraftlog").schema(spark_ddl(STATE_COLUMNS))
    log = reader.option(ENDING_OFFSETS, str(manifest.end_offset)).load(str(directory)).cache()
    try:
        yield log
    finally:
        log.unpersist()
