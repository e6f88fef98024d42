"""A machine under load keeps its write-ahead log small, and its event loop running."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from kraftbase.errors import FlushFailed
from kraftbase.runtime import awaited
from statemachine.apply.machine import MetadataMachine
from statemachine.store import write_ahead_log
from statemachine.store.metadata_tables import StoreUnavailable
from statemachine.store.store import MetadataStore
from statemachine.store.write_ahead_log import (
    MEBIBYTE,
    START_OVER_BYTES,
    TRANSACTION_BYTES_SOFT_MAX,
    WARN_BYTES,
    WriteAheadLog,
)
from tests.effort import all_cases
from tests.statemachine.builders import CLUSTER_ID, batch, config, no_op
from tests.statemachine.machines import deliver, machine_on
from tests.statemachine.store.write_ahead_logs import filler, reading, reading_process
from tests.statemachine.waiting import until

WAIT_BYTES = 24 * MEBIBYTE
ENOUGH_BYTES = (100 if all_cases() else 72) * MEBIBYTE
"""More than WARN_BYTES."""
SMALL_RUNS_BYTES = (60 if all_cases() else 24) * MEBIBYTE


@asynccontextmanager
async def running(store: MetadataStore) -> AsyncIterator[MetadataMachine]:
    machine = machine_on(store)
    try:
        yield machine
    finally:
        await awaited(machine.begin_shutdown)


@asynccontextmanager
async def set_at_the_end(event: threading.Event) -> AsyncIterator[None]:
    """So that a test that fails leaves no waiting thread."""
    try:
        yield
    finally:
        event.set()


async def load(machine: MetadataMachine, store: MetadataStore, size_bytes: int, step_bytes: int = MEBIBYTE) -> int:
    """Commit this much, without a pause; returns how large the write-ahead log has been."""
    largest = 0
    for _ in range(size_bytes // step_bytes):
        await deliver(machine, filler(store.applied_end_offset, step_bytes))
        await asyncio.sleep(0)  # as between two runs of a node's
        largest = max(largest, store.write_ahead_log.size_bytes)
    return largest


@pytest.fixture
def checkpoint_threads(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the threads that wait for the disk."""
    names: set[str] = set()

    def noted(method: Callable[..., bool | None]) -> Callable[..., bool | None]:
        def run(*arguments: object) -> bool | None:
            names.add(threading.current_thread().name)
            return method(*arguments)

        return run

    for name in ("copy", "start_over"):
        monkeypatch.setattr(WriteAheadLog, name, noted(getattr(WriteAheadLog, name)))
    return names


async def test_a_steady_load_keeps_it_small(store: MetadataStore, checkpoint_threads: set[str]) -> None:
    async with running(store) as machine:
        # Small runs are written on the loop, large ones in the thread.
        assert await load(machine, store, SMALL_RUNS_BYTES, 24 * 1024) < WARN_BYTES
        assert await load(machine, store, ENOUGH_BYTES) < WARN_BYTES
        assert machine.unavailable_reason is None
    assert {name.rpartition("_")[0] for name in checkpoint_threads} == {"kraftlog-apply"}


async def test_readers_that_come_and_go_do_not_keep_it(store: MetadataStore, database: Path) -> None:
    """Two that overlap: there is no moment without a reader."""
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            with reading(database):
                is_over.wait(0.2)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
        await asyncio.sleep(0.1)
    try:
        async with running(store) as machine:
            assert await load(machine, store, ENOUGH_BYTES) < WARN_BYTES
            assert machine.unavailable_reason is None
    finally:
        is_over.set()
        for reader in readers:
            reader.join()


async def test_an_old_reader_keeps_it_and_when_it_ends_nothing_need_be_written(
    store: MetadataStore, database: Path
) -> None:
    async with running(store) as machine:
        with reading(database):
            await load(machine, store, 2 * WAIT_BYTES)
            assert machine.unavailable_reason is None
            assert store.write_ahead_log.size_bytes > WAIT_BYTES
        await until(lambda: store.write_ahead_log.size_bytes == 0)


async def test_at_its_bound_nothing_is_applied_until_the_reader_ends(
    store: MetadataStore, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = 48 * MEBIBYTE  # to fill the real one takes long
    monkeypatch.setattr(write_ahead_log, "STOP_BYTES", bound)
    async with running(store) as machine:
        with reading_process(database) as process:
            loading = asyncio.create_task(load(machine, store, bound + 8 * MEBIBYTE))
            await until(lambda: machine.unavailable_reason is not None, 120)
            assert f"process {process.pid} (" in str(machine.unavailable_reason)
            assert "end that process" in str(machine.unavailable_reason)
            assert bound <= store.write_ahead_log.size_bytes < bound + 2 * MEBIBYTE
            process.kill()
            await loading
        assert machine.unavailable_reason is None
        await until(lambda: store.write_ahead_log.size_bytes < START_OVER_BYTES)


async def test_while_the_writer_is_still_the_loop_turns_and_nothing_is_refused(
    store: MetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end, has_begun = threading.Event(), threading.Event()
    start_over = WriteAheadLog.start_over

    def held(log: WriteAheadLog, wait_seconds: float = 0.0) -> bool:
        has_begun.set()
        may_end.wait()
        return start_over(log, wait_seconds)

    async with running(store) as machine, set_at_the_end(may_end):
        committed: list[int] = []
        machine.set_commit_callback(lambda end_offset: committed.append(end_offset) or True)  # type: ignore[func-returns-value]
        monkeypatch.setattr(WriteAheadLog, "start_over", held)
        await load(machine, store, START_OVER_BYTES)
        await until(has_begun.is_set)
        end_offset = store.applied_end_offset
        delivering = asyncio.create_task(deliver(machine, batch(end_offset, [no_op()])))
        await until(lambda: committed[-1:] == [end_offset + 1])  # callers that wait for the commit are answered
        for _ in range(100):
            await asyncio.sleep(0)
        assert store.applied_end_offset == end_offset
        assert machine.unavailable_reason is None
        may_end.set()
        await delivering
        assert store.applied_end_offset == end_offset + 1
        assert machine.unavailable_reason is None


async def test_when_it_is_large_the_next_run_waits(store: MetadataStore, monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()
    copy = WriteAheadLog.copy

    def held(log: WriteAheadLog) -> None:
        may_end.wait()
        copy(log)

    async with running(store) as machine, set_at_the_end(may_end):
        monkeypatch.setattr(WriteAheadLog, "copy", held)
        loading = asyncio.create_task(load(machine, store, 3 * WAIT_BYTES, 24 * 1024))  # on the loop
        await until(lambda: store.write_ahead_log.is_large)
        size_bytes = store.write_ahead_log.size_bytes
        await asyncio.wait([loading], timeout=0.5)
        assert store.write_ahead_log.size_bytes == size_bytes < WAIT_BYTES + MEBIBYTE
        assert not loading.done()
        may_end.set()
        assert await loading < WARN_BYTES


async def test_a_large_run_comes_in_several_transactions(store: MetadataStore) -> None:
    async with running(store) as machine:
        batches = [batch(offset, [config("topic", "filler", "x" * 50_000)]) for offset in range(10)]
        steps: list[int] = []
        commit = store._tables.commit
        store._tables.commit = lambda prepared, note_delta=False: (  # type: ignore[method-assign]
            steps.append(prepared.size_bytes),
            commit(prepared, note_delta=note_delta),
        )[1]
        await deliver(machine, *batches)
    assert store.applied_end_offset == 10
    assert len(steps) == 5
    assert max(steps) <= TRANSACTION_BYTES_SOFT_MAX


async def test_a_failed_sync_ends_the_node(store: MetadataStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    async with running(store) as machine:
        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(FlushFailed, match="cannot fsync"):
            await load(machine, store, 2 * WAIT_BYTES)


# --- a disk of its own ------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a tmpfs")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def free_bytes(disk: Path) -> int:
    room = os.statvfs(disk)
    return room.f_bavail * room.f_frsize


async def test_a_disk_fills_with_data_and_when_there_is_room_it_goes_on(small_disk: Path) -> None:
    database, ballast = small_disk / "metadata.db", small_disk / "ballast"
    ballast.write_bytes(b"\0" * (4 * MEBIBYTE))
    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        async with running(store) as machine:

            async def load_forever() -> None:
                while True:
                    offset = store.applied_end_offset
                    await deliver(machine, batch(offset, [config(f"topic-{offset}", "name", "x" * 8_192)]))
                    await asyncio.sleep(0)

            loading = asyncio.create_task(load_forever())
            await until(lambda: machine.unavailable_reason is not None, 60)
            # The room that cannot be used otherwise is for the next checkpoint.
            assert store.write_ahead_log.size_bytes <= 2 * MEBIBYTE
            assert database.stat().st_size >= 16 * MEBIBYTE
            stopped_at = store.applied_end_offset
            ballast.unlink()
            await until(lambda: store.applied_end_offset > stopped_at + 100)
            loading.cancel()
            with suppress(asyncio.CancelledError):
                await loading
            await until(lambda: machine.unavailable_reason is None or free_bytes(small_disk) == 0)


async def test_when_somebody_else_takes_the_room_it_starts_over_though_nothing_is_written(small_disk: Path) -> None:
    with closing(MetadataStore.open(small_disk / "metadata.db", CLUSTER_ID)) as store:
        async with running(store) as machine:
            await load(machine, store, MEBIBYTE)
            assert store.write_ahead_log.start_over()
            await load(machine, store, MEBIBYTE, 512 * 1024)
            assert store.write_ahead_log.size_bytes > MEBIBYTE
            assert not store.write_ahead_log.is_due
            (small_disk / "ballast").write_bytes(b"\0" * free_bytes(small_disk))
            await until(lambda: store.write_ahead_log.size_bytes == 0)


async def test_when_there_is_no_room_for_a_transaction_the_write_ahead_log_gives_its_own(small_disk: Path) -> None:
    """Its pages are all in the database already, so no page needs to be copied."""
    database, ballast = small_disk / "metadata.db", small_disk / "ballast"
    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        async with running(store) as machine:
            await load(machine, store, 3 * MEBIBYTE)
            store.write_ahead_log.start_over()
            await load(machine, store, 3 * MEBIBYTE, 512 * 1024)
            store.write_ahead_log.copy()
            ballast.write_bytes(b"\0" * (free_bytes(small_disk) - 64 * 1024))
            end_offset = store.applied_end_offset
            await deliver(machine, filler(end_offset, 512 * 1024))
            assert store.applied_end_offset == end_offset + 1
            assert machine.unavailable_reason is None
            assert store.write_ahead_log.size_bytes < MEBIBYTE


def test_no_room_for_the_index_of_the_write_ahead_log_is_no_room(small_disk: Path) -> None:
    """It grows by eight pages of 4 KiB after each 4,096 pages that are written."""
    refusals = 0
    for pages in range(0, 16, 2 if all_cases() else 5):
        database, ballast = small_disk / f"{pages}.db", small_disk / "ballast"
        with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
            end_offset = 0
            while store.write_ahead_log.size_bytes < 3_500 * (1024 + 24):
                store.apply([filler(end_offset, 128 * 1024)])
                end_offset += 1
            while store.write_ahead_log.size_bytes < 4_050 * (1024 + 24):
                store.apply([batch(end_offset, [no_op()])])
                end_offset += 1
            ballast.write_bytes(b"\0" * (free_bytes(small_disk) - pages * 4_096))
            with pytest.raises(StoreUnavailable) as caught:
                for offset in range(end_offset, end_offset + 100):
                    store.apply([batch(offset, [no_op()])])
            refusals += "I/O error" in str(caught.value)
            ballast.unlink()
            store.apply([batch(store.applied_end_offset, [no_op()])])
        database.unlink()
    assert refusals > 0
