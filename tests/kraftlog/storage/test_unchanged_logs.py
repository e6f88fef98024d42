"""A loss of power after a start that has appended nothing, and directories of the version before (DB-95, DB-96)."""

from __future__ import annotations

from random import Random

import pytest

from kraftbase.files.files import read_whole, write_new_file
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.partition import TopicPartition
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.findings import Finding
from kraftlog.storage.log_directory import LogDirectory
from kraftlog.storage.slices import run_at_once
from tests.kraftlog.storage.agreement import check_agreement
from tests.kraftlog.storage.builders import (
    CLICKS,
    TOPIC_ID,
    all_batches,
    append,
    batch,
    log_in,
    open_directory,
    produced,
)
from tests.kraftlog.storage.test_crashes import kill_after

SMALL = PartitionLogConfig(segment_bytes=400, index_interval_bytes=1)
"""Several segments, with entries in their indexes and snapshots of producers."""
OTHER = TopicPartition("clicks", 1)
INVENTORY = "data/kraftlog-inventory"

OLD_INVENTORY = b"""\
7214c9a7 ["inventory",1,"bx2cUjsKTo-aVwxNLoGz9g"]
fbc56cba ["start"]
62c97c9e ["log","clicks",0,"DQwLCgkIRwaFBAMCAQAPDg",0,0,0,0,0,0,[]]
911efa0e ["log","clicks",1,"DQwLCgkIRwaFBAMCAQAPDg",0,0,0,0,0,0,[]]
43ce5dad ["at","clicks",1,3,0,0,3973776914,0]
"""
"""As commit d46898a7 writes it: `CLICKS` has no record, and three of `OTHER` are flushed."""


def begin_again(files: MemoryFileSystem) -> LogDirectory:
    return open_directory(files, config=SMALL)


def shut_down_with_records(files: MemoryFileSystem) -> list[bytes]:
    """A log that was shut down cleanly; returns its batches."""
    directory = begin_again(files)
    log = log_in(directory, SMALL)
    for sequence in range(12):
        append(log, produced(7, sequence))
        append(log, batch(2))
    written = all_batches(log)
    assert len(log.segment_bytes) > 3
    directory.close(broker_epoch=5)
    return written


def check_has(files: MemoryFileSystem, written: list[bytes]) -> None:
    directory = begin_again(files)
    assert not directory.damaged
    log = directory.logs[CLICKS]
    check_agreement(log)
    assert all_batches(log) == written
    assert log.log_end_offset == 36
    append(log, produced(7, 12))
    assert log.log_end_offset == 37, "the producer goes on where it was"
    directory.release()


@pytest.mark.parametrize("seed", [None, *range(30)])
def test_db96_a_loss_of_power_after_a_start_without_appends_takes_nothing(seed: int | None) -> None:
    files = MemoryFileSystem()
    written = shut_down_with_records(files)
    for _ in range(3):
        begin_again(files)
        files.crash(random=None if seed is None else Random(seed))
    check_has(files, written)


@pytest.mark.parametrize("starts_before", [0, 1])
def test_db96_nor_does_one_between_any_two_operations_of_a_start_and_a_clean_shutdown(starts_before: int) -> None:
    def start_and_end(files: MemoryFileSystem) -> None:
        begin_again(files).close(broker_epoch=6)

    operations: list[str] = []
    files = MemoryFileSystem()
    shut_down_with_records(files)
    files.before_operation = lambda operation, path: operations.append(operation)
    start_and_end(files)
    for count in range(len(operations)):
        files = MemoryFileSystem()
        written = shut_down_with_records(files)
        for _ in range(starts_before):
            begin_again(files)
            files.crash()
        kill_after(files, count, lambda: start_and_end(files), loses_power=True)  # noqa: B023 (it is called here)
        check_has(files, written)


def of_version_before(files: MemoryFileSystem) -> None:
    """Make a directory of it, whose broker was killed."""
    directory = open_directory(files)
    log_in(directory)
    log = directory.create_log(OTHER, TOPIC_ID, PartitionLogConfig(), 0, TOPIC_ID)
    append(log, batch(3))
    log.flush()
    run_at_once(directory.checkpoint())
    append(log, batch(2))
    files.end_process()
    write_new_file(files, INVENTORY, OLD_INVENTORY)


def test_db95_logs_of_the_version_before_are_established() -> None:
    files = MemoryFileSystem()
    of_version_before(files)
    directory = open_directory(files)
    assert not directory.damaged
    assert [directory.logs[name].log_end_offset for name in (CLICKS, OTHER)] == [0, 5]
    for name in (CLICKS, OTHER):
        entry = directory.records.entry(name)
        assert entry is not None
        assert not entry.is_new, name
        assert not directory.logs[name].durability.is_new, name
    assert b"-1" not in read_whole(files, INVENTORY).rstrip(b"\0")


@pytest.mark.parametrize("name", [CLICKS, OTHER])
def test_db95_a_log_of_the_version_before_whose_directory_is_missing_is_damaged(name: TopicPartition) -> None:
    files = MemoryFileSystem()
    of_version_before(files)
    path = f"data/{name.topic}-{name.partition_id}"
    for file in files.list_directory(path):
        files.remove(f"{path}/{file}")
    files.remove_directory(path)
    directory = open_directory(files)
    assert directory.findings.assess_missing(name, TOPIC_ID) is Finding.DAMAGED
