"""How long the import of a Kafka's metadata takes, how much memory it needs, and how soon SQL answers from it.

The commands run as a user runs them, each in a separate process, on a directory that is made first: one snapshot, with
topics of 100 partitions, each partition on three brokers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Final, NamedTuple

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Epoch, Offset
from kraftlog.bench.targets import Target
from kraftlog.kafka.control_records import SnapshotFooterRecord, SnapshotHeaderRecord
from kraftlog.kafka.metadata_records import FeatureLevelRecord, PartitionRecord, RegisterBrokerRecord, TopicRecord
from kraftlog.kafka.notation import Message
from kraftlog.kafka.record_batch import CONTROL, encode_batch
from kraftlog.kafka.record_values import ControlType, encode_control_record, encode_metadata_record
from kraftlog.kafka.records import Record
from raft.core.types import OffsetAndEpoch
from snapshot.names import snapshot_name

PARTITIONS_PER_TOPIC: Final = 100
BROKERS: Final = 12
REPLICAS: Final = 3
RECORDS_PER_BATCH: Final = 1_000
EPOCH: Final = 1
TIMESTAMP_MS: Final = 1_700_000_000_000
SECONDS_MAX: Final = 60.0
MEGABYTES_MAX: Final = 500.0
COUNT_SECONDS_MAX: Final = 1.0
STATEMENT: Final = "SELECT count(*) FROM partitions"


def import_targets(partitions: int, parent: Path | None) -> Iterator[Target]:
    """Make a directory with this many partitions, import it, and query it. Raises ApiError if a command fails."""
    with tempfile.TemporaryDirectory(prefix="kraftlog-bench-", dir=parent) as name:
        directory, target = Path(name) / "kafka", Path(name) / "imported"
        target.mkdir()
        make_directory(directory, partitions)
        environment = {**os.environ, "XDG_CACHE_HOME": str(Path(name) / "cache")}
        imported = _run(["import", str(directory), "--to", str(target)], environment)
        what = f"{partitions:,} partitions"
        yield Target(f"{what} imported", imported.seconds, SECONDS_MAX, "s")
        yield Target(f"{what} imported, memory", imported.peak_megabytes, MEGABYTES_MAX, "MB", decimals=0)
        ask = ["sql", str(directory), STATEMENT]
        first = _run(ask, environment)
        yield Target(f"{what} loaded for SQL", first.seconds, SECONDS_MAX, "s")
        yield Target("a count after that", _run(ask, environment).seconds, COUNT_SECONDS_MAX, "s", decimals=2)


class _Finished(NamedTuple):
    """The result of a command."""

    seconds: float
    peak_megabytes: float
    """The peak of its resident memory."""


def _run(arguments: list[str], environment: dict[str, str]) -> _Finished:
    started = time.monotonic()
    command = [sys.executable, "-m", "kraftlog", "kafka", *arguments]
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(command, stdout=said, stderr=said, env=environment)  # noqa: S603 (our own)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - started
        if child.returncode != 0:
            said.seek(0)
            words = said.read().decode(errors="replace").strip()
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"kraftlog kafka {arguments[0]} failed: {words}")
    return _Finished(seconds, usage.ru_maxrss * 1024 / 1e6)


def make_directory(directory: Path, partitions: int) -> None:
    """Make the directory of a Kafka node that has just fetched a snapshot with this many partitions."""
    partition = directory / "__cluster_metadata-0"
    partition.mkdir(parents=True)
    (directory / "meta.properties").write_text("version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAABQ\nnode.id=1\n")
    snapshot_id = OffsetAndEpoch(epoch=Epoch(EPOCH), offset=Offset(2 * partitions + 100))
    offsets = count()
    with (partition / snapshot_name(snapshot_id)).open("wb") as file:
        header = SnapshotHeaderRecord(last_contained_log_timestamp=TIMESTAMP_MS)
        file.write(_control(next(offsets), ControlType.SNAPSHOT_HEADER, header))
        records = _records(partitions)
        while run := list(islice(records, RECORDS_PER_BATCH)):
            batch = [
                Record(next(offsets), TIMESTAMP_MS, None, encode_metadata_record(record, version))
                for record, version in run
            ]
            file.write(encode_batch(batch, base_offset=batch[0].offset, partition_leader_epoch=EPOCH))
        file.write(_control(next(offsets), ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord()))


def _control(offset: int, kind: ControlType, value: Message) -> bytes:
    record = Record(offset, TIMESTAMP_MS, *encode_control_record(kind, value, 0))
    return encode_batch([record], base_offset=offset, partition_leader_epoch=EPOCH, attributes=CONTROL)


def _records(partitions: int) -> Iterator[tuple[Message, int]]:
    yield FeatureLevelRecord(name="metadata.version", feature_level=30), 0
    for broker in range(BROKERS):
        yield RegisterBrokerRecord(broker_id=broker, incarnation_id=_id(1, broker), log_dirs=(_id(2, broker),)), 4
    for number in range(-(-partitions // PARTITIONS_PER_TOPIC)):
        topic_id = _id(3, number)
        yield TopicRecord(name=f"measurements-{number}", topic_id=topic_id), 0
        for at in range(min(PARTITIONS_PER_TOPIC, partitions - number * PARTITIONS_PER_TOPIC)):
            replicas = tuple((at + step) % BROKERS for step in range(REPLICAS))
            yield (
                PartitionRecord(
                    partition_id=at,
                    topic_id=topic_id,
                    replicas=replicas,
                    isr=replicas,
                    leader=replicas[0],
                    leader_epoch=4,
                    partition_epoch=7,
                    directories=tuple(_id(2, broker) for broker in replicas),
                ),
                2,
            )


def _id(kind: int, number: int) -> bytes:
    return (kind << 120 | (number * 0x9E3779B97F4A7C15) % 2**64 << 40 | number).to_bytes(16, "big")
