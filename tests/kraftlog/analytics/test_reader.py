"""The data source's reader on its own: which rows it plans and reads. It needs no Java."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

import pyspark_kraftlog
from kraftbase.errors import ApiError, ConfigurationError, DirectoryError
from kraftlog.analytics.export import export
from kraftlog.analytics.manifest import read_manifest, verify
from kraftlog.analytics.offsets import ReadOptions, parse_options, resolve_range
from kraftlog.analytics.spark_source import ExportReader, KraftlogDataSource
from tests.kraftlog.analytics.logs import HandMadeLog, MemorySource, no_op, small_log

OFFSETS = StructType([StructField("offset", LongType())])
TYPES_ONLY = StructType([StructField("record_type", StringType())])


def reader(directory: Path, schema: StructType = OFFSETS, **options: str) -> ExportReader:
    return ExportReader({"path": str(directory), **options}, schema)


def read(reader: ExportReader) -> list[pa.RecordBatch]:
    """Every batch of every partition, each partition sent to a worker and back as Spark does."""
    return [batch for span in reader.partitions() for batch in reader.read(pickle.loads(pickle.dumps(span)))]


def offsets(batches: list[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


@pytest.fixture
async def one_file(tmp_path, monkeypatch) -> Path:
    """42 rows in one file with row groups of 6 to 8, read in spans of 16 and batches of 5."""
    monkeypatch.setattr("kraftlog.analytics.export.ROW_GROUP_ROWS", 6)
    monkeypatch.setattr("kraftlog.analytics.spark_source.SPAN_ROWS_MAX", 16)
    monkeypatch.setattr("kraftlog.analytics.spark_source._BATCH_ROWS", 5)
    log = HandMadeLog(epoch=1)
    while log.end_offset < 40:
        log.append(*[no_op()] * (1 + len(log.batches) % 3))
    await export(MemorySource(log), tmp_path)
    return tmp_path


async def test_every_range_gives_exactly_its_offsets(one_file):
    for start in range(0, 40, 3):
        for end in range(start, 41, 4):
            found = offsets(read(reader(one_file, startingoffsets=str(start), endingoffsets=str(end))))
            assert found == list(range(start, end))


def test_ranges_span_files(small_export):
    assert len(read_manifest(small_export).files) > 3
    for start, end in [(0, 30), (3, 29), (9, 10), (11, 13), (30, 30)]:
        found = offsets(read(reader(small_export, startingOffsets=str(start), endingOffsets=str(end))))
        assert found == list(range(start, end))


async def test_a_large_file_is_read_in_parallel(one_file):
    spans = reader(one_file).partitions()
    assert [(span.start_offset, span.end_offset) for span in spans] == [(0, 16), (16, 32), (32, 42)]


async def test_row_groups_outside_the_range_are_not_read(one_file, monkeypatch):
    groups: list[list[int]] = []
    iter_batches = pq.ParquetFile.iter_batches

    def watched(self, *arguments, row_groups, **options):
        groups.append(row_groups)
        return iter_batches(self, *arguments, row_groups=row_groups, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", watched)
    read(reader(one_file, startingoffsets="20", endingoffsets="22"))
    assert len(groups) == 1
    assert len(groups[0]) == 1


def test_only_the_columns_asked_for_are_given(small_export):
    batches = read(reader(small_export, TYPES_ONLY, startingOffsets="1", endingOffsets="3"))
    assert [batch.schema.names for batch in batches] == [["record_type"]]
    assert batches[0].column(0).to_pylist() == ["REGISTER_BROKER_RECORD"] * 2


def test_a_column_that_an_older_file_lacks_is_null(tmp_path, small_export):
    directory = tmp_path / "older"
    directory.mkdir()
    (directory / "_manifest").symlink_to(small_export / "_manifest")
    (directory / "log").mkdir()
    for file in read_manifest(small_export).files:
        table = pq.read_table(small_export / file.name)
        pq.write_table(table.drop_columns(["record_type"]), directory / file.name)
    types = [value for batch in read(reader(directory, TYPES_ONLY)) for value in batch.column(0).to_pylist()]
    assert types == [None] * 30


def test_the_partition_that_spark_invents_has_no_rows(small_export):
    nothing = reader(small_export, startingOffsets="5", endingOffsets="5")
    assert nothing.partitions() == []
    assert list(nothing.read(InputPartition(None))) == []


def test_a_reader_can_be_sent_to_a_worker(small_export):
    sent = pickle.loads(pickle.dumps(reader(small_export, endingOffsets="4")))
    assert offsets(read(sent)) == [0, 1, 2, 3]


def test_a_filter_is_never_pushed_down():
    assert "pushFilters" not in vars(ExportReader)


def test_spark_finds_the_source_by_the_name_of_its_package():
    assert pyspark_kraftlog.DefaultSource is KraftlogDataSource
    assert issubclass(KraftlogDataSource, DataSource)
    assert KraftlogDataSource.name() == "kraftlog"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets is 'latest'; it must be 'earliest' or an offset"),
        ({"endingOffsets": "earliest"}, "endingOffsets is 'earliest'; it must be 'latest'"),
        ({"startingOffsets": "-2"}, "startingOffsets is '-2'"),
        ({"startingOffsets": "٣"}, "startingOffsets"),
        ({"endingOffsets": ""}, "endingOffsets is ''"),
        ({"startingOffsets": "7", "endingOffsets": "6"}, "startingOffsets is 7, after endingOffsets, which is 6"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused(small_export, options, message):
    with pytest.raises(ConfigurationError, match=message):
        reader(small_export, **options).partitions()


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_an_offset_outside_the_export_is_refused(small_export, option):
    with pytest.raises(ApiError, match=rf"OFFSET_OUT_OF_RANGE: {option} is 31, the export is from 0 to 30"):
        reader(small_export, **{option: "31"}).partitions()


def test_words_mean_the_ends_of_the_export(small_export):
    manifest = verify(small_export)
    assert resolve_range(ReadOptions("path", "Earliest", "LATEST"), manifest) == (0, 30)
    assert parse_options({"PATH": "there"}) == ReadOptions("there", "earliest", "latest")


def test_a_misspelt_option_is_refused(small_export):
    with pytest.raises(ConfigurationError, match="unknown option 'startingoffset'; the options are path, startingOffs"):
        reader(small_export, startingOffset="1")


def test_a_path_is_needed_and_must_hold_an_export(tmp_path):
    with pytest.raises(ConfigurationError, match="no path was given"):
        ExportReader({}, OFFSETS)
    with pytest.raises(DirectoryError, match="no export in"):
        reader(tmp_path).partitions()


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (StructField("ofset", LongType()), "no column 'ofset'; the columns are offset, epoch"),
        (StructField("offset", IntegerType()), "column 'offset' is BIGINT, not INT; cast it"),
    ],
)
def test_a_column_that_does_not_exist_or_has_another_type_is_refused(small_export, field, message):
    with pytest.raises(ConfigurationError, match=message):
        reader(small_export, StructType([field]))


async def test_a_reader_sees_a_later_export_only_when_it_plans_again(tmp_path):
    log = small_log()
    await export(MemorySource(log.up_to(5)), tmp_path)
    before = reader(tmp_path)
    planned = before.partitions()
    await export(MemorySource(log), tmp_path)
    assert [batch.num_rows for span in planned for batch in before.read(span)] == [log.up_to(5).end_offset]
    assert offsets(read(reader(tmp_path))) == list(range(log.end_offset))
