"""Reads one snapshot and refuses what is not whole (rules SN-04 to SN-06)."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from types import TracebackType
from typing import NamedTuple, Self

from raft.core.errors import CorruptSnapshot, ProtocolError
from raft.core.types import Batch, Offset, OffsetAndEpoch
from raft.storage.batch import HEADER, HEADER_BYTES, decode_batch
from raft.storage.files import FileSystem
from snapshot.format import BATCH_BYTES_MAX, SnapshotHeader, decode_footer, decode_header, digest_prefix
from snapshot.names import id_of


class SnapshotSummary(NamedTuple):
    """What a whole snapshot holds."""

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
        self._file = files.open(path)
        try:
            self.size_bytes = self._file.size()
            first = self._batch_at(0, Offset(0))
            try:
                self.header = decode_header(first)
            except CorruptSnapshot as error:
                raise self._corrupt(str(error)) from None
            self._first = first
        except BaseException:
            self._file.close()
            raise

    def batches(self) -> Iterator[Batch]:
        """The data batches in order. Raises CorruptSnapshot where something is wrong, at the end if something lacks.

        What came before an error must not be believed: use `verify` first, or keep nothing until the last batch.
        """
        for batch in self._walk():
            if not batch.is_control:
                yield batch

    def verify(self) -> SnapshotSummary:
        """Read all of it and tell what it holds. Raises CorruptSnapshot saying what is wrong and where."""
        batch_count = record_count = 0
        digest = b""
        for batch in self._walk():
            if batch.is_control:
                digest = self._footer(batch)
            else:
                batch_count += 1
                record_count += batch.record_count
        return SnapshotSummary(self.snapshot_id, self.header, self.size_bytes, batch_count, record_count, digest)

    def read_at(self, position: int, byte_count: int) -> bytes:
        """Bytes as they are, for whoever copies the file (SN-10)."""
        return self._file.read_at(position, byte_count)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _walk(self) -> Iterator[Batch]:
        """Every batch behind the header; the last one is the footer, whose digest is right."""
        digest = sha256(digest_prefix(self.snapshot_id) + self._first.data)
        position, end_offset = len(self._first.data), self._first.end_offset
        while True:
            batch = self._batch_at(position, end_offset)
            position += len(batch.data)
            end_offset = batch.end_offset
            if batch.is_control:
                break
            digest.update(batch.data)
            yield batch
        if self._footer(batch) != digest.digest():
            raise self._corrupt("its digest is not that of its name and content")
        if position != self.size_bytes:
            raise self._corrupt(f"{self.size_bytes - position} bytes follow its footer")
        yield batch

    def _footer(self, batch: Batch) -> bytes:
        try:
            return decode_footer(batch)
        except CorruptSnapshot as error:
            raise self._corrupt(str(error)) from None

    def _batch_at(self, position: int, base_offset: Offset) -> Batch:
        start = self._file.read_at(position, HEADER_BYTES)
        if not start:
            raise self._corrupt(f"it ends at byte {position} without a footer")
        if len(start) == HEADER_BYTES:
            length = HEADER.unpack(start)[1]
            if length > BATCH_BYTES_MAX:
                raise self._corrupt(f"the batch at byte {position} says that it has {length} bytes")
            start += self._file.read_at(position + HEADER_BYTES, max(0, length - HEADER_BYTES))
        try:
            batch = decode_batch(start)
        except ProtocolError as error:
            reason = error.args[0].partition(" is refused: ")[2]  # before it is where the batch begins in these bytes
            raise self._corrupt(f"from byte {position} on no batch follows: {reason}") from None
        if batch.base_offset != base_offset or batch.epoch != self.snapshot_id.epoch:
            raise self._corrupt(
                f"the batch at byte {position} has offset {batch.base_offset} and epoch {batch.epoch}, not"
                f" {base_offset} and {self.snapshot_id.epoch}"
            )
        return batch

    def _corrupt(self, reason: str) -> CorruptSnapshot:
        return CorruptSnapshot(f"the snapshot {self.path} is damaged: {reason}")
