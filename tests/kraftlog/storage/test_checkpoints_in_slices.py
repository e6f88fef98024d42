"""Checkpoints are written in slices, and in the disk's thread: what happens to a log meanwhile is newer, and stays."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from uuid import UUID

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.files.files import read_whole
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.partition import TopicPartition
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.formats.checkpoints import decode_offsets
from kraftlog.storage.formats.names import HIGH_WATERMARKS_NAME, LOG_STARTS_NAME, RECOVERY_POINTS_NAME
from kraftlog.storage.log_directory import LogDirectory
from kraftlog.storage.log_manager import LogManager
from kraftlog.storage.slices import SLICE_LINES, Steps
from tests.kraftlog.storage.builders import (
    CLICKS,
    CLUSTER_ID,
    NOW_MS,
    TOPIC_ID,
    StepRuntime,
    append,
    batch,
    checkpoint,
    log_in,
    open_directory,
)
from tests.kraftlog.storage.test_log_directory import open_manager

NAMES = (RECOVERY_POINTS_NAME, LOG_STARTS_NAME, HIGH_WATERMARKS_NAME)
DELETED = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")


def filled(files: MemoryFileSystem) -> LogDirectory:
    """A directory whose log of `CLICKS` has ten flushed and committed records, and starts at 3; nothing is written."""
    directory = open_directory(files)
    log = log_in(directory)
    for _ in range(10):
        append(log, batch(1))
    log.flush()
    log.advance_high_watermark(10)
    log.delete_records(3)
    return directory


def is_cut(directory: LogDirectory) -> None:
    log_in(directory).truncate(5)


def starts_over(directory: LogDirectory) -> None:
    log_in(directory).truncate_fully_and_start_at(4)


def loses_records(directory: LogDirectory) -> None:
    log_in(directory).delete_records(7)


def is_deleted(directory: LogDirectory) -> None:
    directory.removal.delete_log(CLICKS, UUID(int=8), DELETED)


def is_made_again(directory: LogDirectory) -> None:
    is_deleted(directory)
    directory.create_log(CLICKS, UUID(int=77), PartitionLogConfig(), NOW_MS, UUID(int=9))


def stays(directory: LogDirectory) -> None:
    pass


def run(steps: Steps, at: int, event: Callable[[], None]) -> bool:
    """Do the steps, and let something happen before one of them; returns whether there is such a step."""
    for number in count():
        if number == at:
            event()
        try:
            step = next(steps)
        except StopIteration:
            return number >= at
        if step is not None:
            step()
    raise AssertionError


@pytest.mark.parametrize("event", [is_cut, starts_over, loses_records, is_deleted, is_made_again, stays])
@pytest.mark.parametrize("written", [LogDirectory.checkpoint, LogDirectory.checkpoint_high_watermarks])
def test_no_file_says_more_than_the_log_has_whatever_happens_to_it_meanwhile(
    written: Callable[[LogDirectory], Steps], event: Callable[[LogDirectory], None]
) -> None:
    for at in count():
        files = MemoryFileSystem()
        directory = filled(files)
        if not run(written(directory), at, lambda: event(directory)):  # noqa: B023 - it is called before the next turn
            break
        files.crash()  # what is durable counts
        log = directory.logs.get(CLICKS)
        points, starts, watermarks = (offset_in(files, name) for name in NAMES)
        assert points <= (0 if log is None else log.recovery_point)
        assert starts == (0 if log is None else log.log_start_offset)
        assert watermarks <= (0 if log is None else log.high_watermark)
        found = log_in(open_directory(files))
        expected = (0, 0) if log is None else (log.log_start_offset, log.log_end_offset)
        assert (found.log_start_offset, found.log_end_offset) == expected
    assert at > 3


def offset_in(files: MemoryFileSystem, name: str) -> int:
    """What a file says of the log; 0 if it says nothing."""
    path = f"data/{name}"
    return decode_offsets(read_whole(files, path), path).get(CLICKS, 0) if files.exists(path) else 0


def test_db97_the_broker_begins_with_a_slice_and_does_the_rest_later_all_of_it() -> None:
    files, runtime = MemoryFileSystem(), StepRuntime()
    manager = open_manager(files, runtime, paths=("a",))
    for index in range(SLICE_LINES + 1):
        partition = TopicPartition("many", index)
        log = manager.directories[0].create_log(partition, UUID(int=5), PartitionLogConfig(), NOW_MS, UUID(int=9))
        append(log, batch(1))
        log.flush()
        log.advance_high_watermark(1)
    for begin, name in (
        (manager.checkpoint, RECOVERY_POINTS_NAME),
        (manager.checkpoint_high_watermarks, HIGH_WATERMARKS_NAME),
    ):
        begin()
        assert not files.exists(f"a/{name}")
        turns = 0
        while runtime.soon:
            runtime.soon.pop(0)()
            turns += 1
        assert turns >= 4  # the first slice was done at once; the second one, the file, its name, the end
        assert list(decode_offsets(read_whole(files, f"a/{name}"), name).values()) == [1] * (SLICE_LINES + 1)


def test_a_broker_that_stops_goes_on_with_nothing() -> None:
    files, runtime = MemoryFileSystem(), StepRuntime()
    manager = open_manager(files, runtime, paths=("a",))
    log = manager.create_log(CLICKS, UUID(int=5), PartitionLogConfig())
    append(log, batch(1))
    log.flush()
    manager.checkpoint()
    manager.stop_work()
    runtime.run()
    assert not files.exists(f"a/{RECOVERY_POINTS_NAME}")
    assert manager.close(1)
    assert files.exists(f"a/{RECOVERY_POINTS_NAME}")


def test_after_a_checkpoint_a_start_reads_only_what_was_appended_since() -> None:
    files, runtime = MemoryFileSystem(), StepRuntime()
    config = PartitionLogConfig(segment_bytes=200)
    manager = open_manager(files, runtime, paths=("a",), config=config)
    log = manager.create_log(CLICKS, TOPIC_ID, config)
    for _ in range(10):
        append(log, batch(1))
    log.flush()
    checkpoint(manager)
    assert b"clicks 0 10\n" in read_whole(files, "a/recovery-point-offset-checkpoint")
    files.crash()
    read: list[int] = []
    LogManager.open(
        files, ["a"], runtime, cluster_id=CLUSTER_ID, node_id=1, config_of=lambda partition: config,
        on_progress=lambda progress: read.append(progress.segments_to_read),
    )  # fmt: skip
    assert set(read) == {1}
