"""The file with the start of a log."""

from __future__ import annotations

import pytest

from kraftbase.checksum import crc32c
from kraftbase.errors import StorageError
from kraftbase.files.files import FileSystem, read_whole, write_new_file
from raft.core.epochs import LOG_BEGINNING
from raft.core.types import UNKNOWN_UNTIL_OFFSET
from raft.storage.copies import copy_paths
from raft.storage.log_start_file import (
    LOG_START_NAME,
    decode_log_start,
    encode_log_start,
    read_log_start,
    write_log_start,
)
from tests.raft.storage.builders import LOG, flip
from tests.raft.storage.log_start.builders import (
    accepting,
    assert_empty_at,
    assert_holds,
    contents,
    filled,
    on_disk,
    opened,
    point,
)


def test_the_file_says_what_it_was_told(files: FileSystem) -> None:
    files.make_directories(LOG)
    assert read_log_start(files, LOG) == LOG_BEGINNING
    for start in (point(3, 2), point(2**62, 2**31 - 1)):
        write_log_start(files, LOG, start)
        assert read_log_start(files, LOG) == start


def test_the_file_is_lines_of_text() -> None:
    lines = b"version=1\nstart.offset=41\nstart.epoch=7\n"
    assert encode_log_start(point(41, 7)) == lines + b"crc32c=%08x\n" % crc32c(lines)


def damage_both(files: FileSystem, position: int) -> None:
    for path in copy_paths(LOG, LOG_START_NAME):
        flip(files, path, position)


def test_a_sole_voter_whose_copies_are_damaged_does_not_start_and_nothing_changes() -> None:
    files = on_disk(point(4))
    for position in range(len(read_whole(files, f"{LOG}/{LOG_START_NAME}"))):
        damage_both(files, position)
        before = contents(files)
        with pytest.raises(StorageError, match=r"data/log/log-start.* is damaged.*Nothing of the log was changed"):
            opened(files)
        assert contents(files) == before
        damage_both(files, position)
    assert opened(files).start == point(4)


def test_with_others_to_fetch_from_it_recovers_everything() -> None:
    files = on_disk(point(4))
    damage_both(files, 12)
    log = accepting(files)
    assert_empty_at(log, LOG_BEGINNING)
    assert log.recovering is not None
    assert log.recovering.until_offset == UNKNOWN_UNTIL_OFFSET


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("how", ["damaged", "lost", "older"])
def test_one_copy_is_brought_back_from_the_other(which: int, how: str) -> None:
    files = on_disk(point(4))
    paths = copy_paths(LOG, LOG_START_NAME)
    whole = read_whole(files, paths[0])
    match how:
        case "damaged":
            flip(files, paths[which], 12)
        case "lost":
            files.remove(paths[which])
        case _:
            write_new_file(files, paths[which], encode_log_start(point(2)))
    assert read_log_start(files, LOG) == point(4)
    assert_holds(opened(files), point(4))
    assert [read_whole(files, path) for path in paths] == [whole, whole]


def test_the_one_copy_of_an_older_program_is_read_and_gets_a_second() -> None:
    files = on_disk(point(4))
    first, second = copy_paths(LOG, LOG_START_NAME)
    files.remove(second)
    files.fsync_directory(LOG)
    assert_holds(opened(files), point(4))
    assert read_whole(files, second) == read_whole(files, first)


def test_a_file_of_another_version_is_refused_by_name() -> None:
    lines = b"version=2\nstart.offset=41\nstart.epoch=7\n"
    with pytest.raises(StorageError, match="here has format version 2; this program knows version 1"):
        decode_log_start(lines + b"crc32c=%08x\n" % crc32c(lines), "here")


def test_what_is_left_under_the_temporary_name_means_nothing(files: FileSystem) -> None:
    filled(files).close()
    write_new_file(files, f"{LOG}/{LOG_START_NAME}.tmp", encode_log_start(point(8)))
    log = opened(files)
    assert_holds(log, LOG_BEGINNING)
    log.advance_start(point(4))
    assert_holds(opened(files), point(4))
