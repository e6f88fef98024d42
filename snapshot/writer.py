"""Writes one snapshot: append, freeze, close (rule SN-05)."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from types import TracebackType
from typing import Final, Self

from kraftbase.checks import check
from kraftbase.errors import StorageError
from kraftbase.files.files import FileSystem, join
from kraftbase.types import Offset
from raft.core.types import Batch, OffsetAndEpoch
from raft.core.voters import VoterSet
from raft.storage.batch import encode_batch
from snapshot.format import (
    BATCH_BYTES_MAX,
    SnapshotHeader,
    batch_epoch,
    digest_prefix,
    footer_batch,
    header_batch,
    voters_batch,
)
from snapshot.names import part_name, snapshot_name

FLUSH_BYTES: Final = 4 * 1024 * 1024
"""How many bytes are written between two syncs: a single sync at the end of a large file would delay the log's syncs on
the same disk.
"""


class UnfinishedSnapshot:
    """The file of a snapshot that has no name yet: one that is being made, or is being received (SN-05).

    Written from its beginning to its end. From the freeze on it is a whole and durable snapshot of the store.
    """

    def __init__(self, files: FileSystem, directory: str, snapshot_id: OffsetAndEpoch, token: str) -> None:
        """Begin the file; `token` distinguishes it from other attempts. Raises StorageError; then no file is left."""
        self.snapshot_id = snapshot_id
        self._files = files
        self._directory = directory
        self.path = join(directory, snapshot_name(snapshot_id))
        """The path of the snapshot once it is frozen."""
        self._part_path = join(directory, part_name(snapshot_id, token))
        self._size_bytes = 0
        self._flushed_bytes = 0
        self._is_frozen = False
        self._file = files.open(self._part_path, create=True)
        self._is_open = True
        self._takes_more = True
        """False after a freeze, `close`, or a failed write that may have left a part."""

    @property
    def size_bytes(self) -> int:
        """How many bytes are written."""
        return self._size_bytes

    @property
    def is_frozen(self) -> bool:
        """Whether it is frozen: a snapshot of the store."""
        return self._is_frozen

    def close(self) -> None:
        """Close the file, and delete it if it was not frozen (SN-05); closing twice changes nothing."""
        if not self._is_open:
            return
        self._is_open = self._takes_more = False
        self._file.close()
        if not self._is_frozen:
            with suppress(StorageError):  # the next start removes it
                self._files.remove(self._part_path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin_change(self) -> None:
        """Begin a change: until it is done, no other change may begin."""
        check(self._takes_more, "a snapshot accepts writes until it is frozen, closed or failed", path=self.path)
        self._takes_more = False

    def _write(self, data: bytes) -> None:
        self._begin_change()
        self._file.write_at(self._size_bytes, data)
        self._size_bytes += len(data)
        if self._size_bytes - self._flushed_bytes >= FLUSH_BYTES:
            self._file.fdatasync()
            self._flushed_bytes = self._size_bytes
        self._takes_more = True

    def _freeze(self) -> None:
        self._takes_more = False
        self._file.make_read_only()
        self._file.fsync()
        is_first = not self._files.exists(self.path)
        self._files.rename(self._part_path, self.path)
        try:
            self._files.fsync_directory(self._directory)
        except BaseException:
            # Its name may not be durable, and a later sync that succeeds does not prove that it is: the snapshot must
            # not be used, neither now nor after the next start. A snapshot that existed before was durable.
            if is_first:
                with suppress(StorageError):
                    self._files.remove(self.path)
            raise
        self._is_frozen = True


class SnapshotWriter(UnfinishedSnapshot):
    """A snapshot that is being made. From `freeze` on it is a whole and durable snapshot of the store."""

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        snapshot_id: OffsetAndEpoch,
        header: SnapshotHeader,
        token: str,
        voters: VoterSet | None = None,
    ) -> None:
        """Begin the file; `token` distinguishes it from other attempts. Raises StorageError; then no file is left.

        It contains `voters`, with their directory ids, if they are given.
        """
        super().__init__(files, directory, snapshot_id, token)
        self._header = header
        self._digest = sha256(digest_prefix(snapshot_id))
        self._end_offset = Offset(0)
        try:
            self._write_batch(header_batch(snapshot_id, header))
            if voters is not None:
                self._write_batch(voters_batch(snapshot_id, header, voters))
        except BaseException:
            self.close()
            raise

    def append(self, body: bytes, record_count: int) -> None:
        """Add one data batch: an encoded `kraftpb.v1.BatchBody` with `record_count` records, at least one.

        Raises StorageError, such as OutOfSpace: then close the writer, the snapshot cannot be made. It is an
        InvariantViolation after `freeze`, `close` or an error.
        """
        batch = encode_batch(
            self._end_offset,
            batch_epoch(self.snapshot_id),
            body,
            record_count,
            self._header.last_contained_log_timestamp_ms,
        )
        self._write_batch(batch)

    def freeze(self) -> None:
        """Write the footer, make the file durable, and give it its name. Raises as `append` does."""
        self._write_batch(footer_batch(self._end_offset, self.snapshot_id, self._header, self._digest.digest()))
        self._freeze()

    def _write_batch(self, batch: Batch) -> None:
        size = len(batch.data)
        check(size <= BATCH_BYTES_MAX, "a snapshot accepts batches of bounded size", path=self.path, size=size)
        self._write(batch.data)
        self._digest.update(batch.data)
        self._end_offset = batch.end_offset
