"""The file that says where a log starts."""

from __future__ import annotations

import pytest

from raft.core.epochs import LOG_BEGINNING
from raft.core.errors import StorageError
from raft.storage.checksum import crc32c
from raft.storage.files import FileSystem, read_whole, write_new_file
from raft.storage.log_start import LOG_START_NAME, decode_log_start, encode_log_start, read_log_start, write_log_start
from tests.raft.storage.builders import LOG, flip
from tests.raft.storage.log_start.builders import assert_holds, contents, filled, on_disk, opened, point


def test_the_file_says_what_it_was_told(files: FileSystem) -> None:
    files.make_directories(LOG)
    assert read_log_start(files, LOG) == LOG_BEGINNING
    for start in (point(3, 2), point(2**62, 2**31 - 1)):
        write_log_start(files, LOG, start)
        assert read_log_start(files, LOG) == start


def test_the_file_is_lines_of_text() -> None:
    lines = b"version=1\nstart.offset=41\nstart.epoch=7\n"
    assert encode_log_start(point(41, 7)) == lines + b"crc32c=%08x\n" % crc32c(lines)


def test_a_file_that_is_damaged_in_any_byte_stops_the_start_and_nothing_changes() -> None:
    files = on_disk(point(4))
    path = f"{LOG}/{LOG_START_NAME}"
    for position in range(len(read_whole(files, path))):
        flip(files, path, position)
        before = contents(files)
        with pytest.raises(StorageError, match=r"data/log/log-start is damaged.*Nothing was changed.*backup"):
            opened(files)
        assert contents(files) == before
        flip(files, path, position)
    assert opened(files).start == point(4)


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
