"""Queries while a snapshot replaces the database: each sees the old database or the new one."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from kraftbase.errors import StorageError
from kraftbase.runtime import awaited
from snapshot.store import SnapshotStore
from statemachine.store import store as store_module
from statemachine.tables.database import install
from tests.statemachine.apply.loading.builders import LOG, applied_there, newest
from tests.statemachine.snapshots import content_of, filled
from tests.statemachine.waiting import turns, until


async def test_queries_that_run_see_the_old_one_to_their_end_and_those_that_come_see_the_new_one(
    whole: SnapshotStore, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, running = threading.Event(), threading.Event()

    def slow(connection: sqlite3.Connection) -> int:
        running.set()
        assert goes_on.wait(20)
        return applied_there(connection)

    def slow_install(*paths: Path) -> None:
        assert not threading.Event().wait(0.1)  # a query that was not held would come now
        install(*paths)

    monkeypatch.setattr(store_module, "install", slow_install)
    with closing(filled(old, LOG[:1])) as store, newest(whole) as reader:
        store.load(reader)
        first = asyncio.create_task(store.query(slow))
        await until(running.is_set)
        using = asyncio.create_task(awaited(store.use_loaded))
        await turns()
        second = asyncio.create_task(store.query(applied_there))
        await turns()
        assert not using.done()
        assert applied_there(store.reader) == LOG[0].end_offset  # reads on the loop continue, too
        goes_on.set()
        assert await first == LOG[0].end_offset
        assert await second == LOG[-1].end_offset
        await using
        assert applied_there(store.reader) == LOG[-1].end_offset


async def test_who_gives_up_waiting_for_a_query_has_changed_nothing(whole: SnapshotStore, old: Path) -> None:
    goes_on, running = threading.Event(), threading.Event()

    def slow(connection: sqlite3.Connection) -> int:
        running.set()
        assert goes_on.wait(20)
        return applied_there(connection)

    with closing(filled(old, LOG[:1])) as store, newest(whole) as reader:
        store.load(reader)
        first = asyncio.create_task(store.query(slow))
        await until(running.is_set)
        using = asyncio.create_task(awaited(store.use_loaded))
        await turns()
        using.cancel()
        await turns()
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await using
        async with asyncio.timeout(100):
            assert await first == await store.query(applied_there) == LOG[0].end_offset
        await awaited(store.use_loaded)
        assert applied_there(store.reader) == LOG[-1].end_offset


async def test_who_may_not_any_more_when_the_queries_are_done_has_changed_nothing(
    whole: SnapshotStore, old: Path
) -> None:
    with closing(filled(old, LOG[:1])) as store, newest(whole) as reader:
        store.load(reader)
        await awaited(partial(store.use_loaded, unless=lambda: True))
        assert applied_there(store.reader) == await store.query(applied_there) == LOG[0].end_offset
        store.apply(LOG)


async def test_a_failure_holds_no_query_for_ever(
    whole: SnapshotStore, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise StorageError("no such luck")

    store = filled(old, LOG[:1])
    with newest(whole) as reader:
        store.load(reader)
    monkeypatch.setattr(store_module, "install", broken)
    with pytest.raises(StorageError, match="no such luck"):
        await awaited(store.use_loaded)
    async with asyncio.timeout(100):
        await asyncio.to_thread(store.close)
    assert content_of(old)["applied"][0][2] == LOG[0].end_offset
