"""SQL statements of clients, one after the other, in a process that is kept for a while."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kraftbase.errors import ApiError
from statemachine.store import statement_lane
from statemachine.store.query_process import QueryProcess
from statemachine.store.store import MetadataStore
from tests.statemachine.builders import CLUSTER_ID, log_of, topic
from tests.statemachine.store.query_processes import children_of, is_there, wait_for
from tests.statemachine.store.test_sql import ENDLESS
from tests.statemachine.waiting import until

SECONDS = 60.0
HOUR = 3_600.0
HOUR_MS = 3_600_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MetadataStore]:
    with closing(MetadataStore.open(tmp_path / "metadata.db", CLUSTER_ID, read_max_ms=HOUR_MS)) as opened:
        opened.apply(log_of([[topic("orders", 1)]]))
        yield opened


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ids of the processes that are started."""
    process_ids: list[int] = []

    class Noted(QueryProcess):
        def __init__(self, database: Path) -> None:
            super().__init__(database)
            process_ids.append(self._process.pid)

    monkeypatch.setattr(statement_lane, "QueryProcess", Noted)
    return process_ids


async def count_topics(store: MetadataStore) -> int:
    (piece,) = await store.run_statement("SELECT count(*) FROM topics", SECONDS)
    return piece.rows[0].values[0].integer


async def test_the_process_starts_with_the_first_statement_and_is_kept_for_the_next(
    store: MetadataStore, started: list[int]
) -> None:
    assert started == []
    assert [await count_topics(store) for _ in range(3)] == [1, 1, 1]
    assert len(started) == 1


async def test_a_process_that_nobody_needs_ends(
    store: MetadataStore, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await count_topics(store) == 1
    assert is_there(started[0])
    monkeypatch.setattr(statement_lane, "IDLE_SECONDS_MAX", 0.0)
    assert await count_topics(store) == 1
    await until(lambda: not is_there(started[0]))
    assert await count_topics(store) == 1
    assert len(started) == 2


async def test_one_that_the_system_has_ended_is_replaced(store: MetadataStore, started: list[int]) -> None:
    assert await count_topics(store) == 1
    os.kill(started[0], signal.SIGKILL)
    os.waitid(os.P_PID, started[0], os.WEXITED | os.WNOWAIT)
    assert await count_topics(store) == 1
    assert len(started) == 2


async def test_a_caller_that_leaves_makes_room_for_the_next(store: MetadataStore, started: list[int]) -> None:
    endless = asyncio.create_task(store.run_statement(f"{ENDLESS} count(*) FROM n", HOUR))
    await until(lambda: bool(started) and bool(children_of(started[0])))
    endless.cancel()
    assert await count_topics(store) == 1
    assert len(started) == 1
    with pytest.raises(asyncio.CancelledError):
        await endless


async def test_closing_the_store_ends_statements_that_run_and_wait(tmp_path: Path, started: list[int]) -> None:
    store = MetadataStore.open(tmp_path / "metadata.db", CLUSTER_ID, read_max_ms=HOUR_MS)
    running = [asyncio.create_task(store.run_statement(f"{ENDLESS} count(*) FROM n", HOUR)) for _ in range(3)]
    await until(lambda: bool(started) and bool(children_of(started[0])))
    (child,) = children_of(started[0])
    store.close()
    outcomes = await asyncio.gather(*running, return_exceptions=True)
    assert len(started) == 1
    assert all(isinstance(outcome, ApiError | asyncio.CancelledError) for outcome in outcomes)
    assert not is_there(started[0])
    wait_for(lambda: not is_there(child))


async def test_closing_the_store_ends_a_process_that_is_idle(store: MetadataStore, started: list[int]) -> None:
    assert await count_topics(store) == 1
    store.close()
    assert not is_there(started[0])
