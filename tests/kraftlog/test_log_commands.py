"""`watch`, `export` and `report` on a log that no healthy cluster has, and on an export that lacks a file."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from kraftlog.cli.log import _watch
from kraftpb.v1 import common_pb2, log_pb2
from raft.core.errors import ErrorCode
from raft.core.types import NO_LEADER
from tests.analytics.logs import LogServicer, serving, small_log
from tests.kraftlog.commands import Finished, Run, kraftlog

pytestmark = pytest.mark.process


async def ask(servicer: LogServicer, *arguments: object) -> Finished:
    """Run a command in a process of its own, against a node that serves what the servicer has."""
    async with serving(servicer) as endpoint:
        return await asyncio.to_thread(kraftlog, *arguments, "--bootstrap-server", endpoint)


async def test_watching_from_an_offset_that_is_gone_is_one_line() -> None:
    said = await ask(LogServicer(small_log().from_offset(8)), "watch", "--from", 3)
    assert said.is_error(ErrorCode.OFFSET_OUT_OF_RANGE)


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
    monkeypatch.setattr("analytics.session.local_spark", lambda: pytest.fail("Spark was started"))
    assert run("report", "--from", tmp_path).is_error(ErrorCode.KAFKA_STORAGE_ERROR, "there is no export")


@dataclass
class LeaderlessServicer(LogServicer):
    """A node that knows of no leader until it is told that there is one."""

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

    monkeypatch.setattr("kraftlog.cli.log.note", note)
    monkeypatch.setattr("kraftlog.cli.log.WAITING_NOTE_SECONDS", 0)
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
