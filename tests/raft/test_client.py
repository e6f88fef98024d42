"""A program's appends: which outcome it waits for, and its cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Offset
from raft.client import resolving
from raft.storage.batch import encode_body
from tests.raft.nodes import Recorder, running_cluster
from tests.statemachine.waiting import turns, until


async def test_li20_a_program_waits_for_what_it_prepared_with_a_future_of_its_own(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, voter_count=1) as cluster:
        client = cluster.clients[1]
        await until(lambda: client.leader_and_epoch.leader_id == 1)
        futures = [asyncio.get_running_loop().create_future() for _ in range(2)]
        epoch = client.leader_and_epoch.epoch
        start = client.next_append_offset
        for number, committed in enumerate(futures):
            body = encode_body([b"%d" % number])
            assert client.prepare_append(epoch, body, 1, resolving(committed)) == start + number
        await turns(100)
        assert not any(committed.done() for committed in futures)
        client.schedule_appends()
        assert await asyncio.wait_for(asyncio.gather(*futures), 20) == [None, None]
        assert client.high_watermark == start + 2


async def test_who_gives_up_an_append_changes_nothing_for_the_log(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, voter_count=1) as cluster:
        client, recorder = cluster.clients[1], Recorder()
        client.register(recorder, start_offset=Offset(0))
        await until(lambda: client.leader_and_epoch.leader_id == 1)
        appending = asyncio.create_task(client.append([b"given up"]))
        await asyncio.sleep(0)
        appending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await appending
        await client.append([b"after"])
        await until(lambda: recorder.records == [b"given up", b"after"])


@pytest.mark.parametrize(
    "given_up", [lambda future: future.cancel(), lambda future: future.set_result(None)], ids=["cancelled", "done"]
)
async def test_a_future_that_is_done_stays_as_it_is(given_up: Callable[[asyncio.Future[None]], None]) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    settle = resolving(future)
    given_up(future)
    settle(None)
    settle(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "as the test says"))


async def test_a_future_that_nobody_asks_is_no_noise(caplog: pytest.LogCaptureFixture) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    resolving(future)(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "as the test says"))
    del future
    await turns()
    assert caplog.records == []
