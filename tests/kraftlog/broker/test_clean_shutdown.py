"""The file that records how a broker was shut down."""

from __future__ import annotations

import pytest

from kraftbase.files.files import join, write_new_file
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.files.properties import encode_properties
from kraftbase.uuids import random_cluster_id, random_uuid
from kraftlog.broker.clean_shutdown import FILE_NAME, leave_clean_epoch, take_clean_epoch
from kraftlog.broker.directory import BrokerDirectory

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


@pytest.mark.parametrize(("of_logs", "trusted"), [(7, 7), (6, None), (None, None)])
def test_an_epoch_counts_only_if_the_log_directories_have_it_too(of_logs: int | None, trusted: int | None) -> None:
    files = MemoryFileSystem()
    first = BrokerDirectory.open(files, DIRECTORY, 1)
    first.claim(random_cluster_id(), random_uuid())
    assert not first.has_log_directories
    first.note_log_directories()
    first.close(7)
    files.crash()
    again = BrokerDirectory.open(files, DIRECTORY, 1)
    assert again.has_log_directories
    assert again.clean_epoch == 7
    again.trust_clean_epoch_of_logs(of_logs)
    assert again.clean_epoch == trusted
