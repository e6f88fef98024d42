"""What tests ask of an export's directory, without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from kraftbase.types import Offset
from kraftlog.analytics.manifest import verify
from kraftlog.analytics.rows import rows_of
from tests.kraftlog.analytics.logs import HandMadeLog


def exported_rows(directory: Path) -> list[dict]:
    """The rows of all listed files, in order; every byte of them is verified."""
    return [row for file in verify(directory).files for row in pq.ParquetFile(directory / file.name).read().to_pylist()]


def expected_rows(log: HandMadeLog) -> list[dict]:
    return rows_of(log.batches, Offset(log.log_start_offset), log.end_offset).to_pylist()


def unlisted_files(directory: Path) -> set[str]:
    """Files below the directory that are no part of the export."""
    listed = {file.name for file in verify(directory).files}
    found = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
    return {name for name in found - listed - {"_lock"} if not name.startswith("_manifest/0")}
