"""Statements one after the other, on a database whose write-ahead log they would keep from starting over."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.runtime import awaited
from statemachine.apply.machine import MetadataMachine
from statemachine.store import statement_lane
from statemachine.store.query_process import QueryProcess, StatementRun
from statemachine.store.store import MetadataStore
from statemachine.store.write_ahead_log import MEBIBYTE
from tests.statemachine.machines import deliver, machine_on
from tests.statemachine.store.write_ahead_logs import filler, reading
from tests.statemachine.waiting import until

SECONDS = 60.0
WAIT_BYTES = 24 * MEBIBYTE
COUNT = "SELECT count(*) FROM topics"
ENDLESS = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*), ({COUNT}) FROM n"
"""It names a table, so that it has a read transaction."""


async def write(machine: MetadataMachine, store: MetadataStore, size_bytes: int) -> None:
    for _ in range(size_bytes // MEBIBYTE):
        await deliver(machine, filler(store.applied_end_offset, MEBIBYTE))
        await asyncio.sleep(0)


async def test_a_statement_waits_until_a_large_write_ahead_log_has_started_over(
    store: MetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    run_one = QueryProcess.run

    def noted(process: QueryProcess, run: StatementRun) -> object:
        sizes.append(store.write_ahead_log.size_bytes)
        return run_one(process, run)

    monkeypatch.setattr(QueryProcess, "run", noted)
    machine = machine_on(store)
    try:
        first = asyncio.create_task(store.run_statement(ENDLESS, SECONDS))
        await until(lambda: len(sizes) == 1)
        others = [asyncio.create_task(store.run_statement(COUNT, SECONDS)) for _ in range(2)]
        await write(machine, store, 2 * WAIT_BYTES)
        assert store.write_ahead_log.size_bytes > WAIT_BYTES
        first.cancel()
        await asyncio.gather(*others)
        assert len(sizes) == 3
        assert all(size < WAIT_BYTES for size in sizes)
    finally:
        await awaited(machine.begin_shutdown)


async def test_another_reader_that_keeps_it_delays_statements_and_then_has_them_refused(
    store: MetadataStore, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statement_lane, "PAUSE_SECONDS_MAX", 0.5)
    machine = machine_on(store)
    try:
        with reading(database):
            await write(machine, store, 2 * WAIT_BYTES)
            await store.run_statement(COUNT, SECONDS)
            monkeypatch.setattr(statement_lane, "WARN_BYTES", WAIT_BYTES)
            with pytest.raises(ApiError, match=r"has \d+ MiB and did not .* reads it in one long tra") as refused:
                await store.run_statement(COUNT, SECONDS)
            assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        await until(lambda: store.write_ahead_log.size_bytes < WAIT_BYTES)
        await store.run_statement(COUNT, SECONDS)
    finally:
        await awaited(machine.begin_shutdown)


async def test_a_statement_that_pauses_ends_with_its_store(
    store: MetadataStore, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statement_lane, "PAUSE_SECONDS_MAX", 3_600.0)
    machine = machine_on(store)
    with reading(database):
        await write(machine, store, 2 * WAIT_BYTES)
        waiting = asyncio.create_task(store.run_statement(COUNT, SECONDS))
        await asyncio.sleep(0)
        await awaited(machine.begin_shutdown)
        store.close()
        with pytest.raises(ApiError, match="its caller left"):
            await waiting
