"""The runtime on an asyncio loop: when it calls back."""

from __future__ import annotations

import asyncio

import pytest

from kraftbase.runtime import TURNS_FOR_ANSWERS, TURNS_FOR_REQUESTS, AsyncioRuntime


@pytest.mark.parametrize("waits_for", ["answers", "requests"])
async def test_it_calls_back_after_as_many_turns_as_those_need(waits_for: str) -> None:
    runtime = AsyncioRuntime()
    called = asyncio.Event()
    if waits_for == "answers":
        runtime.call_after_answers(called.set)
    else:
        runtime.call_after_requests(called.set)
    for turn in range(TURNS_FOR_ANSWERS if waits_for == "answers" else TURNS_FOR_REQUESTS):
        assert not called.is_set(), turn
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert called.is_set()


async def test_an_answer_that_is_ready_is_taken_and_written_before_it_calls_back() -> None:
    """As the stream server does: a future wakes its waiter, which passes the result on to another task."""
    runtime = AsyncioRuntime()
    happened: list[str] = []
    ready, written = asyncio.Event(), asyncio.Event()

    async def write() -> None:
        await written.wait()
        happened.append("with the network")

    async def take() -> None:
        await ready.wait()
        happened.append("taken")
        written.set()

    tasks = [asyncio.create_task(write()), asyncio.create_task(take())]
    await asyncio.sleep(0)
    ready.set()
    runtime.call_after_answers(lambda: happened.append("called back"))
    await asyncio.gather(*tasks)
    while len(happened) < 3:
        await asyncio.sleep(0)
    assert happened == ["taken", "with the network", "called back"]
