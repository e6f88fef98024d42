"""Kafka's own kafka-dump-log reads our files. Its jars are fetched by `make peers`."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from kraftbase.files.posix import PosixFileSystem
from kraftlog.kafka.record_batch import read_batches
from kraftlog.storage.config import PartitionLogConfig
from tests.java import JARS, needs_kafka
from tests.kraftlog.storage.builders import (
    NOW_MS,
    TRANSACTIONAL,
    append,
    batch,
    log_in,
    marker,
    open_directory,
    produced,
)

pytestmark = needs_kafka


def dump(*paths: Path, options: tuple[str, ...] = ()) -> str:
    """What kafka-dump-log prints of some files."""
    ended = subprocess.run(
        ["java", "-cp", f"{JARS}/*", "org.apache.kafka.tools.DumpLogSegments", *options,
         "--files", ",".join(map(str, paths))],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log with three segments, transactions, idempotent producers, an index with several entries."""
    config = PartitionLogConfig(segment_bytes=2_000, index_interval_bytes=100)
    opened = open_directory(PosixFileSystem(), str(tmp_path / "data"), config=config)
    log = log_in(opened, config)
    for index in range(6):
        append(log, batch(3, value=b"x" * 50, timestamp_ms=NOW_MS + 1_000 * index), epoch=index // 2)
    append(log, produced(900, 0, 5), epoch=3)
    append(log, produced(901, 0, 2, attributes=TRANSACTIONAL), epoch=3)
    append(log, produced(902, 0, 2, attributes=TRANSACTIONAL), epoch=3)
    append(log, marker(901, aborts=True), epoch=3)
    append(log, produced(900, 5, 20), epoch=3)
    log.roll(NOW_MS)
    append(log, batch(1), epoch=3)
    opened.close(broker_epoch=3)
    return tmp_path / "data" / "clicks-0"


def test_kafka_dump_log_reads_every_batch_and_finds_nothing_wrong(directory: Path) -> None:
    logs = sorted(directory.glob("*.log"))
    assert len(logs) == 3
    printed = dump(*logs, options=("--deep-iteration",))
    found = [(int(base), int(last)) for base, last in re.findall(r"baseOffset: (\d+) lastOffset: (\d+)", printed)]
    batches = [read for path in logs for read in read_batches(path.read_bytes())]
    assert found == [(read.base_offset, read.end_offset - 1) for read in batches]
    assert printed.count("isvalid: true") == len(batches)
    assert "isvalid: false" not in printed
    assert re.findall(r"endTxnMarker: (\w+) coordinatorEpoch: (\d+)", printed) == [("ABORT", "0")]


def test_kafka_dump_log_finds_the_indexes_in_order(directory: Path) -> None:
    indexes = [*sorted(directory.glob("*.index")), *sorted(directory.glob("*.timeindex"))]
    printed = dump(*indexes, options=("--verify-index-only",))
    assert "Mismatches" not in printed
    assert "Found" not in printed
    shown = dump(*indexes)
    assert len(re.findall(r"^offset: \d+ position: \d+$", shown, re.MULTILINE)) == sum(
        path.stat().st_size // 8 for path in indexes if path.suffix == ".index"
    )
    assert len(re.findall(r"^timestamp: \d+ offset: \d+$", shown, re.MULTILINE)) == sum(
        path.stat().st_size // 12 for path in indexes if path.suffix == ".timeindex"
    )


def test_kafka_dump_log_reads_producers_and_aborted_transactions(directory: Path) -> None:
    snapshots, aborted = sorted(directory.glob("*.snapshot")), sorted(directory.glob("*.txnindex"))
    printed = dump(*snapshots)
    assert len(snapshots) == 3
    shown = dump(snapshots[-1])
    assert re.findall(r"producerId: 900 .*firstSequence: (\d+) lastSequence: (\d+) ", shown) == [
        ("0", "4"),
        ("5", "24"),
    ]
    known = dict(re.findall(r"producerId: (\d+) (.*)", printed))
    assert known.keys() == {"900", "901", "902"}
    assert re.search(r"firstSequence: 5 lastSequence: 24 ", known["900"])
    assert re.search(r"currentTxnFirstOffset: \D*25", known["902"])
    assert "producerId: 901 firstOffset: 23 lastOffset: 27 lastStableOffset: 25\n" in dump(*aborted)
