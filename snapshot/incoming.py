"""Receives one snapshot from another node, and checks it as it arrives (rules SN-10 to SN-13).

The bytes come in order, in pieces that begin and end anywhere. Every whole batch is checked at once, so that damage is
detected when it arrives, and a large snapshot need not be read again at the end.
"""

from __future__ import annotations

from kraftbase.files.files import FileSystem
from raft.core.types import OffsetAndEpoch
from raft.storage.batch import HEADER_BYTES
from snapshot.format import SnapshotChecks
from snapshot.writer import UnfinishedSnapshot


class IncomingSnapshot(UnfinishedSnapshot):
    """A snapshot that is being downloaded. From `freeze` on it is a whole and durable snapshot of the store.

    `size_bytes` is the next position to fetch (SN-12). Not for more than one thread. Holds less than one batch and one
    piece in memory.
    """

    def __init__(
        self, files: FileSystem, directory: str, snapshot_id: OffsetAndEpoch, cluster_id: str, token: str
    ) -> None:
        """Begin the file; `token` distinguishes it from other attempts. A snapshot of another cluster will be refused.

        Raises StorageError, such as OutOfSpace; then no file is left.
        """
        super().__init__(files, directory, snapshot_id, token)
        self._checks = SnapshotChecks(snapshot_id, f"the snapshot sent for {self.path}", cluster_id)
        self._incomplete = bytearray()
        """The first part of a batch whose end has not arrived."""

    def append(self, data: bytes) -> None:
        """Add the next bytes, any number of them.

        Raises CorruptSnapshot with the error and its position, or StorageError, such as OutOfSpace: then close the
        snapshot, and start over. It is an InvariantViolation after `freeze`, `close` or an error. Costs one write, and
        a CRC and a SHA-256 of each byte; a batch in many pieces costs no more than in one.
        """
        self._write(data)
        self._takes_more = False
        self._check(data)
        self._takes_more = True

    def freeze(self) -> None:
        """Make the file durable, and give it its name. Raises CorruptSnapshot if its end is missing.

        Otherwise raises as `append` does.
        """
        self._begin_change()
        self._checks.finish(self._size_bytes)
        self._freeze()

    def _check(self, data: bytes) -> None:
        self._incomplete += data
        position = 0
        while self._checks.digest is None:
            byte_count = self._checks.next_batch_bytes(self._held(position, HEADER_BYTES))
            if byte_count is None or position + byte_count > len(self._incomplete):
                break
            self._checks.take(self._held(position, byte_count))
            position += byte_count
        else:
            self._checks.finish(self._size_bytes)
        del self._incomplete[:position]  # once for all batches: each call may move the remaining bytes

    def _held(self, position: int, byte_count: int) -> bytes:
        return bytes(memoryview(self._incomplete)[position : position + byte_count])
