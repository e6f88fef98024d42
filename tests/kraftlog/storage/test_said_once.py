"""What is wrong with a log directory is said once, with what to do."""

from __future__ import annotations

from uuid import UUID

import pytest
from structlog.testing import capture_logs

from kraftbase.errors import ApiError, ErrorCode, StorageError
from kraftbase.files.files import FileSystem, read_whole
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.partition import TopicPartition
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.log_directory import LogDirectory
from tests.kraftlog.storage.builders import (
    CLICKS,
    CLUSTER_ID,
    NOW_MS,
    TOPIC_ID,
    StepRuntime,
    append,
    batch,
    log_in,
    open_directory,
)

GONE = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")


def open_as(files: FileSystem) -> LogDirectory:
    return LogDirectory.open(
        files, "data", FileHandles(files), StepRuntime(), cluster_id=CLUSTER_ID, node_id=1,
        new_directory_id=UUID(int=77),
    )  # fmt: skip


def test_a_directory_id_that_has_changed_is_named_with_the_right_one() -> None:
    """The controller would take every replica in the directory for one that has lost its records."""
    files = MemoryFileSystem()
    append(log_in(open_directory(files)), batch(2))
    files.end_process()
    meta = read_whole(files, "data/meta.properties")
    at = meta.index(b"directory.id=") + len(b"directory.id=")
    files.damage("data/meta.properties", at, bytes([meta[at] ^ 1]))
    with pytest.raises(StorageError, match=r"Restore directory\.id="):
        open_as(files)
    files.damage("data/meta.properties", at, meta[at : at + 1])
    assert log_in(open_directory(files)).log_end_offset == 2


def test_strays_are_named_once_for_each_start() -> None:
    files = MemoryFileSystem()
    directory = open_directory(files)
    append(log_in(directory), batch(2))
    kept_as = directory.removal.set_stray_aside(CLICKS, UUID(int=8), GONE)
    directory.close(broker_epoch=1)
    with capture_logs() as lines:
        open_directory(files)
    (line,) = [line for line in lines if "stray logs are kept" in line["event"]]
    assert (line["count"], line["first"]) == (1, [kept_as])


def test_a_full_disk_is_said_once_for_all_logs_and_again_after_there_was_room() -> None:
    files = MemoryFileSystem()
    directory = open_directory(files)
    logs = [
        directory.create_log(TopicPartition("clicks", number), TOPIC_ID, PartitionLogConfig(), NOW_MS, UUID(int=7))
        for number in range(3)
    ]

    def refused_everywhere() -> None:
        files.space_limit = files.used_bytes() + 20
        for log in logs * 5:
            with pytest.raises(ApiError, match="no space left"):
                append(log, batch(1))
        files.space_limit = None

    def measure() -> None:
        directory.full_disk.measured(directory.space())

    with capture_logs() as said:
        refused_everywhere()
        measure()
        refused_everywhere()
        measure()
    (line,) = said
    assert "a log directory is full" in line["event"]
    assert "retention.ms" in line["advice"]
    assert (line["path"], line["log_level"]) == ("data", "error")
    with capture_logs() as said:
        measure()
        refused_everywhere()
    assert [line["event"][:27] for line in said] == ["a log directory has room ag", "a log directory is full: wr"]
    assert said[0]["refused"] == 30
