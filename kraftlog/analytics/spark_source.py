"""The Spark data source `kraftlog` over an export: `spark.read.format("kraftlog").load("DIR")`.

- A DataFrame is a fixed snapshot: the manifest is read once. Load again to see later exports.
- Offsets are chosen by options (`startingOffsets`, `endingOffsets`), columns by `.schema("offset BIGINT, …")`: only
  those are read from the files.
- `pushFilters` is missing on purpose: in Spark 4.3 the filter of one query leaks into the next query on the same
  DataFrame. Without it, Spark itself filters the rows, correctly.

Readers are pickled and run in Python workers, so this package must be importable there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kraftbase.errors import ConfigurationError
from kraftbase.types import Offset
from kraftlog.analytics.manifest import ExportedFile, read_manifest
from kraftlog.analytics.offsets import parse_options, resolve_range
from kraftlog.analytics.schema import COLUMNS, spark_ddl

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

NAME: Final = "kraftlog"
SPAN_ROWS_MAX: Final = 262_144
"""A larger file is read as several partitions, in parallel."""

_BATCH_ROWS: Final = 65_536


@dataclass
class Span(InputPartition):
    """A part of one file: the rows of the offsets from `start_offset` to `end_offset` (exclusive)."""

    file: str
    start_offset: int
    end_offset: int


class KraftlogDataSource(DataSource):
    """The exported log as a table, one row per record (columns in `kraftlog.analytics.schema`)."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(…)`."""
        return NAME

    def schema(self) -> str:
        """All columns, for a query that names none."""
        return spark_ddl()

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns in `schema`."""
        return ExportReader(dict(self.options), schema)


class ExportReader(DataSourceReader):
    """Plans one span of offsets per partition, and reads it."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options = parse_options(options)
        _check_columns(schema)
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """The spans that make up the range. Spark asks once for each DataFrame."""
        directory = Path(self._options.path)
        manifest = read_manifest(directory)
        start, end = resolve_range(self._options, manifest)
        return [span for file in manifest.files for span in _spans(directory, file, start, end)]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """The rows of one span as Arrow batches with exactly the schema that Spark expects."""
        if not isinstance(partition, Span):  # Spark makes up a partition if there is none
            return
        import pyarrow.parquet as pq
        from pyspark.sql.pandas.types import to_arrow_schema

        wanted = to_arrow_schema(self._schema, timezone="UTC")
        with pq.ParquetFile(partition.file) as file:
            present = set(file.schema_arrow.names)
            columns = [name for name in dict.fromkeys([*wanted.names, "offset"]) if name in present]
            groups = _row_groups(file, partition)
            for batch in file.iter_batches(_BATCH_ROWS, row_groups=groups, columns=columns):
                rows = _within(batch, partition)
                if rows.num_rows:
                    yield _shaped(rows, wanted)


def _check_columns(schema: StructType) -> None:
    types = {column.name: column.spark_type.lower() for column in COLUMNS}
    for field in schema.fields:
        expected = types.get(field.name)
        if expected is None:
            raise ConfigurationError(f"there is no column {field.name!r}; the columns are {', '.join(types)}")
        if field.dataType.simpleString() != expected:
            raise ConfigurationError(
                f"column {field.name!r} is {expected.upper()}, not {field.dataType.simpleString().upper()}; cast it"
            )


def _spans(directory: Path, file: ExportedFile, start: Offset, end: Offset) -> Iterator[Span]:
    """The parts of a file that lie in the range, none of them longer than SPAN_ROWS_MAX."""
    last = min(end, file.end_offset)
    for first in range(max(start, file.start_offset), last, SPAN_ROWS_MAX):
        yield Span(str(directory / file.name), first, min(first + SPAN_ROWS_MAX, last))


def _row_groups(file: pyarrow.parquet.ParquetFile, span: Span) -> list[int]:
    """The row groups with rows of the span, by their offsets in the file's footer."""
    column = file.schema_arrow.get_field_index("offset")
    found = []
    for group in range(file.num_row_groups):
        statistics = file.metadata.row_group(group).column(column).statistics
        if statistics is None or (statistics.max >= span.start_offset and statistics.min < span.end_offset):
            found.append(group)
    return found


def _within(batch: pyarrow.RecordBatch, span: Span) -> pyarrow.RecordBatch:
    """The rows of the batch that lie in the span. Offsets have no gaps, so their place follows from the first one."""
    base_offset: int = batch.column("offset")[0].as_py()
    first = max(span.start_offset - base_offset, 0)
    return batch.slice(first, max(min(span.end_offset - base_offset, batch.num_rows) - first, 0))


def _shaped(rows: pyarrow.RecordBatch, wanted: pyarrow.Schema) -> pyarrow.RecordBatch:
    """Return the rows with exactly the wanted columns; a column that an older file lacks is null."""
    import pyarrow as pa

    present = set(rows.schema.names)
    columns = [
        rows.column(field.name).cast(field.type) if field.name in present else pa.nulls(rows.num_rows, field.type)
        for field in wanted
    ]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)
