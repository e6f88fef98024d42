"""Snapshots of running nodes: take one, list them, save one as a file on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import Any, Final, Self

import grpc.aio

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, CorruptSnapshot, ErrorCode, FlushFailed, StorageError
from kraftbase.files.posix import FILE_MODE, PosixFile, PosixFileSystem
from kraftbase.types import Epoch, Offset
from kraftlog.admin.client.connection import connect, first_that_answers
from kraftlog.admin.client.time_limit import allowed_seconds
from kraftlog.offline.snapshot_files import reason_of, snapshot_row
from kraftpb.v1 import snapshot_pb2, snapshot_pb2_grpc
from kraftpb.v1.common_pb2 import EpochEndOffset
from raft.core.types import OffsetAndEpoch
from snapshot.names import SUFFIX, id_of, part_name, snapshot_name
from snapshot.reader import SnapshotReader, SnapshotSummary

CREATE_TIMEOUT_SECONDS: Final = 120.0
LIST_TIMEOUT_SECONDS: Final = 30.0
SILENCE_SECONDS_MAX: Final = 120.0
"""How long a node may take before it sends the next piece: it reads the whole snapshot before the first byte."""

Progress = Callable[[int, int], None]
"""Called after each piece with the bytes received and the size of the snapshot."""
Pieces = grpc.aio.UnaryStreamCall[snapshot_pb2.ReadSnapshotRequest, snapshot_pb2.ReadSnapshotResponse]


async def create(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Have the first node that answers take a snapshot, and describe it. Raises ApiError."""
    endpoint = await first_that_answers(endpoints)
    async with connect(endpoint) as channel:
        stub = snapshot_pb2_grpc.SnapshotServiceStub(channel)
        taken = await stub.CreateSnapshot(
            snapshot_pb2.CreateSnapshotRequest(), timeout=allowed_seconds(CREATE_TIMEOUT_SECONDS)
        )
    return {"NodeId": taken.node_id, **_row(taken.snapshot), "IsNew": taken.is_new}


async def listing(endpoints: Sequence[Endpoint]) -> list[dict[str, Any]]:
    """One row per snapshot of the first node that answers, the oldest first. Raises ApiError."""
    endpoint = await first_that_answers(endpoints)
    async with connect(endpoint) as channel:
        stub = snapshot_pb2_grpc.SnapshotServiceStub(channel)
        listed = await stub.ListSnapshots(
            snapshot_pb2.ListSnapshotsRequest(), timeout=allowed_seconds(LIST_TIMEOUT_SECONDS)
        )
    return [{"NodeId": listed.node_id, **_row(snapshot)} for snapshot in listed.snapshots]


def _row(snapshot: snapshot_pb2.Snapshot) -> dict[str, Any]:
    return snapshot_row(
        _from_proto(snapshot.snapshot_id), snapshot.size_bytes, snapshot.last_contained_log_timestamp, snapshot.path
    )


def _from_proto(point: EpochEndOffset) -> OffsetAndEpoch:
    return OffsetAndEpoch(epoch=Epoch(point.epoch), offset=Offset(point.end_offset))


# --- saving one -------------------------------------------------------------------------------------------------------


async def save(
    endpoints: Sequence[Endpoint], target: Path, wanted: OffsetAndEpoch | None, progress: Progress
) -> dict[str, Any]:
    """Copy a snapshot of the first node that answers, the newest unless another one is `wanted`, and describe it. In a
    directory the copy keeps the snapshot's name; any other `target` must have the name of a snapshot, and so selects
    it. The copy is written under a temporary name in the same directory, and renamed after it was verified and is
    durable; if anything fails, nothing is left of it. An existing file is never replaced; if it is a whole copy of the
    snapshot, it is described, so that a job that saves the newest snapshot may run again. Raises ApiError,
    StorageError.
    """
    directory, wanted = _destination(target, wanted)
    if wanted is not None and (kept := _kept(directory / snapshot_name(wanted))) is not None:
        return kept
    endpoint = await first_that_answers(endpoints)
    async with connect(endpoint) as channel:
        pieces = snapshot_pb2_grpc.SnapshotServiceStub(channel).ReadSnapshot(_request(wanted))
        first = await _next(pieces, endpoint)
        if first is None or wanted not in (None, _from_proto(first.snapshot_id)):
            raise _broken(endpoint, "it sent a different snapshot from the one requested")
        if (kept := _kept(directory / snapshot_name(_from_proto(first.snapshot_id)))) is not None:
            pieces.cancel()
            return kept
        with _Copy(directory, _from_proto(first.snapshot_id)) as copy:
            await _receive(first, pieces, endpoint, copy, progress)
            try:
                summary = copy.keep()
            except CorruptSnapshot as error:
                raise _broken(endpoint, reason_of(error, copy.path)) from None
    return _saved(copy.path, summary)


def _saved(path: Path, summary: SnapshotSummary) -> dict[str, Any]:
    return {
        "Path": str(path),
        "EndOffset": summary.snapshot_id.offset,
        "Epoch": summary.snapshot_id.epoch,
        "SizeBytes": summary.size_bytes,
        "Records": summary.record_count,
        "Digest": summary.digest.hex(),
    }


def _kept(path: Path) -> dict[str, Any] | None:
    """The description of a copy that was saved earlier; None if there is none. Raises StorageError if something else
    has its name, or the copy is not whole.
    """
    if not path.exists() and not path.is_symlink():
        return None
    try:
        with SnapshotReader(PosixFileSystem(), str(path)) as reader:
            return _saved(path, reader.verify())
    except (CorruptSnapshot, StorageError) as error:
        raise StorageError(
            f"{path} already exists, is not a whole snapshot ({reason_of(error, path)}) and is left unchanged; move"
            " it, or name another directory"
        ) from None


async def save_present(endpoints: Sequence[Endpoint], directory: Path) -> Path:
    """Have the first node that answers take a snapshot of what it has applied, and copy it to `directory`.

    Raises ApiError, StorageError.
    """
    endpoint = await first_that_answers(endpoints)
    taken = await create([endpoint])
    wanted = OffsetAndEpoch(epoch=Epoch(taken["Epoch"]), offset=Offset(taken["EndOffset"]))
    saved = await save([endpoint], directory, wanted, lambda received, total: None)
    return Path(saved["Path"])


def _destination(target: Path, wanted: OffsetAndEpoch | None) -> tuple[Path, OffsetAndEpoch | None]:
    """The directory of the copy, and the id requested."""
    if target.is_dir():
        return target, wanted
    if not target.exists() and target.suffix != SUFFIX:
        raise StorageError(f"directory {target} does not exist; create it, or name another")
    named = id_of(str(target))
    if wanted is not None and wanted != named:
        raise StorageError(f"{target} is not the name of the snapshot, {snapshot_name(wanted)}; use that name")
    if not target.parent.is_dir():
        raise StorageError(f"directory {target.parent} does not exist; create it, or name another")
    return target.parent, named


def _refuse_existing(path: Path) -> None:
    if path.exists() or path.is_symlink():
        raise _exists(path)


def _exists(path: Path) -> StorageError:
    return StorageError(f"{path} already exists and is left unchanged; remove it, or name another directory")


def _request(wanted: OffsetAndEpoch | None) -> snapshot_pb2.ReadSnapshotRequest:
    if wanted is None:
        return snapshot_pb2.ReadSnapshotRequest()
    return snapshot_pb2.ReadSnapshotRequest(
        snapshot_id=EpochEndOffset(epoch=wanted.epoch, end_offset=wanted.offset),
    )


async def _receive(
    first: snapshot_pb2.ReadSnapshotResponse, pieces: Pieces, endpoint: Endpoint, copy: _Copy, progress: Progress
) -> None:
    """Write all pieces. Raises ApiError if the pieces do not fit together, or stop."""
    piece: snapshot_pb2.ReadSnapshotResponse | None = first
    received = 0
    while piece is not None:
        is_next = piece.data and piece.position == received and piece.snapshot_id == first.snapshot_id
        if not is_next or received + len(piece.data) > first.size_bytes:
            raise _broken(endpoint, f"its pieces do not continue at byte {received} of {first.size_bytes}")
        copy.write(received, piece.data)
        received += len(piece.data)
        progress(received, first.size_bytes)
        piece = await _next(pieces, endpoint)
    if received != first.size_bytes:
        raise _broken(endpoint, f"it sent {received} of {first.size_bytes} bytes")


async def _next(pieces: Pieces, endpoint: Endpoint) -> snapshot_pb2.ReadSnapshotResponse | None:
    """The next piece, None after the last."""
    try:
        async with asyncio.timeout(allowed_seconds(SILENCE_SECONDS_MAX)):
            piece = await pieces.read()
    except TimeoutError:
        raise ApiError(
            ErrorCode.REQUEST_TIMED_OUT, f"{endpoint} has stopped sending; check the node, and try again"
        ) from None
    return piece if isinstance(piece, snapshot_pb2.ReadSnapshotResponse) else None


def _broken(endpoint: Endpoint, reason: str) -> ApiError:
    return ApiError(
        ErrorCode.CORRUPT_MESSAGE, f"no snapshot was received from {endpoint}: {reason}; try again, or ask another node"
    )


class _Copy:
    """A snapshot that is being received, under a temporary name; nothing is left of it unless it is kept."""

    def __init__(self, directory: Path, snapshot_id: OffsetAndEpoch) -> None:
        """Create the file. Raises StorageError, such as for a snapshot that exists already."""
        self.path = directory / snapshot_name(snapshot_id)
        _refuse_existing(self.path)
        self._directory = directory
        self._part_path = str(directory / part_name(snapshot_id, token_hex(8)))
        self._files = PosixFileSystem()
        self._file = self._files.open(self._part_path, create=True)
        self._is_kept = False

    def write(self, position: int, data: bytes) -> None:
        """Write the bytes at their position. Raises StorageError."""
        self._file.write_at(position, data)

    def keep(self) -> SnapshotSummary:
        """Verify all of the snapshot, make it durable, and rename it. Raises CorruptSnapshot, or StorageError."""
        with SnapshotReader(_Received(str(self.path), self._part_path), str(self.path)) as reader:
            summary = reader.verify()
        try:
            self._file.fsync()
            self._rename()
            self._files.fsync_directory(str(self._directory))
        except FlushFailed as error:  # this is a copy: no acknowledged record depends on it
            raise StorageError(f"{error}; check the disk") from None
        return summary

    def _rename(self) -> None:
        """Rename the file. Creating an empty file first protects an existing file of that name, whichever process made
        it.
        """
        try:
            self.path.touch(mode=FILE_MODE, exist_ok=False)
        except FileExistsError:
            raise _exists(self.path) from None
        try:
            self._files.rename(self._part_path, str(self.path))
        except BaseException:
            self.path.unlink()
            raise
        self._is_kept = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if not self._is_kept:
            with suppress(StorageError):
                self._files.remove(self._part_path)


class _Received(PosixFileSystem):
    """Presents the file under its final name: a reader takes the snapshot's id from the name."""

    def __init__(self, path: str, part_path: str) -> None:
        self._path = path
        self._part_path = part_path

    def open_to_read(self, path: str) -> PosixFile:
        """Open a file for reading. Raises StorageError."""
        return super().open_to_read(self._part_path if path == self._path else path)
