"""The effects of a crash and of failing syncs: the in-memory file system's model, and the real one's errors."""

from __future__ import annotations

import os
from copy import deepcopy
from random import Random

import pytest

from kraftbase.errors import FlushFailed, OutOfSpace, StorageError
from kraftbase.files.files import read_whole, write_new_file
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.files.posix import PosixFile
from tests.raft.storage.builders import Stopped


def durable_file(files: MemoryFileSystem, path: str, data: bytes) -> None:
    file = files.open(path, create=True)
    file.write_at(0, data)
    file.fsync()
    files.fsync_directory(".")


def test_a_copy_changes_alone_and_its_renamed_file_is_one_file(memory_files: MemoryFileSystem) -> None:
    durable_file(memory_files, "file", b"abc")
    memory_files.rename("file", "renamed")
    copied = deepcopy(memory_files)
    file = copied.open("renamed")
    file.write_at(0, b"XYZ")
    file.fsync()
    copied.crash()  # which loses the new name, and nothing that was synced
    assert read_whole(copied, "file") == b"XYZ"
    assert read_whole(memory_files, "renamed") == b"abc"
    memory_files.crash()
    assert read_whole(memory_files, "file") == b"abc"


def test_a_crash_loses_writes_that_were_not_synced(memory_files: MemoryFileSystem) -> None:
    durable_file(memory_files, "file", b"abc")
    file = memory_files.open("file")
    file.write_at(0, b"XYZW")
    file.reserve(100)
    memory_files.crash()
    assert read_whole(memory_files, "file") == b"abc"


def test_a_crash_keeps_what_fdatasync_covered(memory_files: MemoryFileSystem) -> None:
    durable_file(memory_files, "file", b"abc")
    file = memory_files.open("file")
    file.reserve(6)
    file.write_at(3, b"d")
    file.fdatasync()
    file.write_at(4, b"e")
    memory_files.crash()
    assert read_whole(memory_files, "file") == b"abcd\0\0"


def test_a_crash_may_keep_a_prefix_of_what_was_written(memory_files: MemoryFileSystem) -> None:
    durable_file(memory_files, "file", b"")
    file = memory_files.open("file")
    file.write_at(0, b"abc")
    file.write_at(3, b"def")
    memory_files.crash(kept_unsynced_bytes=4)
    assert read_whole(memory_files, "file") == b"abcd"


def test_a_crash_may_keep_some_sectors_and_not_those_before_them(memory_files: MemoryFileSystem) -> None:
    durable_file(memory_files, "file", b"")
    outcomes = set()
    for seed in range(40):
        file = memory_files.open("file")
        file.truncate(0)
        file.fsync()
        file.write_at(0, b"a" * 512 + b"b" * 512)
        memory_files.crash(random=Random(seed))
        outcomes.add(read_whole(memory_files, "file").strip(b"\0")[:1] + read_whole(memory_files, "file")[-1:])
    assert outcomes == {b"", b"aa", b"ab", b"bb"}


def test_a_name_that_was_not_synced_is_lost_though_its_file_was(memory_files: MemoryFileSystem) -> None:
    file = memory_files.open("file", create=True)
    file.write_at(0, b"abc")
    file.fsync()
    memory_files.crash()
    assert not memory_files.exists("file")


def test_a_name_without_a_synced_file_is_an_empty_file(memory_files: MemoryFileSystem) -> None:
    memory_files.open("file", create=True).write_at(0, b"abc")
    memory_files.fsync_directory(".")
    memory_files.crash()
    assert read_whole(memory_files, "file") == b""


def test_a_removal_and_a_rename_that_were_not_synced_are_undone(memory_files: MemoryFileSystem) -> None:
    durable_file(memory_files, "removed", b"abc")
    durable_file(memory_files, "old", b"def")
    memory_files.remove("removed")
    memory_files.rename("old", "new")
    memory_files.crash()
    assert memory_files.list_directory(".") == ["old", "removed"]
    assert read_whole(memory_files, "removed") == b"abc"


def test_what_was_open_before_a_crash_is_dead_and_locks_are_free(memory_files: MemoryFileSystem) -> None:
    durable_file(memory_files, "file", b"abc")
    file, old_lock = memory_files.open("file"), memory_files.try_lock("lock")
    memory_files.crash()
    with pytest.raises(StorageError, match="crash"):
        file.read_at(0, 1)
    assert memory_files.try_lock("lock") is not None
    assert old_lock is not None
    old_lock.close()
    assert memory_files.try_lock("lock") is None


def test_a_failed_sync_is_flush_failed_and_keeps_nothing(memory_files: MemoryFileSystem) -> None:
    durable_file(memory_files, "file", b"abc")
    memory_files.failing_syncs = {"file", "."}
    file = memory_files.open("file")
    file.write_at(0, b"X")
    for attempt in (file.fdatasync, file.fsync, lambda: memory_files.fsync_directory(".")):
        with pytest.raises(FlushFailed, match="failed"):
            attempt()
    memory_files.crash()
    assert read_whole(memory_files, "file") == b"abc"


def test_the_space_limit_counts_all_files(memory_files: MemoryFileSystem) -> None:
    durable_file(memory_files, "file", b"abc")
    memory_files.space_limit = 5
    other = memory_files.open("other", create=True)
    with pytest.raises(OutOfSpace):
        other.write_at(0, b"defg")
    assert other.read_at(0, 10) == b"de"
    memory_files.remove("file")
    other.write_at(0, b"defg")
    assert memory_files.used_bytes() == 4


@pytest.mark.parametrize("crash", [{}, {"kept_unsynced_bytes": 3}, {"kept_unsynced_bytes": 99}, {"random": Random(3)}])
def test_a_new_file_is_the_old_or_the_new_one_wherever_a_crash_hits(crash: dict[str, object]) -> None:
    step = 0
    while True:
        files = MemoryFileSystem()
        write_new_file(files, "file", b"old")
        calls: list[str] = []

        def stop(operation: str, path: str, calls: list[str] = calls, step: int = step) -> None:
            calls.append(operation)
            if len(calls) > step:
                raise Stopped

        files.before_operation = stop
        try:
            write_new_file(files, "file", b"new content")
        except Stopped:
            files.before_operation = None
            files.crash(**crash)  # type: ignore[arg-type]
            assert read_whole(files, "file") in (b"old", b"new content")
            step += 1
            continue
        files.crash()
        assert read_whole(files, "file") == b"new content"
        break
    assert step == 5


def test_a_real_sync_that_the_kernel_refuses_is_flush_failed() -> None:
    reading_end, writing_end = os.pipe()
    file = PosixFile("pipe", writing_end)
    for attempt in (file.fdatasync, file.fsync):
        with pytest.raises(FlushFailed, match="pipe"):
            attempt()
    with pytest.raises(StorageError, match="pipe"):
        file.read_at(0, 1)
    file.close()
    file.close()
    os.close(reading_end)
