"""A record becomes a row: what the columns say."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from kraftbase.errors import ApiError
from kraftbase.types import Epoch, Offset
from kraftlog.analytics.rows import rows_of
from kraftlog.analytics.schema import COLUMN_NAMES, COLUMNS, arrow_schema
from kraftpb.v1.batch_pb2 import ControlBody, ControlRecord
from raft.storage.batch import encode_batch
from tests.kraftlog.analytics.logs import (
    START_MS,
    HandMadeLog,
    no_op,
    partition,
    register_broker,
    remove_topic,
    small_log,
    topic,
    topic_config,
    uuid,
)
from tests.paths import ROOT

TOPIC_ID_1 = "AAAAAACrze8AAAAAAAAAAQ"


def rows(log: HandMadeLog) -> list[dict]:
    return rows_of(log.batches, Offset(0), log.end_offset).to_pylist()


def values(row: dict) -> dict:
    """What is set beyond what every row has."""
    everywhere = {"offset", "epoch", "timestamp", "base_offset", "is_control", "record_type", "payload"}
    return {name: value for name, value in row.items() if value is not None and name not in everywhere}


def logged(*records) -> HandMadeLog:
    log = HandMadeLog(epoch=4)
    log.append(*records)
    return log


def test_every_record_has_a_row_at_its_offset():
    log = small_log()
    assert [row["offset"] for row in rows(log)] == list(range(log.end_offset))


def test_rows_have_exactly_the_columns_of_the_schema():
    assert rows_of(small_log().batches, Offset(0), Offset(5)).schema.equals(arrow_schema())


def test_a_row_says_where_and_when_its_record_was_appended():
    log = logged(no_op())
    log.append(no_op(), no_op())
    last = rows(log)[2]
    assert (last["offset"], last["base_offset"], last["epoch"], last["is_control"]) == (2, 1, 4, False)
    assert last["timestamp"] == datetime.fromtimestamp((START_MS + 250) / 1000, UTC)


def test_a_topic_record_says_name_and_id():
    (row,) = rows(logged(topic("orders", 1)))
    assert row["record_type"] == "TOPIC_RECORD"
    assert values(row) == {"topic": "orders", "topic_id": TOPIC_ID_1}
    assert json.loads(row["payload"]) == {"name": "orders", "topicId": TOPIC_ID_1}


def test_a_partition_record_says_who_holds_and_leads_it():
    (row,) = rows(logged(partition(1, 7, [3, 4], leader=4)))
    assert row["record_type"] == "PARTITION_RECORD"
    assert values(row) == {
        "topic_id": TOPIC_ID_1,
        "partition": 7,
        "leader": 4,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "replicas": [3, 4],
        "isr": [3, 4],
    }


def test_a_broker_record_has_a_rack_only_if_the_broker_has_one():
    with_rack, without = rows(logged(register_broker(5, rack="b"), register_broker(6)))
    assert values(with_rack) == {"broker_id": 5, "broker_epoch": 105, "fenced": False, "rack": "b"}
    assert values(without) == {"broker_id": 6, "broker_epoch": 106, "fenced": False}
    assert json.loads(without["payload"])["incarnationId"] == "AAAAAACrze8AAAAAAAAABg"
    assert "rack" not in json.loads(without["payload"])


def test_a_removed_config_has_no_value_and_an_empty_one_has_an_empty_value():
    removed, emptied = rows(logged(topic_config("t", "a", None), topic_config("t", "a", "")))
    assert values(removed) == {"resource_type": "TOPIC", "resource_name": "t", "config_name": "a"}
    assert emptied["config_value"] == ""


def test_a_leader_change_says_who_leads():
    log = HandMadeLog()
    log.elect(2)
    (row,) = rows(log)
    assert (row["record_type"], row["is_control"], row["epoch"]) == ("LEADER_CHANGE", True, 1)
    assert values(row) == {"leader": 2}
    assert [voter["nodeId"] for voter in json.loads(row["payload"])["voters"]] == [1, 2, 3]


def test_types_have_kafkas_names():
    names = [row["record_type"] for row in rows(logged(no_op(), remove_topic(1), register_broker(1)))]
    assert names == ["NO_OP_RECORD", "REMOVE_TOPIC_RECORD", "REGISTER_BROKER_RECORD"]


def test_bytes_of_another_log_are_kept_as_they_are():
    log = HandMadeLog(epoch=1)
    log.append_bytes(b"\xff\xff counter += 1", b"", topic("orders", 1).SerializeToString())
    first, second, third = rows(log)
    assert (first["record_type"], first["value"], first["payload"]) == ("UNKNOWN", b"\xff\xff counter += 1", None)
    assert (second["record_type"], second["value"]) == ("UNKNOWN", b"")
    assert (third["record_type"], third["value"]) == ("TOPIC_RECORD", None)


def test_a_control_record_of_a_later_version_is_a_row_too():
    body = ControlBody(records=[ControlRecord.FromString(b"\x9a\x06\x01x")]).SerializeToString()
    batch = encode_batch(Offset(3), Epoch(1), body, 1, START_MS, True)
    (row,) = rows_of([batch], Offset(3), Offset(4)).to_pylist()
    assert (row["offset"], row["record_type"], row["value"]) == (3, "UNKNOWN", b"\x9a\x06\x01x")


def test_rows_outside_the_range_are_left_out():
    log = logged(topic("a", 1), topic("b", 2), topic("c", 3), topic("d", 4))
    found = rows_of(log.batches, Offset(1), Offset(3)).to_pylist()
    assert [(row["offset"], row["topic"], row["base_offset"]) for row in found] == [(1, "b", 0), (2, "c", 0)]
    assert rows_of(log.batches, Offset(4), Offset(9)).num_rows == 0


@pytest.mark.parametrize("is_control", [True, False])
def test_a_batch_that_holds_fewer_records_than_it_says_is_refused(is_control):
    batch = encode_batch(Offset(0), Epoch(1), b"", 2, START_MS, is_control)
    with pytest.raises(ApiError, match=r"CORRUPT_MESSAGE.*offset 0.*holds 0 records, its header says 2"):
        rows_of([batch], Offset(0), Offset(2))


def test_the_documented_columns_are_the_columns():
    page = ROOT / "docs" / "formats" / "export.md"
    documented = [line.split("|")[1:4] for line in page.read_text().splitlines() if line.startswith("| `")]
    table = [tuple(cell.strip().strip("`") for cell in cells) for cells in documented]
    columns = [cells for cells in table if cells[0] in COLUMN_NAMES and cells[1].isupper()]
    assert columns == [(column.name, column.spark_type, column.meaning) for column in COLUMNS]


def test_uuid_of_the_tests_is_the_text_of_the_tests():
    assert uuid(1).bytes.hex() == "0000000000abcdef0000000000000001"
