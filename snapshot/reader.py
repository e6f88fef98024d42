"""Reads one snapshot and refuses a snapshot that is not whole (rules SN-04 to SN-06)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import NamedTuple, Self

from kraftbase.files.files import FileSystem
from raft.core.types import Batch, OffsetAndEpoch
from raft.core.voters import VoterSet
from raft.storage.batch import HEADER_BYTES
from snapshot.format import SnapshotChecks, SnapshotHeader, decode_header
from snapshot.names import id_of


class SnapshotSummary(NamedTuple):
    """The summary of a whole snapshot."""

    snapshot_id: OffsetAndEpoch
    header: SnapshotHeader
    size_bytes: int
    batch_count: int
    """Data batches."""
    record_count: int
    """Data records."""
    digest: bytes
    """SHA-256 of the name and of everything before the footer; equal on all nodes."""


class SnapshotReader:
    """An open snapshot. Not for more than one thread."""

    def __init__(self, files: FileSystem, path: str) -> None:
        """Open the file and read its header.

        Raises StorageError if it cannot be read or is not named like a snapshot, CorruptSnapshot if it has no header.
        """
        self.path = path
        self.snapshot_id = id_of(path)
        self._file = files.open_to_read(path)
        try:
            self.size_bytes = self._file.size()
            self.header = decode_header(self._next(self._checks()))
        except BaseException:
            self._file.close()
            raise

    def batches(self, progress: Callable[[int, int], None] | None = None) -> Iterator[Batch]:
        """The data batches in order. Raises CorruptSnapshot where one is damaged, at the end if something is missing.

        Batches before an error must not be trusted: use `verify` first, or keep nothing until the last batch.
        `progress` is called after each batch with the number of bytes read, and of all bytes.
        """
        checks = self._checks()
        for batch in self._walk(checks):
            if progress is not None:
                progress(checks.position, self.size_bytes)
            yield batch

    def verify(self) -> SnapshotSummary:
        """Read the whole snapshot and return a summary. Raises CorruptSnapshot with the error and its position."""
        batch_count = record_count = 0
        checks = self._checks()
        for batch in self._walk(checks):
            batch_count += 1
            record_count += batch.record_count
        digest = checks.finish(self.size_bytes)
        return SnapshotSummary(self.snapshot_id, self.header, self.size_bytes, batch_count, record_count, digest)

    def voters(self) -> VoterSet | None:
        """The voters, with their directory ids; None if it has none. Reads only the first batches."""
        checks = self._checks()
        self._next(checks)
        self._next(checks)
        return checks.voters

    def read_at(self, position: int, byte_count: int) -> bytes:
        """Raw bytes of the file, for a transfer (SN-10)."""
        return self._file.read_at(position, byte_count)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _walk(self, checks: SnapshotChecks) -> Iterator[Batch]:
        """The data batches; the iterator ends without an error only if the snapshot is whole."""
        self._next(checks)
        while checks.digest is None:
            batch = self._next(checks)
            if not batch.is_control:
                yield batch
        checks.finish(self.size_bytes)

    def _next(self, checks: SnapshotChecks) -> Batch:
        start = self._file.read_at(checks.position, HEADER_BYTES)
        if not start:
            checks.finish(checks.position)
        byte_count = checks.next_batch_bytes(start)
        if byte_count is not None:
            start += self._file.read_at(checks.position + HEADER_BYTES, byte_count - HEADER_BYTES)
        return checks.take(start)

    def _checks(self) -> SnapshotChecks:
        return SnapshotChecks(self.snapshot_id, f"the snapshot {self.path}")
