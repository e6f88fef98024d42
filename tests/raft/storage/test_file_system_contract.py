"""The contract of FileSystem, over every implementation of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kraftbase.errors import OutOfSpace, StorageError
from kraftbase.files.files import FileSystem, join, parent_directory, read_whole, write_new_file
from kraftbase.files.posix import PosixFileSystem
from tests.raft.storage.builders import room_for


def test_what_is_written_is_read_back_at_its_position(files: FileSystem) -> None:
    file = files.open("file", create=True)
    file.write_at(0, b"hello world")
    file.write_at(6, b"there")
    assert file.read_at(0, 100) == b"hello there"
    assert file.read_at(6, 3) == b"the"
    assert file.size() == 11
    assert file.path == "file"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_kind_of_bytes_is_written_as_it_is_then(
    files: FileSystem, kind: type[bytes | bytearray | memoryview]
) -> None:
    file = files.open("file", create=True)
    memory = bytearray(b"abc")
    file.write_at(1, memory if kind is bytearray else kind(memory))
    memory[:] = b"xyz"
    assert file.read_at(0, 10) == b"\0abc"


def test_a_read_at_or_behind_the_end_gives_nothing(files: FileSystem) -> None:
    file = files.open("file", create=True)
    file.write_at(0, b"abc")
    assert file.read_at(3, 10) == b""
    assert file.read_at(100, 10) == b""


def test_a_gap_before_a_write_reads_as_zeros(files: FileSystem) -> None:
    file = files.open("file", create=True)
    file.write_at(4, b"x")
    assert file.read_at(0, 10) == b"\0\0\0\0x"


def test_two_handles_of_a_file_see_each_others_writes(files: FileSystem) -> None:
    writer, reader = files.open("file", create=True), files.open("file")
    writer.write_at(0, b"abc")
    assert reader.read_at(0, 3) == b"abc"


def test_reserved_bytes_are_zeros_and_written_ones_stay(files: FileSystem) -> None:
    file = files.open("file", create=True)
    file.write_at(0, b"abc")
    file.reserve(10_000)
    assert file.size() == 10_000
    assert file.read_at(0, 10_001) == b"abc" + bytes(9_997)


def test_reserving_less_than_there_is_changes_nothing(files: FileSystem) -> None:
    file = files.open("file", create=True)
    file.write_at(0, b"abcdef")
    file.reserve(3)
    assert file.read_at(0, 10) == b"abcdef"


def test_what_is_cut_off_does_not_come_back_when_the_file_grows(files: FileSystem) -> None:
    file = files.open("file", create=True)
    file.write_at(0, b"abcdef")
    file.truncate(2)
    assert file.size() == 2
    file.reserve(4)
    assert file.read_at(0, 10) == b"ab\0\0"
    file.truncate(6)
    assert file.read_at(0, 10) == b"ab\0\0\0\0"


def test_creating_a_file_that_exists_is_refused(files: FileSystem) -> None:
    files.open("file", create=True).write_at(0, b"abc")
    with pytest.raises(StorageError, match="file"):
        files.open("file", create=True)
    assert read_whole(files, "file") == b"abc"


@pytest.mark.parametrize("path", ["missing", "missing/file"])
def test_opening_what_is_not_there_is_refused(files: FileSystem, path: str) -> None:
    assert not files.exists(path)
    with pytest.raises(StorageError, match=path):
        files.open(path)


def test_making_removing_and_listing_what_is_not_possible_is_refused(files: FileSystem) -> None:
    for attempt in (
        lambda: files.open("missing/file", create=True),
        lambda: files.remove("missing"),
        lambda: files.rename("missing", "other"),
        lambda: files.list_directory("missing"),
        lambda: files.fsync_directory("missing"),
        lambda: files.try_lock("missing/lock"),
    ):
        with pytest.raises(StorageError):
            attempt()


def test_a_removed_file_is_gone_by_name_but_open_handles_go_on(files: FileSystem) -> None:
    file = files.open("file", create=True)
    file.write_at(0, b"abc")
    files.remove("file")
    assert not files.exists("file")
    assert file.read_at(0, 3) == b"abc"
    file.fdatasync()
    file.close()


def test_what_is_opened_to_read_cannot_be_changed(files: FileSystem) -> None:
    files.open("file", create=True).write_at(0, b"abc")
    file = files.open_to_read("file")
    assert (file.size(), file.read_at(1, 5)) == (3, b"bc")
    for change in (lambda: file.write_at(0, b"x"), lambda: file.truncate(1), lambda: file.reserve(10)):
        with pytest.raises(StorageError, match="file"):
            change()
    assert read_whole(files, "file") == b"abc"
    with pytest.raises(StorageError, match="missing"):
        files.open_to_read("missing")


def test_a_read_only_file_is_read_written_by_who_has_it_open_and_goes_like_any_other(files: FileSystem) -> None:
    file = files.open("file", create=True)
    file.make_read_only()
    file.write_at(0, b"abc")
    file.fsync()
    assert files.open_to_read("file").read_at(0, 5) == b"abc"
    if not (isinstance(files, PosixFileSystem) and os.geteuid() == 0):  # root may write to any file
        with pytest.raises(StorageError, match="file"):
            files.open("file")
    files.rename("file", "other")
    files.remove("other")
    assert files.list_directory(".") == []


def test_renaming_takes_the_place_of_what_was_there(files: FileSystem) -> None:
    files.open("old", create=True).write_at(0, b"new content")
    files.open("new", create=True).write_at(0, b"old content")
    files.rename("old", "new")
    assert read_whole(files, "new") == b"new content"
    assert not files.exists("old")


def test_directories_are_made_with_those_above_and_listed_by_name(files: FileSystem) -> None:
    files.make_directories("a/b/c")
    files.make_directories("a/b/c")
    files.open("a/b/z", create=True)
    files.open("a/b/d", create=True)
    assert files.exists("a/b/c")
    assert files.list_directory("a/b") == ["c", "d", "z"]
    assert files.list_directory("a") == ["b"]
    assert files.list_directory("a/b/c") == []
    files.fsync_directory("a/b")


def test_a_directory_is_not_made_where_a_file_is(files: FileSystem) -> None:
    files.open("file", create=True)
    with pytest.raises(StorageError):
        files.make_directories("file/below")


def test_a_lock_is_held_by_one_at_a_time(files: FileSystem) -> None:
    lock = files.try_lock("lock")
    assert lock is not None
    assert files.try_lock("lock") is None
    lock.close()
    again = files.try_lock("lock")
    assert again is not None
    lock.close()
    assert files.try_lock("lock") is None, "closing a lock twice must not release another's"


def test_syncing_keeps_what_is_there(files: FileSystem) -> None:
    file = files.open("file", create=True)
    file.write_at(0, b"abc")
    file.fdatasync()
    file.write_at(3, b"def")
    file.fsync()
    files.fsync_directory(".")
    assert read_whole(files, "file") == b"abcdef"


def test_reserving_without_room_is_out_of_space_and_changes_nothing(files: FileSystem) -> None:
    file = files.open("file", create=True)
    file.write_at(0, b"abc")
    with room_for(files, 5_000), pytest.raises(OutOfSpace, match="file"):
        file.reserve(100_000)
    assert file.read_at(0, 10) == b"abc"
    file.reserve(100_000)
    assert file.size() == 100_000


def test_writing_without_room_is_out_of_space_and_works_again_with_room(files: FileSystem) -> None:
    file = files.open("file", create=True)
    with room_for(files, 10), pytest.raises(OutOfSpace, match="file"):
        file.write_at(4, b"abcdefghij")
    assert file.size() <= 10
    file.write_at(4, b"abcdefghij")
    assert file.read_at(4, 100) == b"abcdefghij"


def test_writing_what_was_reserved_needs_no_room(files: FileSystem) -> None:
    file = files.open("file", create=True)
    file.reserve(100)
    with room_for(files, 100):
        file.write_at(50, b"x" * 50)
    assert file.read_at(50, 50) == b"x" * 50


def test_a_new_file_appears_whole_in_the_place_of_the_old_one(files: FileSystem) -> None:
    write_new_file(files, "file", b"first")
    files.open("file.tmp", create=True).write_at(0, b"left by a crash")
    write_new_file(files, "file", b"2nd")
    assert read_whole(files, "file") == b"2nd"
    assert files.list_directory(".") == ["file"]


def test_paths_are_taken_apart_and_put_together() -> None:
    assert join("a/b", "c") == "a/b/c"
    assert join("/", "c") == "/c"
    assert join("", "c") == "c"
    assert parent_directory("a/b/c") == "a/b"
    assert parent_directory("a") == "."
    assert parent_directory("/a") == "/"


def test_files_and_directories_are_for_their_owner_only(tmp_path: Path) -> None:
    files = PosixFileSystem()
    files.make_directories(f"{tmp_path}/new/inner")
    files.open(f"{tmp_path}/new/file", create=True).close()
    lock = files.try_lock(f"{tmp_path}/new/lock")
    assert lock is not None
    lock.close()
    read_only = files.open(f"{tmp_path}/new/read-only", create=True)
    read_only.make_read_only()
    read_only.close()
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "new").iterdir()}
    assert modes == {"inner": 0o700, "file": 0o600, "lock": 0o600, "read-only": 0o400}
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_a_directory_is_renamed_with_what_is_in_it_and_open_files_stay_usable(files: FileSystem) -> None:
    files.make_directories("here")
    old, new = join("here", "old"), join("here", "new")
    files.make_directories(join(old, "inner"))
    file = files.open(join(old, "file"), create=True)
    file.write_at(0, b"before")
    files.rename_directory(old, new)
    file.write_at(6, b" and after")
    file.close()
    assert not files.exists(old)
    assert files.list_directory(new) == ["file", "inner"]
    assert read_whole(files, join(new, "file")) == b"before and after"
    files.make_directories(old)
    with pytest.raises(StorageError, match="cannot rename"):
        files.rename_directory(old, new)
    with pytest.raises(StorageError, match="cannot rename"):
        files.rename_directory(join("here", "none"), join("here", "other"))


def test_an_empty_directory_is_removed_and_no_other(files: FileSystem) -> None:
    path = join("here", "directory")
    files.make_directories(path)
    files.open(join(path, "file"), create=True).close()
    with pytest.raises(StorageError, match="cannot remove"):
        files.remove_directory(path)
    files.remove(join(path, "file"))
    files.remove_directory(path)
    assert not files.exists(path)
    with pytest.raises(StorageError, match="cannot remove"):
        files.remove_directory(path)


def test_the_room_shrinks_by_what_is_written_and_of_a_directory_that_is_not_there_nothing_is_known(
    files: FileSystem,
) -> None:
    files.make_directories("here")
    before = files.space("here")
    assert 0 < before.free_bytes <= before.total_bytes
    file = files.open(join("here", "file"), create=True)
    file.write_at(0, bytes(50_000_000))
    file.fsync()
    after = files.space("here")
    assert after.total_bytes == before.total_bytes
    assert after.free_bytes < before.free_bytes
    with pytest.raises(StorageError, match="cannot read the free space of none"):
        files.space("none")
