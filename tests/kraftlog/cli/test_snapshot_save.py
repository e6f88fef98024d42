"""`kraftlog snapshot save` from nodes that do not send what they should, and to disks that fail."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode, FlushFailed, StorageError
from kraftbase.files.posix import PosixFileSystem
from kraftlog.admin.client.connection import connection_error
from kraftlog.commands import snapshots
from kraftpb.v1 import log_pb2_grpc, snapshot_pb2, snapshot_pb2_grpc
from kraftpb.v1.common_pb2 import EpochEndOffset
from raft.core.types import OffsetAndEpoch
from snapshot.names import snapshot_name
from tests.kraftlog.analytics.logs import LogServicer, small_log
from tests.kraftlog.command_line import command, environment, kraftlog
from tests.kraftlog.node_directories import contents, make_node_with_snapshot, only_snapshot
from tests.snapshot.builders import an_id
from tests.statemachine.waiting import until

NOWHERE = Endpoint("127.0.0.1", 1)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The data directory of a node that was stopped and has a snapshot."""
    return make_node_with_snapshot(tmp_path / "node")


@pytest.fixture
def snapshot(node: Path) -> Path:
    return only_snapshot(node)


class ScriptedServicer(snapshot_pb2_grpc.SnapshotServiceServicer):
    """Sends these pieces, and then perhaps breaks off, or falls silent."""

    def __init__(
        self,
        pieces: Sequence[snapshot_pb2.ReadSnapshotResponse],
        breaks: tuple[grpc.StatusCode, str] | None = None,
        *,
        falls_silent: bool = False,
    ) -> None:
        self.pieces = pieces
        self.breaks = breaks
        self.falls_silent = falls_silent

    async def ReadSnapshot(self, request, context):
        for piece in self.pieces:
            yield piece
        if self.falls_silent:
            await asyncio.Event().wait()
        if self.breaks is not None:
            await context.abort(*self.breaks)

    async def CreateSnapshot(self, request, context):
        trailer = (("kraftlog-error", "no number"), ("kraftlog-error", str(int(ErrorCode.KAFKA_STORAGE_ERROR))))
        await context.abort(grpc.StatusCode.INTERNAL, "there is no room", trailing_metadata=trailer)


@asynccontextmanager
async def serving(servicer: ScriptedServicer) -> AsyncIterator[tuple[Endpoint]]:
    server = grpc.aio.server()
    log_pb2_grpc.add_LogServiceServicer_to_server(LogServicer(small_log()), server)
    snapshot_pb2_grpc.add_SnapshotServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield (Endpoint("127.0.0.1", port),)
    finally:
        await server.stop(grace=None)


def cut(data: bytes, snapshot_id: OffsetAndEpoch, piece_bytes: int = 100) -> list[snapshot_pb2.ReadSnapshotResponse]:
    """A snapshot as a node sends it."""
    return [
        snapshot_pb2.ReadSnapshotResponse(
            snapshot_id=EpochEndOffset(epoch=snapshot_id.epoch, end_offset=snapshot_id.offset),
            size_bytes=len(data),
            position=position,
            data=data[position : position + piece_bytes],
        )
        for position in range(0, len(data), piece_bytes)
    ]


def nothing(received: int, total: int) -> None:
    """No bar."""


async def refused(servicer: ScriptedServicer, to: Path, wanted: OffsetAndEpoch | None = None) -> ApiError:
    """What came of it, which left nothing behind."""
    before = contents(to)
    async with serving(servicer) as nodes:
        with pytest.raises(ApiError) as raised:
            await snapshots.save(nodes, to, wanted, nothing)
    assert {name: data for name, (data, _) in contents(to).items()} == {
        name: data for name, (data, _) in before.items()
    }
    return raised.value


@pytest.fixture
def to(tmp_path: Path) -> Path:
    """Where copies go."""
    (tmp_path / "to").mkdir()
    return tmp_path / "to"


@pytest.fixture
def pieces(snapshot: Path) -> list[snapshot_pb2.ReadSnapshotResponse]:
    """The snapshot as a node sends it, which is not its newest one's name."""
    return cut(snapshot.read_bytes(), an_id(30, 3))


async def test_a_snapshot_comes_in_pieces(to: Path, snapshot: Path, pieces) -> None:
    told = []
    async with serving(ScriptedServicer(pieces)) as nodes:
        saved = await snapshots.save(nodes, to, None, lambda received, total: told.append((received, total)))
    size = snapshot.stat().st_size
    assert told == [(min(end, size), size) for end in range(100, size + 100, 100)]
    assert (to / snapshot.name).read_bytes() == snapshot.read_bytes()
    assert (to / snapshot.name).stat().st_mode & 0o777 == 0o600
    assert saved["SizeBytes"] == size


async def test_one_that_was_saved_already_is_described_again_and_a_damaged_one_is_not(
    to: Path, snapshot: Path, pieces
) -> None:
    async with serving(ScriptedServicer(pieces)) as nodes:
        saved = await snapshots.save(nodes, to, None, nothing)
        before = contents(to)
        assert await snapshots.save(nodes, to, None, nothing) == saved
        assert await snapshots.save(nodes, to, an_id(30, 3), nothing) == saved
        assert contents(to) == before
        copy = to / snapshot.name
        copy.write_bytes(copy.read_bytes()[:-1])
        for wanted in (None, an_id(30, 3)):
            with pytest.raises(StorageError, match="already exists, is not a whole snapshot"):
                await snapshots.save(nodes, to, wanted, nothing)


async def test_a_break_leaves_nothing(to: Path, pieces) -> None:
    lost = await refused(ScriptedServicer(pieces[:2], (grpc.StatusCode.UNAVAILABLE, "going away")), to)
    assert lost.code is ErrorCode.BROKER_NOT_AVAILABLE
    short = await refused(ScriptedServicer(pieces[:2]), to)
    assert (short.code, "it sent 200 of" in str(short)) == (ErrorCode.CORRUPT_MESSAGE, True)


async def test_a_silent_node_is_given_up(to: Path, pieces, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "SILENCE_SECONDS_MAX", 0.2)
    silent = await refused(ScriptedServicer(pieces[:2], falls_silent=True), to)
    assert (silent.code, "has stopped sending" in str(silent)) == (ErrorCode.REQUEST_TIMED_OUT, True)


async def test_a_copy_that_is_interrupted_leaves_nothing(to: Path, pieces) -> None:
    begun = asyncio.Event()
    async with serving(ScriptedServicer(pieces[:1], falls_silent=True)) as nodes:
        saving = asyncio.create_task(snapshots.save(nodes, to, None, lambda *_: begun.set()))
        await begun.wait()
        (part,) = to.iterdir()
        assert part.name.startswith(snapshot_name(an_id(30, 3)).removesuffix(".checkpoint"))
        saving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await saving
    assert list(to.iterdir()) == []


@pytest.mark.process
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
async def test_a_signal_leaves_nothing(to: Path, pieces, number: signal.Signals, code: int) -> None:
    async with serving(ScriptedServicer(pieces[:2], falls_silent=True)) as (endpoint,):
        line = command("snapshot", "save", "--to", to, "--bootstrap-server", endpoint)
        saving = await asyncio.create_subprocess_exec(*line, env=environment(), stderr=subprocess.PIPE)
        await until(lambda: any(to.iterdir()))
        saving.send_signal(number)
        _, errors = await saving.communicate()
    assert (saving.returncode, b"Traceback" in errors) == (code, False)
    assert list(to.iterdir()) == []


async def test_pieces_that_do_not_go_together_are_refused(to: Path, snapshot: Path, pieces) -> None:
    first, second, *rest = pieces
    other = cut(snapshot.read_bytes(), an_id(31, 3))[1]
    empty = snapshot_pb2.ReadSnapshotResponse(
        snapshot_id=first.snapshot_id, size_bytes=first.size_bytes, position=second.position
    )
    too_long = cut(snapshot.read_bytes() + b"more", an_id(30, 3))[-1]
    for sent, words in (
        ([], "it sent a different snapshot"),
        ([second], "do not continue at byte 0"),
        ([first, first], "do not continue at byte 100"),
        ([first, *rest], "do not continue at byte 100"),
        ([first, other], "do not continue at byte 100"),
        ([first, empty], "do not continue at byte 100"),
        ([*pieces[:-1], too_long], "do not continue at byte"),
    ):
        error = await refused(ScriptedServicer(sent), to)
        assert error.code is ErrorCode.CORRUPT_MESSAGE
        assert words in str(error)
    error = await refused(ScriptedServicer(pieces), to, an_id(7, 1))
    assert "it sent a different snapshot from the one requested" in str(error)


async def test_a_copy_that_is_not_whole_is_not_kept(to: Path, snapshot: Path) -> None:
    data = bytearray(snapshot.read_bytes())
    data[-1] ^= 1
    error = await refused(ScriptedServicer(cut(bytes(data), an_id(30, 3))), to)
    assert (error.code, "its CRC does not match" in str(error)) == (ErrorCode.CORRUPT_MESSAGE, True)
    error = await refused(ScriptedServicer(cut(snapshot.read_bytes(), an_id(30, 4))), to)
    assert (error.code, "not 0 and 4" in str(error)) == (ErrorCode.CORRUPT_MESSAGE, True)


async def test_a_file_that_comes_while_it_is_copied_stays(to: Path, snapshot: Path, pieces) -> None:
    rival = to / snapshot.name

    def come(received: int, total: int) -> None:
        rival.write_bytes(b"another's")

    async with serving(ScriptedServicer(pieces)) as nodes:
        with pytest.raises(StorageError, match="already exists"):
            await snapshots.save(nodes, to, None, come)
    assert [(path, path.read_bytes()) for path in to.iterdir()] == [(rival, b"another's")]


@pytest.mark.parametrize(
    ("method", "error", "is_there"),
    [
        ("rename", StorageError("cannot rename"), False),
        ("fsync_directory", FlushFailed("fsync of the directory failed"), True),
    ],
)
async def test_a_disk_that_fails_is_one_line_and_leaves_no_half_of_it(
    to: Path, snapshot: Path, pieces, monkeypatch: pytest.MonkeyPatch, method: str, error: Exception, is_there: bool
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(PosixFileSystem, method, fail)
    async with serving(ScriptedServicer(pieces)) as nodes:
        with pytest.raises(StorageError, match=str(error)):
            await snapshots.save(nodes, to, None, nothing)
    assert [path.name for path in to.iterdir()] == [snapshot.name] * is_there


async def test_a_call_that_names_kafkas_error_is_told_by_it() -> None:
    async with serving(ScriptedServicer([])) as nodes:
        with pytest.raises(ApiError, match="says: there is no room") as raised:
            await snapshots.create(nodes)
        said = await asyncio.to_thread(kraftlog, "snapshot", "create", "--bootstrap-server", nodes[0])
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert said.is_error(ErrorCode.KAFKA_STORAGE_ERROR, f"{nodes[0]} says: there is no room")


def test_a_call_that_names_no_error_is_told_by_its_status() -> None:
    for trailer in ((), (("other", "41"),), (("kraftlog-error", "x"),), (("kraftlog-error", "1" * 5000),)):
        failed = grpc.aio.AioRpcError(
            grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(*trailer), details="gone"
        )
        assert connection_error(NOWHERE, failed).code is ErrorCode.BROKER_NOT_AVAILABLE
