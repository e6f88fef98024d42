"""The file that records how a broker was shut down."""

from __future__ import annotations

import pytest

from kraftbase.files.files import join, write_new_file
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.files.properties import encode_properties
from kraftlog.broker.clean_shutdown import FILE_NAME, leave_clean_epoch, take_clean_epoch

DIRECTORY = "/brokers/1"
PATH = join(DIRECTORY, FILE_NAME)


@pytest.fixture
def files() -> MemoryFileSystem:
    """A disk that the broker has used before."""
    found = MemoryFileSystem()
    assert take_clean_epoch(found, DIRECTORY) is None
    return found


def test_an_epoch_is_taken_once(files: MemoryFileSystem) -> None:
    leave_clean_epoch(files, DIRECTORY, 2**63 - 1)
    assert take_clean_epoch(files, DIRECTORY) == 2**63 - 1
    assert take_clean_epoch(files, DIRECTORY) is None


def test_what_was_left_or_taken_outlives_a_crash(files: MemoryFileSystem) -> None:
    leave_clean_epoch(files, DIRECTORY, 5)
    leave_clean_epoch(files, DIRECTORY, 7)
    files.crash()
    assert take_clean_epoch(files, DIRECTORY) == 7
    files.crash()
    assert take_clean_epoch(files, DIRECTORY) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version=1\nbroker.epoch=7\n",
        encode_properties("version=1\nbroker.epoch=7\n").replace(b"7", b"8", 1),
        encode_properties("version=2\nbroker.epoch=7\n"),
        encode_properties("version=1\nbroker.epoch=-7\n"),
        encode_properties("version=1\n"),
    ],
)
def test_no_epoch_is_better_than_a_wrong_one(files: MemoryFileSystem, content: bytes) -> None:
    write_new_file(files, PATH, content)
    assert take_clean_epoch(files, DIRECTORY) is None
    assert not files.exists(PATH)
