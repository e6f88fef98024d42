"""The export: it writes committed records to immutable Parquet files, each offset once, also across crashes.

One step writes one file and then publishes a manifest that lists it. An export that dies between the two leaves a file
that is not listed; the next export removes this file and continues where the last manifest ends. A file never mixes
epochs, and holds whole batches: it is closed at the first batch boundary at or after `rows_per_file` rows.

Memory is bounded by one row group. Encoding, compression and fsync run in a thread, so that the event loop stays free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Epoch, Offset
from kraftlog.analytics.dependencies import require_pyarrow
from kraftlog.analytics.directory import ExportDirectory
from kraftlog.analytics.files import ExportFiles, PosixFiles
from kraftlog.analytics.manifest import ExportedFile, Manifest
from kraftlog.analytics.source import CommittedSource, GrpcSource, LogDescription
from kraftlog.analytics.writer import RangeWriter
from raft.core.types import Batch

ROWS_PER_FILE: Final = 1_000_000
ROW_GROUP_ROWS: Final = 65_536
ROW_GROUP_BYTES: Final = 32 * 1024 * 1024
"""A row group is written when the queued batches have this many rows or bytes."""

Progress = Callable[[Offset, Offset], None]
"""Called after each file with the offset that the export has reached, and the offset at which it will end."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """What one run of the export added: the offsets from `start_offset` to `end_offset` (exclusive)."""

    start_offset: Offset
    end_offset: Offset
    rows: int
    files: int
    manifest_version: int


async def export_from(
    address: str | Sequence[Endpoint],
    directory: Path | str,
    *,
    cluster_id: str | None = None,
    rows_per_file: int = ROWS_PER_FILE,
    progress: Progress | None = None,
) -> ExportSummary:
    """Export the committed records of a running cluster; see `export`. `address` is "host:port", or endpoints to try.

    Raises what `export` raises, and ApiError(BROKER_NOT_AVAILABLE) if no node answers.
    """
    source = GrpcSource(address, cluster_id=cluster_id)
    return await export(source, Path(directory), rows_per_file=rows_per_file, progress=progress)


async def export(
    source: CommittedSource,
    directory: Path,
    *,
    rows_per_file: int = ROWS_PER_FILE,
    progress: Progress | None = None,
    files: ExportFiles | None = None,
) -> ExportSummary:
    """Export everything from the end of the directory's last export up to the current high watermark.

    Raises ApiError(INCONSISTENT_CLUSTER_ID) if the directory holds another cluster's export,
    ApiError(OFFSET_OUT_OF_RANGE) if the next offset is no longer in the log, ApiError(LEADER_NOT_AVAILABLE) after the
    export if more may be committed than the nodes that answer know; DirectoryError if the directory is not an export's
    or another export is writing to it, StorageError if it cannot be written. Files that are published stay.
    """
    require_pyarrow()
    if rows_per_file < 1:
        raise ValueError(f"rows_per_file must be at least 1, not {rows_per_file}")
    log = await source.describe()
    if log.high_watermark < 0:
        raise ApiError(
            ErrorCode.LEADER_NOT_AVAILABLE,
            "the node does not know the high watermark yet; try again when there is a leader",
        )
    with ExportDirectory(files or PosixFiles(), directory) as target:
        manifest = target.manifest
        if manifest is not None:
            _check_continues(manifest, log, directory)
        summary = await _Run(source, target, log, rows_per_file, progress).run()
    if not log.is_level:
        raise ApiError(
            ErrorCode.LEADER_NOT_AVAILABLE,
            f"everything below offset {summary.end_offset} is exported, and more may be committed: no node that answers"
            " is level with a leader; export again when one is",
        )
    return summary


def _check_continues(manifest: Manifest, log: LogDescription, directory: Path) -> None:
    if log.cluster_id != manifest.cluster_id:
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"{directory} holds an export of cluster {manifest.cluster_id}, this is cluster {log.cluster_id};"
            " export to another directory",
        )
    if log.log_start_offset > manifest.end_offset:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"the export in {directory} ends at offset {manifest.end_offset}, the log now starts at"
            f" {log.log_start_offset}: the records in between are deleted. Keep this export"
            " and start another in an empty directory",
        )


class _Run:
    """One run: divides the batches, in order, into files and publishes each file."""

    def __init__(
        self,
        source: CommittedSource,
        target: ExportDirectory,
        log: LogDescription,
        rows_per_file: int,
        progress: Progress | None,
    ) -> None:
        before = target.manifest or Manifest(
            version=0,
            cluster_id=log.cluster_id,
            start_offset=log.log_start_offset,
            log_start_offset=log.log_start_offset,
            high_watermark=log.high_watermark,
        )
        self._source = source
        self._target = target
        self._manifest = replace(before, log_start_offset=log.log_start_offset, high_watermark=log.high_watermark)
        self._start_offset = before.end_offset
        self._next_offset = before.end_offset
        self._end_offset = max(log.high_watermark, before.end_offset)
        self._epoch = before.files[-1].epoch if before.files else Epoch(0)
        self._rows_per_file = rows_per_file
        self._progress = progress
        self._range: _OpenRange | None = None

    async def run(self) -> ExportSummary:
        """Export up to the end."""
        files_before = len(self._manifest.files)
        try:
            if self._next_offset < self._end_offset:
                await self._take_all()
            elif self._manifest.version == 0:
                await self._publish(replace(self._manifest, version=1))
        finally:
            if self._range is not None:
                await _in_thread(self._range.writer.abandon)
        return ExportSummary(
            start_offset=self._start_offset,
            end_offset=self._next_offset,
            rows=self._next_offset - self._start_offset,
            files=len(self._manifest.files) - files_before,
            manifest_version=self._manifest.version,
        )

    async def _take_all(self) -> None:
        async with aclosing(self._source.batches(self._start_offset, self._end_offset)) as batches:
            async for batch in batches:
                if self._next_offset == self._end_offset:
                    break
                self._check_follows(batch)
                await self._take(batch)
        await self._close_range()
        if self._next_offset != self._end_offset:
            raise ApiError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"the log ended at offset {self._next_offset} although {self._end_offset} is committed; export again",
            )

    async def _take(self, batch: Batch) -> None:
        current = self._range
        if current is not None and (batch.epoch != current.epoch or current.rows >= self._rows_per_file):
            await self._close_range()
            current = None
        if current is None:
            writer = await _in_thread(
                RangeWriter, self._target.files, self._target.path, self._next_offset, batch.epoch
            )
            current = self._range = _OpenRange(writer, batch.epoch)
        end_offset = min(batch.end_offset, self._end_offset)
        current.add(batch, end_offset - self._next_offset)
        self._next_offset = end_offset
        if current.is_row_group_full:
            await _in_thread(current.write_row_group, self._next_offset)

    async def _close_range(self) -> None:
        current = self._range
        if current is None:
            return
        file = await _in_thread(current.finish, self._next_offset)
        self._range = None
        await self._publish(self._manifest.with_file(file))
        if self._progress is not None:
            self._progress(self._next_offset, self._end_offset)

    async def _publish(self, manifest: Manifest) -> None:
        await _in_thread(self._target.publish, manifest)
        self._manifest = manifest

    def _check_follows(self, batch: Batch) -> None:
        """Refuse a batch that does not continue the log: an exported record cannot be taken back."""
        expected = self._next_offset
        holds_it = batch.base_offset <= expected < batch.end_offset
        if not holds_it or (batch.base_offset != expected and expected != self._start_offset):
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE,
                f"expected offset {expected}, received a batch from {batch.base_offset} to {batch.last_offset}",
            )
        if batch.epoch < self._epoch:
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE,
                f"offset {batch.base_offset} has epoch {batch.epoch}, but the exported records before it have epoch"
                f" {self._epoch}: this is not the log that the export started with; export to an empty directory",
            )
        self._epoch = batch.epoch


class _OpenRange:
    """The file that is being written, and the batches queued for its next row group."""

    def __init__(self, writer: RangeWriter, epoch: Epoch) -> None:
        self.writer = writer
        self.epoch = epoch
        self.rows = 0
        self._waiting: list[Batch] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0

    @property
    def is_row_group_full(self) -> bool:
        """Whether the queued batches fill a row group."""
        return self._waiting_rows >= ROW_GROUP_ROWS or self._waiting_bytes >= ROW_GROUP_BYTES

    def add(self, batch: Batch, rows: int) -> None:
        """Queue a batch for the next row group, which takes `rows` of its records."""
        self._waiting.append(batch)
        self._waiting_rows += rows
        self._waiting_bytes += len(batch.data)
        self.rows += rows

    def write_row_group(self, end_offset: Offset) -> None:
        """Write the queued batches, up to `end_offset` (exclusive)."""
        self.writer.write(self._waiting, end_offset)
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0

    def finish(self, end_offset: Offset) -> ExportedFile:
        """Write the queued batches and publish the file."""
        if self._waiting:
            self.write_row_group(end_offset)
        return self.writer.finish()


async def _in_thread(
    work: Callable[Parameters, Result], *arguments: Parameters.args, **options: Parameters.kwargs
) -> Result:
    """Run `work` in a thread. A cancelled caller still waits for it: until it ends, only it may touch the files."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *arguments, **options))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
