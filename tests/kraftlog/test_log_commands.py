"""`watch` and `export` against a log that no healthy cluster has: its start is gone, its records are unknown."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from raft.core.errors import ErrorCode
from tests.analytics.logs import LogServicer, serving, small_log
from tests.kraftlog.commands import Finished, kraftlog

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
