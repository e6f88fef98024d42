"""The mark of a directory that is new."""

from __future__ import annotations

import pytest

from kraftbase.files.files import join
from kraftbase.files.memory import MemoryFileSystem
from raft.storage.new_directory import (
    NEW_DIRECTORY_NAME,
    end_founding,
    read_new_directory,
    remove_new_directory,
    write_new_directory,
)

LOG = "node/log"


@pytest.fixture
def files() -> MemoryFileSystem:
    return MemoryFileSystem()


@pytest.mark.parametrize("is_replacement", [False, True])
def test_a_new_directory_says_whether_its_voter_may_found(files: MemoryFileSystem, is_replacement: bool) -> None:
    assert read_new_directory(files, LOG) is None
    write_new_directory(files, LOG, is_replacement=is_replacement)
    mark = read_new_directory(files, LOG)
    assert mark is not None
    assert mark.has_forgotten
    assert mark.may_found is not is_replacement
    remove_new_directory(files, LOG)
    assert read_new_directory(files, LOG) is None


def test_founding_ends_on_a_full_disk_durably(files: MemoryFileSystem) -> None:
    write_new_directory(files, LOG, is_replacement=False)
    files.space_limit = files.used_bytes()
    end_founding(files, LOG)
    assert files.durable_files(LOG)[NEW_DIRECTORY_NAME].data == b""
    mark = read_new_directory(files, LOG)
    assert mark is not None
    assert not mark.may_found


def test_a_damaged_mark_allows_no_more_than_a_replacement(files: MemoryFileSystem) -> None:
    write_new_directory(files, LOG, is_replacement=False)
    files.damage(join(LOG, NEW_DIRECTORY_NAME), 12, b"F")
    mark = read_new_directory(files, LOG)
    assert mark is not None
    assert not mark.may_found
