"""SQLite's write-ahead log starts over, whatever reads it and whatever died."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from kraftbase.types import Offset
from statemachine.store.lock_holders import processes_reading, shared_locks
from statemachine.store.store import MetadataStore
from statemachine.store.write_ahead_log import (
    MEBIBYTE,
    START_OVER_BYTES,
    START_OVER_BYTES_MIN,
    STOP_BYTES,
    WriteAheadLog,
    WriteAheadLogHeld,
)
from statemachine.tables.database import PAGE_BYTES
from tests.paths import ROOT
from tests.statemachine.builders import CLUSTER_ID, batch, no_op, partition, topic
from tests.statemachine.store.write_ahead_logs import filler, reading, reading_process

OPERATIONS = 500


def wal_of(database: Path) -> Path:
    return database.with_name(database.name + "-wal")


def fill(store: MetadataStore, size_bytes: int) -> None:
    """Commit until the write-ahead log is that large."""
    while store.write_ahead_log.size_bytes < size_bytes:
        store.apply([filler(store.applied_end_offset, MEBIBYTE)])


def page_bytes(database: Path) -> int:
    with closing(sqlite3.connect(database)) as connection:
        return int(connection.execute("PRAGMA page_size").fetchone()[0])


def bytes_per_topic(store: MetadataStore) -> float:
    """The growth of the write-ahead log for one topic with a partition on three brokers, among many."""
    crowd = [record for number in range(2_000) for record in (topic(f"crowd-{number}", number), partition(number))]
    store.apply([batch(store.applied_end_offset, crowd)])
    before = store.write_ahead_log.size_bytes
    for number in range(OPERATIONS):
        # Ids as random as real ones are, and the same each time.
        shuffled = 10_000 + number * 7_919 % 100_003
        records = [topic(f"topic-{shuffled}", shuffled), partition(shuffled, replicas=(1, 2, 3))]
        store.apply([batch(store.applied_end_offset, records)])
    return (store.write_ahead_log.size_bytes - before) / OPERATIONS


def test_it_starts_over_while_nobody_reads(store: MetadataStore, database: Path) -> None:
    fill(store, START_OVER_BYTES)
    log = store.write_ahead_log
    assert log.is_due
    log.copy()
    assert database.stat().st_size > MEBIBYTE // 2
    assert log.size_bytes >= START_OVER_BYTES
    assert log.start_over()
    assert log.size_bytes == wal_of(database).stat().st_size == 0
    assert not log.is_due
    store.apply([batch(store.applied_end_offset, [no_op()])])
    assert 0 < log.size_bytes < MEBIBYTE


def test_a_reader_keeps_it_until_it_ends(store: MetadataStore, database: Path) -> None:
    fill(store, START_OVER_BYTES)
    log = store.write_ahead_log
    with reading(database) as connection:
        end_offset = store.applied_end_offset
        store.apply([batch(end_offset, [no_op()])])
        log.copy()
        assert not log.start_over()
        assert log.size_bytes > START_OVER_BYTES
        assert connection.execute("SELECT end_offset FROM applied").fetchone() == (end_offset,)
    assert log.start_over()
    assert log.size_bytes == 0


def test_it_waits_for_a_reader_that_ends_in_time(store: MetadataStore, database: Path) -> None:
    fill(store, MEBIBYTE)
    with reading(database) as connection:
        ending = threading.Timer(0.1, lambda: connection.execute("ROLLBACK"))
        ending.start()
        assert store.write_ahead_log.start_over(wait_seconds=20)
        ending.join()
    assert store.write_ahead_log.size_bytes == 0


def test_with_little_room_it_starts_over_earlier(store: MetadataStore, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, START_OVER_BYTES_MIN)
    assert not store.write_ahead_log.is_due
    real = os.fstatvfs(0)
    full = os.statvfs_result((*real[:3], 0, 0, *real[5:]))
    monkeypatch.setattr(os, "fstatvfs", lambda descriptor: full)
    assert store.write_ahead_log.is_due


def test_what_a_killed_process_left_is_gone_when_it_is_opened(database: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from statemachine.store.store import MetadataStore\n"
        "from tests.statemachine.builders import CLUSTER_ID\n"
        "from tests.statemachine.store.test_write_ahead_log import fill\n"
        "fill(MetadataStore.open(Path(sys.argv[1]), CLUSTER_ID), 20 * 1024 * 1024)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(database)], check=False, cwd=ROOT)
    assert killed.returncode == -signal.SIGKILL
    assert wal_of(database).stat().st_size >= 20 * MEBIBYTE
    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        assert wal_of(database).stat().st_size == 0
        assert store.applied_end_offset > 0


def test_at_its_bound_the_holder_is_named(
    store: MetadataStore, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write_ahead_log.check_bound()
    with reading_process(database) as process:
        fill(store, MEBIBYTE)
        monkeypatch.setattr(WriteAheadLog, "size_bytes", STOP_BYTES)
        with pytest.raises(WriteAheadLogHeld, match=rf"512 MiB.*process {process.pid} \({sys.executable} -c"):
            store.write_ahead_log.check_bound()


def test_the_processes_that_read_are_found(store: MetadataStore, database: Path) -> None:
    memory = database.with_name(database.name + "-shm")
    assert processes_reading(memory) == []
    with reading_process(database) as first, reading_process(database) as second, reading(database):
        found = processes_reading(memory)
        assert [words.split()[1] for words in found] == [str(pid) for pid in sorted((first.pid, second.pid))]
        assert all(len(words) < 120 for words in found)
    with reading(database):
        assert processes_reading(memory)[0].startswith(f"process {os.getpid()} (")
    assert processes_reading(database.with_name("nothing")) == []


def test_locks_of_others_and_of_other_kinds_are_passed_over() -> None:
    listing = (
        "1: POSIX  ADVISORY  READ 17 00:2b:99 124 124\n"
        "2: POSIX  ADVISORY  WRITE 18 00:2b:99 120 120\n"
        "2: -> POSIX  ADVISORY  READ 19 00:2b:99 120 120\n"
        "3: FLOCK  ADVISORY  READ 20 00:2b:99 0 EOF\n"
        "4: POSIX  ADVISORY  READ 0 00:2b:99 124 124\n"
        "5: POSIX  ADVISORY  READ 21 00:2b:99 0 EOF\n"
        "6: OFDLCK ADVISORY  READ -1 00:2b:99 0 EOF\n"
    )
    assert [(lock.process_id, lock.inode, lock.first) for lock in shared_locks(listing)] == [(17, 99, 124), (21, 99, 0)]


# --- bytes written ----------------------------------------------------------------------------------------------------


def test_an_operation_writes_less_than_half_of_what_it_wrote_with_sqlites_own_page_size(
    tmp_path: Path, store: MetadataStore, database: Path
) -> None:
    old = tmp_path / "old.db"
    with closing(sqlite3.connect(old)) as connection:
        connection.execute("PRAGMA page_size = 4096")
        connection.execute("PRAGMA journal_mode = WAL")
    with closing(MetadataStore.open(old, CLUSTER_ID)) as before:
        assert page_bytes(old) == 4096
        written_before = bytes_per_topic(before)
    assert page_bytes(database) == PAGE_BYTES
    assert bytes_per_topic(store) < min(13_500, written_before / 2)


def test_an_older_database_goes_on_with_its_pages(tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    with closing(sqlite3.connect(old)) as connection:
        connection.execute("PRAGMA page_size = 4096")
        connection.execute("PRAGMA journal_mode = WAL")
    for end_offset in range(3):
        with closing(MetadataStore.open(old, CLUSTER_ID)) as store:
            assert store.applied_end_offset == end_offset
            store.apply([batch(Offset(end_offset), [no_op()])])
    assert page_bytes(old) == 4096
    assert list(tmp_path.glob("*.damaged")) == []
