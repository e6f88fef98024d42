"""`watch`, `export` and `report` on a log that no healthy cluster has, and on an export that lacks a file."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ErrorCode
from kraftbase.sentinels import NO_LEADER
from kraftlog.cli.look.log import _watch
from kraftpb.v1 import common_pb2, log_pb2
from tests.kraftlog.analytics.logs import LogServicer, serving, small_log
from tests.kraftlog.command_line import Finished, Run, kraftlog

pytestmark = pytest.mark.process


async def ask(servicer: LogServicer, *arguments: object) -> Finished:
    """Run a command in a process of its own, against a node that serves what the servicer has."""
    async with serving(servicer) as endpoint:
        return await asyncio.to_thread(kraftlog, *arguments, "--bootstrap-server", endpoint)


async def test_watching_from_an_offset_that_is_gone_is_one_line() -> None:
    said = await ask(LogServicer(small_log().from_offset(8)), "watch", "--from", 3)
    assert said.is_error(ErrorCode.OFFSET_OUT_OF_RANGE, "--from earliest")


async def test_watching_begins_where_the_log_starts() -> None:
    log = small_log().from_offset(8)
    for earliest in ((), ("--from", "earliest")):
        said = await ask(LogServicer(log), "watch", *earliest, "--until", log.end_offset)
        assert [json.loads(line)["offset"] for line in said.lines()] == list(range(8, log.end_offset))


class FollowingServicer(LogServicer):
    """A node that leads, and has a record for a client that waits at the end of the log."""

    address: Endpoint | None = None

    async def DescribeNode(self, request, context):
        node = await super().DescribeNode(request, context)
        leader = common_pb2.Endpoint(host=self.address.host, port=self.address.port)
        node.replica_key.node_id = 1
        node.current_leader.CopyFrom(common_pb2.CurrentLeader(leader_id=1, leader_epoch=3, leader_endpoint=leader))
        return node

    async def Watch(self, request, context):
        while self.log.end_offset <= request.start_offset:
            self.log.append_bytes(b"")
        request.end_offset = self.log.end_offset
        await super().Watch(request, context)


async def follow(servicer: FollowingServicer, *arguments: object) -> Finished:
    async with serving(servicer) as servicer.address:
        return await asyncio.to_thread(kraftlog, "watch", *arguments, "--bootstrap-server", servicer.address)


async def test_watching_from_the_latest_record_on_shows_none_that_was_there() -> None:
    log = small_log()
    end_offset = log.end_offset
    said = await follow(FollowingServicer(log), "--from", "latest", "--limit", 1)
    assert [json.loads(line)["offset"] for line in said.lines()] == [end_offset]


@pytest.mark.parametrize("arguments", [("--from", "latest"), ("--limit", 1000)])
async def test_watching_ends_after_its_timeout_with_an_error(arguments: tuple[object, ...]) -> None:
    class SilentServicer(FollowingServicer):
        async def Watch(self, request, context):
            while True:
                await context.write(log_pb2.WatchResponse(high_watermark=self.log.end_offset))
                await asyncio.sleep(0.2)

    async with asyncio.timeout(60):
        said = await follow(SilentServicer(small_log()), *arguments, "--timeout", 1)
    assert said.is_error(
        ErrorCode.REQUEST_TIMED_OUT, "not done within 1 s; all records known to be committed are printed"
    )


async def test_who_waits_for_an_offset_beyond_the_end_is_told_so() -> None:
    log = small_log()
    end_offset = log.end_offset
    at_the_end = await follow(FollowingServicer(log), "--from", end_offset, "--limit", 1)
    assert [json.loads(line)["offset"] for line in at_the_end.lines()] == [end_offset]
    beyond = await follow(FollowingServicer(small_log()), "--from", end_offset + 2, "--limit", 1)
    assert beyond.errors.startswith(f"offset {end_offset + 2} is beyond the high watermark, {end_offset}: ")
    assert [json.loads(line)["offset"] for line in beyond.output.splitlines()] == [end_offset + 2]


async def test_an_end_below_the_start_is_a_misuse() -> None:
    said = await ask(LogServicer(small_log().from_offset(8)), "watch", "--until", 7)
    assert (said.code, said.output) == (2, "")
    assert "7 is below 8" in said.errors


async def test_exporting_another_cluster_into_the_same_directory_is_one_line(tmp_path: Path) -> None:
    log = small_log()
    assert (await ask(LogServicer(log), "export", "--to", tmp_path / "export")).code == 0
    before = sorted(path.name for path in (tmp_path / "export").rglob("*"))
    log.cluster_id = "another"
    said = await ask(LogServicer(log), "export", "--to", tmp_path / "export")
    assert said.is_error(ErrorCode.INCONSISTENT_CLUSTER_ID, "another")
    assert sorted(path.name for path in (tmp_path / "export").rglob("*")) == before


async def test_a_record_that_nobody_knows_is_shown_as_its_bytes() -> None:
    log = small_log()
    first = log.end_offset
    log.append_bytes(b"\xff\xff", b"")
    said = await ask(LogServicer(log), "watch", "--from", first, "--until", first + 2)
    records = [json.loads(line) for line in said.lines()]
    assert [(record["offset"], record["type"]) for record in records] == [(first, "UNKNOWN"), (first + 1, "UNKNOWN")]
    assert [record["data"] for record in records] == [{"bytes": "__8"}, {"bytes": ""}]


async def test_watch_takes_up_where_the_stream_broke() -> None:
    log = small_log()
    said = await ask(LogServicer(log, responses_before_it_breaks=2), "watch", "--until", log.end_offset)
    assert [json.loads(line)["offset"] for line in said.lines()] == list(range(log.end_offset))


async def test_an_export_whose_file_is_gone_is_neither_continued_nor_reported_on(tmp_path: Path) -> None:
    log = small_log()
    assert (await ask(LogServicer(log), "export", "--to", tmp_path)).code == 0
    gone = sorted((tmp_path / "log").iterdir())[0]
    gone.unlink()
    before = sorted(path.name for path in tmp_path.rglob("*"))
    said = await ask(LogServicer(log), "export", "--to", tmp_path)
    assert said.is_error(ErrorCode.KAFKA_STORAGE_ERROR, gone.name, "is missing")
    assert sorted(path.name for path in tmp_path.rglob("*")) == before
    said = await asyncio.to_thread(kraftlog, "report", "--from", tmp_path)
    assert said.is_error(ErrorCode.KAFKA_STORAGE_ERROR, gone.name, "is missing")


def test_what_is_wrong_with_an_export_is_told_before_spark_is_started(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraftlog.analytics.session.local_spark", lambda: pytest.fail("Spark was started"))
    assert run("report", "--from", tmp_path).is_error(ErrorCode.KAFKA_STORAGE_ERROR, "there is no export")


@dataclass
class LeaderlessServicer(LogServicer):
    """A node that knows of no leader until the test sets one."""

    elected: asyncio.Event = field(default_factory=asyncio.Event)

    async def Watch(self, request, context):
        await context.write(log_pb2.WatchResponse(current_leader=common_pb2.CurrentLeader(leader_id=NO_LEADER)))
        await self.elected.wait()
        await context.write(log_pb2.WatchResponse(records=self.log.batches[0].data))


async def test_watch_says_that_it_waits_for_a_leader(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    servicer = LeaderlessServicer(small_log())
    notes = []

    def note(line: str) -> None:
        notes.append(line)
        servicer.elected.set()

    monkeypatch.setattr("kraftlog.cli.look.log.note", note)
    monkeypatch.setattr("kraftlog.cli.look.log.WAITING_NOTE_SECONDS", 0)
    async with serving(servicer) as endpoint:
        await _watch((endpoint,), 0, None, 1)
    assert [line.partition(":")[0] for line in notes] == ["waiting for a leader"]
    assert json.loads(capsys.readouterr().out)["offset"] == 0


class FullServicer(LogServicer):
    async def DescribeNode(self, request, context):
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls at once")


async def test_a_node_that_has_no_room_is_told_by_kafkas_name() -> None:
    said = await ask(FullServicer(small_log()), "topics", "list")
    assert said.is_error(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many calls at once", "try again later")
