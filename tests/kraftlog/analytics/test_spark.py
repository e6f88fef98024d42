"""The data source and the report in a real Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.pandas.types import to_arrow_schema

from kraftbase.errors import ApiError, DirectoryError
from kraftlog.analytics.export import export
from kraftlog.analytics.report import BrokerLoad, Counts, Leadership, counts, report
from kraftlog.analytics.schema import arrow_schema, spark_ddl
from kraftlog.analytics.session import local_spark
from tests.kraftlog.analytics.exports import expected_rows
from tests.kraftlog.analytics.logs import START_MS, HandMadeLog, MemorySource, small_log
from tests.kraftlog.analytics.test_documented_query import QUERY, leaderships

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def load(spark, directory: Path, **options: str):
    return spark.read.format("kraftlog").options(**options).load(str(directory))


def test_spark_reads_the_rows_that_were_exported(spark, small_export):
    table = load(spark, small_export).orderBy("offset").toArrow()
    assert table.to_pylist() == expected_rows(small_log())


def test_the_arrow_schema_is_what_spark_makes_of_the_columns(spark, small_export):
    assert to_arrow_schema(load(spark, small_export).schema, timezone="UTC").equals(arrow_schema())


def test_a_filter_does_not_leak_into_the_next_query(spark, small_export):
    log = load(spark, small_export)
    assert log.count() == small_log().end_offset
    assert log.where("offset < 3").count() == 3
    assert log.count() == small_log().end_offset
    log.createOrReplaceTempView("log")
    union = "SELECT count(*) n FROM log WHERE offset < 7 UNION ALL SELECT count(*) FROM log WHERE offset >= 29"
    assert sorted(row.n for row in spark.sql(union).collect()) == [1, 7]


def test_a_range_of_offsets_is_read_by_options(spark, small_export):
    part = load(spark, small_export, startingOffsets="5", endingOffsets="21")
    assert sorted(row.offset for row in part.select("offset").collect()) == list(range(5, 21))
    assert load(spark, small_export, startingOffsets="30").count() == 0


def test_columns_are_chosen_by_schema(spark, small_export):
    log = spark.read.format("kraftlog").schema(spark_ddl(("record_type", "leader"))).load(str(small_export))
    assert log.columns == ["record_type", "leader"]
    leaders = log.where("record_type = 'LEADER_CHANGE'").select("leader").collect()
    assert sorted(row.leader for row in leaders) == [1, 1, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets is 'latest'"),
        ({"endingOffsets": "31"}, "OFFSET_OUT_OF_RANGE"),
        ({"startingOffset": "1"}, "unknown option 'startingoffset'"),
    ],
)
def test_what_is_wrong_with_an_option_reaches_the_user(spark, small_export, options, message):
    with pytest.raises(AnalysisException, match=message):
        load(spark, small_export, **options).count()


def test_a_session_of_ones_own_finds_the_source_without_registration(spark, small_export):
    assert load(spark.newSession(), small_export).count() == 30


def test_there_is_one_session(spark):
    assert local_spark() is spark


async def test_a_dataframe_is_a_fixed_snapshot(spark, tmp_path):
    log = small_log()
    await export(MemorySource(log.up_to(5)), tmp_path)
    loaded = load(spark, tmp_path)
    assert loaded.count() == log.up_to(5).end_offset
    await export(MemorySource(log), tmp_path)
    assert loaded.count() == log.up_to(5).end_offset
    assert load(spark, tmp_path).count() == log.end_offset


def test_the_documented_query_says_who_led_which_partition_and_when(spark, small_export):
    load(spark, small_export).createOrReplaceTempView("log")
    rows = spark.sql(QUERY).toArrow().to_pylist()
    spans = {tuple(row[of] for of in ("topic", "topic_id", "partition", "leader", "since", "until")) for row in rows}
    assert spans == leaderships(small_log())


def test_the_report_replays_the_log(spark, small_export):
    found = report(spark, small_export)
    assert found.counts == Counts(end_offset=30, topics=2, partitions=5, brokers=3, configs=2)
    assert found.brokers == (
        BrokerLoad(broker_id=11, topics=2, partitions=4, led=2),
        BrokerLoad(broker_id=12, topics=2, partitions=3, led=3),
        BrokerLoad(broker_id=13, topics=0, partitions=0, led=0),
    )
    assert found.leaders == (
        Leadership(1, 1, 0, 12, START_MS, START_MS + 1500),
        Leadership(2, 2, 12, 23, START_MS + 1500, START_MS + 3000),
        Leadership(3, 1, 23, None, START_MS + 3000, None),
    )
    expected = expected_rows(small_log())
    assert found.bucket == "second"
    assert {(count.start_ms, count.record_type): count.records for count in found.records} == {
        (start_ms, record_type): sum(
            row["record_type"] == record_type and row["timestamp"].timestamp() * 1000 // 1000 * 1000 == start_ms
            for row in expected
        )
        for start_ms, record_type in {
            (int(row["timestamp"].timestamp()) * 1000, row["record_type"]) for row in expected
        }
    }


async def test_counts_follow_every_change(spark, tmp_path):
    """Spark counts what a plain replay in Python counts: before and after a removal, after a topic came again."""
    log = small_log()
    for committed in (9, 10, 11, 15):
        await export(MemorySource(log.up_to(committed)), tmp_path)
        assert counts(spark, tmp_path) == replayed(log.up_to(committed))


def replayed(log: HandMadeLog) -> Counts:
    names: dict[str, str] = {}
    partitions: set[tuple[str, int]] = set()
    brokers: set[int] = set()
    configs: set[tuple[str, str, str]] = set()
    for row in expected_rows(log):
        match row["record_type"]:
            case "TOPIC_RECORD":
                names[row["topic_id"]] = row["topic"]
            case "PARTITION_RECORD":
                partitions.add((row["topic_id"], row["partition"]))
            case "REGISTER_BROKER_RECORD":
                brokers.add(row["broker_id"])
            case "CONFIG_RECORD":
                key = (row["resource_type"], row["resource_name"], row["config_name"])
                (configs.discard if row["config_value"] is None else configs.add)(key)
            case "REMOVE_TOPIC_RECORD":
                name = names.pop(row["topic_id"])
                partitions = {key for key in partitions if key[0] != row["topic_id"]}
                configs = {key for key in configs if key[:2] != ("TOPIC", name)}
    return Counts(log.end_offset, len(names), len(partitions), len(brokers), len(configs))


async def test_an_empty_export_has_no_rows_and_an_empty_report(spark, tmp_path):
    await export(MemorySource(HandMadeLog()), tmp_path)
    assert load(spark, tmp_path).count() == 0
    found = report(spark, tmp_path)
    assert found.counts == Counts(0, 0, 0, 0, 0)
    assert (found.brokers, found.records, found.leaders) == ((), (), ())


async def test_a_log_whose_beginning_is_gone_is_not_counted(spark, tmp_path):
    with pytest.raises(DirectoryError, match="no export in"):
        report(spark, tmp_path)
    await export(MemorySource(small_log().from_offset(4)), tmp_path)
    with pytest.raises(ApiError, match=r"OFFSET_OUT_OF_RANGE: the export in .* starts at offset 4"):
        counts(spark, tmp_path)
