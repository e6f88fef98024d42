"""The metadata log and the snapshots of an unmodified Kafka 4.3.0, record by record (FM-22)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kraftlog.kafka.json_values import json_value
from kraftlog.kafka.record_batch import RecordBatch, encode_batch, read_batches
from kraftlog.kafka.record_values import (
    ControlType,
    decode_control_record,
    decode_metadata_record,
    encode_control_record,
    encode_metadata_record,
)

CONTROLLERS = {"controller-3": "kafka-dump-log.txt", "controller-2-killed": "kafka-dump-log-2.txt"}
NAMES_IN_DUMPS = {
    ControlType.LEADER_CHANGE: "LeaderChange",
    ControlType.SNAPSHOT_HEADER: "SnapshotHeader",
    ControlType.SNAPSHOT_FOOTER: "SnapshotFooter",
    ControlType.KRAFT_VERSION: "KRaftVersion",
    ControlType.KRAFT_VOTERS: "KRaftVoters",
}


class Dumped(NamedTuple):
    """A record as kafka-dump-log prints it."""

    offset: int
    timestamp_ms: int
    name: str
    version: int
    fields: Any


@pytest.fixture(params=list(CONTROLLERS))
def controller(kafka_data: Path, request: pytest.FixtureRequest) -> Path:
    """The directory of a controller."""
    return kafka_data / str(request.param)


def test_every_record_is_what_kafkas_own_tool_prints(controller: Path) -> None:
    dumps = _dumps((controller.parent / CONTROLLERS[controller.name]).read_text())
    files = _files(controller)
    assert sum(map(len, dumps.values())) == 1225
    for name, dumped in dumps.items():
        assert [record for batch in files[name] for record in _records(batch)] == dumped


def test_batches_and_records_are_written_as_the_same_bytes(controller: Path) -> None:
    for batches in _files(controller).values():
        for batch in batches:
            batch.check_crc()
            written = encode_batch(
                batch.records(),
                base_offset=batch.base_offset,
                partition_leader_epoch=batch.partition_leader_epoch,
                attributes=batch.attributes,
            )
            assert written == batch.data


def test_no_byte_of_a_file_is_left(controller: Path) -> None:
    for path in controller.rglob("*0.*"):
        assert sum(len(batch.data) for batch in read_batches(path.read_bytes())) == path.stat().st_size


def _files(controller: Path) -> dict[str, list[RecordBatch]]:
    paths = [*controller.rglob("*.log"), *controller.rglob("*.checkpoint")]
    return {path.name: list(read_batches(path.read_bytes())) for path in paths}


def _records(batch: RecordBatch) -> Iterator[Dumped]:
    """The records of a batch, read, and written again as the same bytes."""
    for record in batch.records():
        if batch.is_control:
            kind, control = decode_control_record(record.key, record.value)
            fields = json_value(control, 0)
            assert encode_control_record(kind, control, fields["version"]) == (record.key, record.value)
            yield Dumped(record.offset, record.timestamp_ms, NAMES_IN_DUMPS[kind], 0, fields)
            continue
        assert record.value is not None
        value, version = decode_metadata_record(record.value)
        assert encode_metadata_record(value, version) == record.value
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(value).__name__).upper()
        yield Dumped(record.offset, record.timestamp_ms, name, version, json_value(value, version))


def _dumps(text: str) -> dict[str, list[Dumped]]:
    """The records of each file."""
    dumps: dict[str, list[Dumped]] = {}
    for line in text.splitlines():
        if line.startswith("Dumping "):
            records = dumps[Path(line.removeprefix("Dumping ")).name] = []
        found = re.match(r"\| offset: (\d+) CreateTime: (\d+) .*?\] (\w+):? (\{.*\})$", line)
        if found is None:
            continue
        offset, timestamp, control, payload = found.groups()
        fields = json.loads(payload)
        if control != "payload":
            records.append(Dumped(int(offset), int(timestamp), control, 0, fields))
        else:
            records.append(Dumped(int(offset), int(timestamp), fields["type"], fields["version"], fields["data"]))
    return dumps
