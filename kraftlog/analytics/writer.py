"""Writes one Parquet file of an export: row group by row group under a temporary name, and then publishes it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kraftbase.types import Epoch, Offset
from kraftlog.analytics.files import TEMPORARY_PREFIX, ExportFiles, publish, storage_errors
from kraftlog.analytics.manifest import LOG_DIRECTORY, ExportedFile, checksum, file_name
from kraftlog.analytics.rows import rows_of
from kraftlog.analytics.schema import SCHEMA_VERSION, arrow_schema
from raft.core.types import Batch
from raft.storage.batch import batch_timestamp

if TYPE_CHECKING:
    import pyarrow.parquet

_PARQUET_OPTIONS: Final[dict[str, Any]] = {"compression": "zstd", "version": "2.6", "store_schema": True}
_LATEST_MS: Final = 2**63 - 1


class RangeWriter:
    """A file that grows by row groups. `finish` publishes it; `abandon` removes it. One of them must be called.

    All calls may take long: they encode and compress, and `finish` syncs. Only one thread may call it at a time.
    """

    def __init__(self, files: ExportFiles, directory: Path, start_offset: Offset, epoch: Epoch) -> None:
        self._files = files
        self._log_directory = directory / LOG_DIRECTORY
        self._temporary_path = self._log_directory / f"{TEMPORARY_PREFIX}{start_offset:020}-{epoch}.parquet"
        self._start_offset = start_offset
        self._end_offset = start_offset
        self._epoch = epoch
        self._min_timestamp_ms = _LATEST_MS
        self._max_timestamp_ms = 0
        self._file = files.create(self._temporary_path)
        self._parquet: pyarrow.parquet.ParquetWriter | None = None

    def write(self, batches: Sequence[Batch], end_offset: Offset) -> None:
        """Write the records of these batches up to `end_offset` (exclusive) as a row group."""
        rows = rows_of(batches, self._end_offset, end_offset)
        times_ms = [batch_timestamp(batch) for batch in batches]
        self._min_timestamp_ms = min(self._min_timestamp_ms, *times_ms)
        self._max_timestamp_ms = max(self._max_timestamp_ms, *times_ms)
        with storage_errors(self._temporary_path, "write"):
            if self._parquet is None:
                import pyarrow.parquet as pq

                self._parquet = pq.ParquetWriter(self._file, arrow_schema(), **_PARQUET_OPTIONS)
            self._parquet.write_batch(rows)
        self._end_offset = end_offset

    def finish(self) -> ExportedFile:
        """Publish the file. At least one row group must have been written."""
        if self._parquet is None:
            raise ValueError("a range without rows is not published")
        with storage_errors(self._temporary_path, "write"):
            self._parquet.close()
            self._files.flush(self._file)
            self._file.close()
        size, crc = checksum(self._temporary_path)
        name = file_name(self._start_offset, self._end_offset, self._epoch)
        publish(self._files, self._temporary_path, self._log_directory / name)
        return ExportedFile(
            start_offset=self._start_offset,
            end_offset=self._end_offset,
            epoch=self._epoch,
            rows=self._end_offset - self._start_offset,
            bytes=size,
            crc32c=crc,
            schema_version=SCHEMA_VERSION,
            min_timestamp_ms=self._min_timestamp_ms,
            max_timestamp_ms=self._max_timestamp_ms,
        )

    def abandon(self) -> None:
        """Remove the unfinished file. If that fails, the next export does it."""
        with suppress(OSError, ValueError):
            if self._parquet is not None:
                self._parquet.close()
        with suppress(OSError):
            self._file.close()
        self._files.remove(self._temporary_path)
