"""A snapshot that is sent to a reader outside the node, in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final

from kraftbase.errors import ApiError, ErrorCode, StorageError
from kraftbase.types import Offset
from kraftpb.v1 import log_pb2
from raft.commits import Snapshots, opened_latest
from raft.rpc import codec
from raft.rpc.limits import over_limit
from snapshot.reader import SnapshotReader

PIECE_SECONDS_MAX: Final = 60.0
"""How long the sending of one piece may take; then the file is closed, so that another reader gets the place."""


class SnapshotSender:
    """Opens the newest snapshot for readers, for a bounded number of them at a time."""

    def __init__(self, snapshots: Snapshots, snapshot_reads_max: int) -> None:
        self._snapshots = snapshots
        self._snapshot_reads_max = snapshot_reads_max
        self._count = 0
        """The number of snapshots that are being opened or sent."""

    @property
    def has_any(self) -> bool:
        """Whether a snapshot exists."""
        return self._snapshots.latest is not None

    @asynccontextmanager
    async def newest(self) -> AsyncGenerator[SentSnapshot | None]:
        """The newest whole snapshot; None if none exists. Raises ApiError if too many are being sent.

        The snapshot counts until it is closed, even if the reader leaves while it is being verified.
        """
        if self._count >= self._snapshot_reads_max:
            raise over_limit("snapshot_reads_max", self._snapshot_reads_max)
        self._count += 1
        opening = asyncio.ensure_future(self._opened())
        try:
            yield await asyncio.shield(opening)
        finally:
            opening.add_done_callback(_close)

    async def _opened(self) -> SentSnapshot | None:
        try:
            snapshot = await opened_latest(self._snapshots)
        except BaseException:
            self._end()
            raise
        if snapshot is None:
            self._end()
            return None
        return SentSnapshot(snapshot, self._end)

    def _end(self) -> None:
        self._count -= 1


def _close(opening: asyncio.Future[SentSnapshot | None]) -> None:
    sent = None if opening.cancelled() or opening.exception() is not None else opening.result()
    if sent is not None:
        sent.close()


class SentSnapshot:
    """An open and verified snapshot. Its bytes come from the page cache: they have just been read."""

    def __init__(self, snapshot: SnapshotReader, on_closed: Callable[[], None]) -> None:
        """`snapshot` is closed with this."""
        self._snapshot = snapshot
        self._on_closed = on_closed
        self._position = 0
        self._is_closed = False
        self._timer = asyncio.get_running_loop().call_later(PIECE_SECONDS_MAX, self.close)

    @property
    def is_done(self) -> bool:
        """Whether all pieces were sent."""
        return self._position >= self._snapshot.size_bytes

    @property
    def end_offset(self) -> Offset:
        """The offset after the last record that it covers."""
        return self._snapshot.snapshot_id.offset

    def next_piece(self, max_bytes: int) -> log_pb2.WatchResponse.SnapshotPiece:
        """The next piece. Raises ApiError if the previous one took too long, or the file cannot be read."""
        if self._is_closed:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"the reader did not read a piece of a snapshot within {PIECE_SECONDS_MAX:.0f} s; read faster",
            )
        self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(PIECE_SECONDS_MAX, self.close)
        try:
            data = self._snapshot.read_at(self._position, max_bytes)
        except StorageError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from None
        piece = log_pb2.WatchResponse.SnapshotPiece(
            snapshot_id=codec.point_to_proto(self._snapshot.snapshot_id),
            size_bytes=self._snapshot.size_bytes,
            position=self._position,
            data=data,
        )
        self._position += len(data)
        return piece

    def close(self) -> None:
        """Close the file."""
        self._timer.cancel()
        if not self._is_closed:
            self._is_closed = True
            self._snapshot.close()
            self._on_closed()
