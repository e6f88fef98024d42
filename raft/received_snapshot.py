"""A snapshot that a node sends to a reader outside it: written to a temporary file, checked as it arrives."""

from __future__ import annotations

import asyncio
import tempfile
from types import TracebackType
from typing import Self

from kraftbase.errors import CorruptSnapshot, FlushFailed, StorageError
from kraftbase.files.posix import PosixFileSystem
from kraftpb.v1 import log_pb2
from raft.rpc import codec
from snapshot.incoming import IncomingSnapshot
from snapshot.reader import SnapshotReader

Piece = log_pb2.WatchResponse.SnapshotPiece


class SnapshotReceiver:
    """Receives the snapshots of one stream, one after the other. Closing it deletes its files."""

    def __init__(self, cluster_id: str) -> None:
        """Snapshots of any other cluster are refused."""
        self._cluster_id = cluster_id
        self._files = PosixFileSystem()
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._incoming: IncomingSnapshot | None = None

    async def take(self, piece: Piece) -> SnapshotReader | None:
        """Add the next piece. The last piece returns the whole snapshot, which the caller closes before the next one.

        Raises CorruptSnapshot if the pieces form no snapshot of this cluster, StorageError if the temporary directory
        has no room for it.
        """
        return await asyncio.to_thread(self._take, piece)

    def _take(self, piece: Piece) -> SnapshotReader | None:
        if piece.position == 0:
            self._begin(piece)
        incoming = self._incoming
        snapshot_id = codec.point_from_proto(piece.snapshot_id)
        if incoming is None or (piece.position, snapshot_id) != (incoming.size_bytes, incoming.snapshot_id):
            raise CorruptSnapshot(f"a piece of snapshot {snapshot_id} from byte {piece.position} on is out of order")
        if not piece.data or piece.position + len(piece.data) > piece.size_bytes:
            raise CorruptSnapshot(f"invalid piece of {len(piece.data)} bytes; the snapshot has {piece.size_bytes}")
        try:
            incoming.append(piece.data)
            if incoming.size_bytes < piece.size_bytes:
                return None
            incoming.freeze()
        except FlushFailed as error:  # the copy is temporary: it need not be durable
            raise StorageError(f"{error}; check the disk of temporary files") from None
        self._incoming = None
        return SnapshotReader(self._files, incoming.path)

    def _begin(self, piece: Piece) -> None:
        snapshot_id = codec.point_from_proto(piece.snapshot_id)
        if snapshot_id.offset <= 0 or snapshot_id.epoch < 0:
            raise CorruptSnapshot(f"a snapshot cannot end at {snapshot_id.offset}, epoch {snapshot_id.epoch}")
        self.close()
        self._directory = tempfile.TemporaryDirectory(prefix="kraftlog-")
        self._incoming = IncomingSnapshot(self._files, self._directory.name, snapshot_id, self._cluster_id, "0")

    def close(self) -> None:
        """Remove the files."""
        incoming, self._incoming = self._incoming, None
        directory, self._directory = self._directory, None
        if incoming is not None:
            incoming.close()
        if directory is not None:
            directory.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
