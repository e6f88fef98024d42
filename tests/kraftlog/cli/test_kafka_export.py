"""`kraftlog export --kafka`: a Kafka's log in the export's schema, as far as it is committed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from kraftbase.errors import ErrorCode
from kraftlog.analytics.report import report
from kraftlog.analytics.schema import arrow_schema
from kraftlog.analytics.session import local_spark
from kraftlog.kafka.metadata_records import ConfigRecord, NoOpRecord
from kraftlog.kafka.record_batch import encode_batch
from kraftlog.kafka.record_values import encode_metadata_record
from kraftlog.kafka.records import Record
from tests.kraftlog.command_line import Run, run
from tests.kraftlog.kafka.conftest import kafka_data
from tests.kraftlog.offline.kafka.conftest import controller, other_controller
from tests.kraftlog.offline.kafka.test_image import LAST_SEGMENT, append

__all__ = ["controller", "kafka_data", "other_controller", "run"]

NOTE = "note: offsets 676 to 779 are after the newest snapshot and may be uncommitted"


def rows_in(export: Path) -> list[dict[str, Any]]:
    """All rows, each file's schema checked."""
    rows = []
    for path in sorted((export / "log").iterdir()):
        table = pyarrow.parquet.read_table(path)
        assert table.schema.remove_metadata().equals(arrow_schema())
        rows += table.to_pylist()
    return rows


def test_what_is_committed_is_exported_with_kafkas_offsets(controller: Path, tmp_path: Path, run: Run) -> None:
    exported = run("export", "--kafka", controller, "--to", tmp_path / "export", "--output", "json")
    assert exported.errors == f"{NOTE}, and are not exported; --with-tail does\n"
    fields = json.loads(exported.output)
    assert (fields["StartOffset"], fields["EndOffset"], fields["Rows"]) == (0, 676, 676)
    rows = rows_in(tmp_path / "export")
    dumped = [json.loads(line) for line in run("kafka", "dump", controller, "--offsets", ":676").lines()]
    assert [row["offset"] for row in rows] == [record["offset"] for record in dumped]
    assert [row["epoch"] for row in rows] == [record["epoch"] for record in dumped]
    assert [int(row["timestamp"].timestamp() * 1000 + 0.5) for row in rows] == [one["timestamp"] for one in dumped]
    others = {
        "LEADER_CHANGE": "LEADER_CHANGE_MESSAGE",
        "KRAFT_VERSION": "KRAFT_VERSION_RECORD",
        "VOTERS": "VOTERS_RECORD",
    }
    unknown = {"group.version", "share.version", "streams.version", "transaction.version"}
    for row, record in zip(rows, dumped, strict=True):
        expected = "NO_OP_RECORD" if record["data"].get("name") in unknown else record["type"]
        assert others.get(row["record_type"], row["record_type"]) == expected
    leaders = [(row["offset"], row["leader"]) for row in rows if row["record_type"] == "LEADER_CHANGE"]
    assert leaders == [(0, 2), (466, 3)]
    assert {row["payload"] for row in rows if "SCRAM" in row["record_type"]} == {'{"hidden":true}'}


def test_passwords_are_hidden(controller: Path, tmp_path: Path, run: Run) -> None:
    append(controller, [ConfigRecord(resource_type=4, resource_name="11", name="ssl.key.password", value="opensesame")])
    assert run("export", "--kafka", controller, "--to", tmp_path / "export", "--with-tail").code == 0
    (row,) = [row for row in rows_in(tmp_path / "export") if row["config_name"] == "ssl.key.password"]
    assert row["config_value"] == "(hidden)" and "opensesame" not in row["payload"]


def test_a_later_copy_continues_the_export(controller: Path, other_controller: Path, tmp_path: Path, run: Run) -> None:
    export = tmp_path / "export"
    run("export", "--kafka", controller, "--to", export)
    again = run("export", "--kafka", other_controller, "--to", export, "--output", "json")  # its snapshot ends at 777
    assert json.loads(again.output)["StartOffset"] == 676
    tail = run("export", "--kafka", controller, "--to", export, "--with-tail", "--output", "json")
    assert json.loads(tail.output)["EndOffset"] == 780
    assert tail.errors == f"{NOTE}\n"
    assert [row["offset"] for row in rows_in(export)] == list(range(780))


def test_a_tail_that_was_not_committed_is_found_when_the_export_goes_on(
    controller: Path, tmp_path: Path, run: Run
) -> None:
    """The leader of epoch 3 wrote something else at offset 780."""
    later = shutil.copytree(controller, tmp_path / "later")
    append(controller, [NoOpRecord()])
    run("export", "--kafka", controller, "--to", tmp_path / "export", "--with-tail")
    record = Record(780, 1_795_344_500_000, None, encode_metadata_record(NoOpRecord(), 0))
    with (later / "__cluster_metadata-0" / LAST_SEGMENT).open("ab") as file:
        file.write(encode_batch([record], base_offset=780, partition_leader_epoch=3))
    refused = run("export", "--kafka", later, "--to", tmp_path / "export", "--with-tail")
    words = ("ends with offset 780 of epoch 2", "offset of epoch 3", "export to an empty directory")
    assert refused.is_error(ErrorCode.CORRUPT_MESSAGE, *words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--kafka", ".", "--bootstrap-server", "localhost:1"), "--kafka: both options name a source"),
        (("--with-tail", "--bootstrap-server", "localhost:1"), "only a Kafka's directory has a tail"),
        ((), "name nodes, or a Kafka's directory with --kafka"),
    ],
)
def test_one_source_is_named(tmp_path: Path, run: Run, options: tuple[str, ...], words: str) -> None:
    refused = run("export", "--to", tmp_path / "export", *options)
    assert refused.code == 2 and words in refused.errors


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_the_report_counts_what_sql_does(controller: Path, tmp_path: Path, run: Run) -> None:
    run("export", "--kafka", controller, "--to", tmp_path / "export", "--with-tail")
    spark = local_spark()
    try:
        found = report(spark, tmp_path / "export")
    finally:
        spark.stop()
    statement = (
        "SELECT (SELECT count(*) FROM topics) AS topics, (SELECT count(*) FROM partitions) AS partitions,"
        " (SELECT count(*) FROM brokers) AS brokers, (SELECT count(*) FROM configs) AS configs"
    )
    (counts,) = json.loads(run("kafka", "sql", controller, statement, "--output", "json").output)
    assert found.cluster_id == "kraftlogTestClusterAAA"
    assert found.to_dict()["counts"] == {"end_offset": 780, **counts}
    assert [(leader.epoch, leader.leader) for leader in found.leaders] == [(1, 2), (2, 3)]
    load = "SELECT broker_id, led AS led FROM (SELECT leader AS broker_id, count(*) AS led FROM partitions GROUP BY 1)"
    led = json.loads(run("kafka", "sql", controller, load, "--output", "json").output)
    reported = {broker.broker_id: broker.led for broker in found.brokers}
    assert all(reported[row["broker_id"]] == row["led"] for row in led if row["broker_id"] >= 0)
