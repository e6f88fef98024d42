"""Appends of a directory are acknowledged together, when one flush has made them durable."""

from __future__ import annotations

from functools import partial
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from kraftbase.errors import ApiError, ErrorCode, InvariantViolation
from kraftbase.files.files import FileSystem
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.partition import TopicPartition
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.epoch_file import read_epochs
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.formats.names import LEADER_EPOCHS_NAME
from kraftlog.storage.group_commit import FLUSHED_LOGS_MAX, GroupCommit, LogFlushes
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

ORDERS = TopicPartition("orders", 3)
LOG = "data/clicks-0/00000000000000000000.log"
GONE = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")


def open_as(files: FileSystem, cluster_id: str = CLUSTER_ID, node_id: int = 1) -> LogDirectory:
    return LogDirectory.open(
        files, "data", FileHandles(files), StepRuntime(), cluster_id=cluster_id, node_id=node_id,
        new_directory_id=UUID(int=77),
    )  # fmt: skip


def test_appends_of_many_partitions_are_acknowledged_by_one_flush_and_are_durable_then() -> None:
    files, runtime = MemoryFileSystem(), StepRuntime()
    directory = open_directory(files, runtime=runtime)
    logs = [log_in(directory), directory.create_log(ORDERS, TOPIC_ID, PartitionLogConfig(), NOW_MS, UUID(int=7))]
    answered: list[ApiError | None] = []
    for _ in range(5):
        for log in logs:
            end_offset = append(log, batch(1)) + 1
            directory.acknowledge(log, end_offset, answered.append)
    assert answered == []
    runtime.run()
    assert answered == [None] * 10
    assert directory.commits.flush_times.count == 1
    assert directory.commits.is_idle
    files.crash()
    again = open_directory(files)
    assert [again.logs[partition].log_end_offset for partition in (CLICKS, ORDERS)] == [5, 5]


def test_appends_that_come_during_a_flush_wait_for_the_next_one() -> None:
    files, runtime = MemoryFileSystem(), StepRuntime()
    directory = open_directory(files, runtime=runtime)
    log = log_in(directory)
    answered: list[str] = []

    def note(name: str) -> None:
        answered.append(f"{name} at {log.recovery_point}")

    directory.acknowledge(log, append(log, batch(1)) + 1, lambda error: note("first"))
    directory.commits._flusher.recent_flush_ms = 1_000.0  # the disk is slow: the flush runs in the thread
    runtime.soon.pop(0)()
    directory.acknowledge(log, append(log, batch(1)) + 1, lambda error: note("second"))
    runtime.run()
    assert answered == ["first at 1", "second at 2"]
    assert directory.commits.flush_times.count == 2


def test_without_flush_before_ack_an_append_is_acknowledged_at_once_until_flush_messages() -> None:
    runtime = StepRuntime()
    config = PartitionLogConfig(flush_before_ack=False, flush_messages=3)
    directory = open_directory(MemoryFileSystem(), runtime=runtime, config=config)
    log = log_in(directory, config)
    answered: list[ApiError | None] = []
    directory.acknowledge(log, append(log, batch(2)) + 2, answered.append)
    assert (answered, log.recovery_point) == ([None], 0)
    directory.acknowledge(log, append(log, batch(1)) + 1, answered.append)
    assert len(answered) == 1
    runtime.run()
    assert (answered, log.recovery_point) == ([None, None], 3)


@pytest.mark.parametrize("is_slow", [False, True], ids=["on the loop", "in the thread"])
def test_a_callback_that_fails_is_logged_and_neither_a_failure_of_the_disk_nor_in_the_way_of_others(
    is_slow: bool,
) -> None:
    runtime = StepRuntime()
    directory = open_directory(MemoryFileSystem(), runtime=runtime)
    log = log_in(directory)
    answered: list[str] = []

    def note(name: str, error: ApiError | None) -> None:
        answered.append(f"{name}: {'durable' if error is None else error.code.name}")
        if name == "broken":
            raise KeyError("a mistake of the caller")

    if is_slow:
        directory.commits._flusher.recent_flush_ms = 1_000.0
    for name in ("before", "broken", "after"):
        directory.acknowledge(log, append(log, batch(1)) + 1, partial(note, name))
    with capture_logs() as logged:
        runtime.run()
    assert answered == ["before: durable", "broken: durable", "after: durable"]
    (entry,) = logged
    assert (entry["log_level"], entry["topic"], entry["partition"], entry["end_offset"]) == ("error", *CLICKS, 2)
    assert not directory.offline_reason
    directory.acknowledge(log, append(log, batch(1)) + 1, partial(note, "later"))
    runtime.run()
    assert answered[-1] == "later: durable"


def test_an_invariant_that_a_callback_finds_violated_ends_the_process_when_the_others_are_told() -> None:
    runtime = StepRuntime()
    directory = open_directory(MemoryFileSystem(), runtime=runtime)
    log = log_in(directory)
    answered: list[ApiError | None] = []

    def fail(error: ApiError | None) -> None:
        answered.append(error)
        raise InvariantViolation("what is committed is in the log")

    for on_durable in (fail, answered.append):
        directory.acknowledge(log, append(log, batch(1)) + 1, on_durable)
    with pytest.raises(InvariantViolation):
        runtime.run()
    assert answered == [None, None]
    assert not directory.offline_reason
    directory.acknowledge(log, append(log, batch(1)) + 1, answered.append)
    runtime.run()
    assert answered == [None, None, None]


def test_a_callback_that_fails_is_not_in_the_way_of_others_that_are_refused() -> None:
    files, runtime = MemoryFileSystem(), StepRuntime()
    directory = open_directory(files, runtime=runtime)
    log, other = log_in(directory), directory.create_log(ORDERS, TOPIC_ID, PartitionLogConfig(), NOW_MS, UUID(int=7))
    answered: list[ErrorCode | None] = []

    def fail(error: ApiError | None) -> None:
        answered.append(error and error.code)
        raise KeyError("a mistake of the caller")

    for _ in range(2):
        directory.acknowledge(log, append(log, batch(1)) + 1, fail)
        directory.acknowledge(other, append(other, batch(1)) + 1, fail)
    directory.removal.delete_log(ORDERS, UUID(int=1), GONE)
    assert answered == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    files.failing_syncs.add(LOG)
    runtime.run()
    assert answered[2:] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert "fdatasync of data/clicks-0" in directory.offline_reason


def test_a_flush_that_fails_takes_the_directory_offline_and_nothing_is_acknowledged() -> None:
    files, runtime = MemoryFileSystem(), StepRuntime()
    directory = open_directory(files, runtime=runtime)
    log = log_in(directory)
    answered: list[ApiError | None] = []
    directory.acknowledge(log, append(log, batch(1)) + 1, answered.append)
    files.failing_syncs.add(LOG)
    runtime.run()
    (error,) = answered
    assert error is not None and error.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "fdatasync of data/clicks-0" in directory.offline_reason
    files.failing_syncs.clear()
    with pytest.raises(ApiError, match="is offline"):
        append(log, batch(1))
    directory.close(broker_epoch=1)
    assert not files.exists("data/.kafka_cleanshutdown"), "it is recovered at the next start"


def test_an_append_that_is_truncated_while_it_waits_is_not_acknowledged() -> None:
    runtime = StepRuntime()
    directory = open_directory(MemoryFileSystem(), runtime=runtime)
    log = log_in(directory)
    answered: list[ApiError | None] = []
    append(log, batch(1))
    directory.acknowledge(log, append(log, batch(1)) + 1, answered.append)
    log.truncate(1)
    runtime.run()
    assert [error.code for error in answered if error] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_db97_many_logs_are_flushed_in_the_thread_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    files, runtime = MemoryFileSystem(), StepRuntime()
    directory = open_directory(files, runtime=runtime)
    count = 2 * FLUSHED_LOGS_MAX + 1
    begun: list[int] = []
    synced_on_loop: list[str] = []
    start_flush = GroupCommit.start_flush

    def start(self: GroupCommit) -> LogFlushes:
        flushes = start_flush(self)
        begun.append(len(flushes.pending))
        return flushes

    monkeypatch.setattr(GroupCommit, "start_flush", start)
    answered: list[ApiError | None] = []
    names = [TopicPartition("many", number) for number in range(count)]
    for name in names:
        log = directory.create_log(name, TOPIC_ID, PartitionLogConfig(), NOW_MS, UUID(int=7))
        log.assign_epoch(3)
        directory.acknowledge(log, append(log, batch(1)) + 1, answered.append)
    files.before_operation = lambda operation, path: (
        synced_on_loop.append(operation) if "sync" in operation and "many-" in path else None
    )
    runtime.soon.pop(0)()
    assert (begun, answered, synced_on_loop) == ([FLUSHED_LOGS_MAX], [], []), "it is in the thread"
    runtime.soon.pop(0)()
    assert answered == [None] * FLUSHED_LOGS_MAX
    runtime.run()
    assert begun == [FLUSHED_LOGS_MAX, FLUSHED_LOGS_MAX, 1]
    assert answered == [None] * count
    for name in names:
        assert files.exists(f"{directory.logs[name].directory}/{LEADER_EPOCHS_NAME}")


def test_the_epochs_of_a_deleted_log_do_not_get_into_the_log_that_has_its_name() -> None:
    files, runtime = MemoryFileSystem(), StepRuntime()
    directory = open_directory(files, runtime=runtime)
    log = log_in(directory)
    log.assign_epoch(3)
    append(log, batch(1))
    pending = log.durability.start_flush()
    directory.removal.delete_log(log.partition, UUID(int=5), GONE)
    new = directory.create_log(log.partition, UUID(int=9), PartitionLogConfig(), NOW_MS, UUID(int=7))
    pending.run()
    log.durability.finish_flush(pending)
    assert not any(LEADER_EPOCHS_NAME in name for name in files.list_directory(new.directory))


def test_epochs_that_change_while_they_are_written_are_written_again() -> None:
    files = MemoryFileSystem()
    log = log_in(open_directory(files))
    log.assign_epoch(3)
    append(log, batch(1))
    pending = log.durability.start_flush()
    log.assign_epoch(4)
    pending.run()
    log.durability.finish_flush(pending)
    assert read_epochs(files, log.directory) == [(3, 0)]
    assert log.epochs.is_changed
    append(log, batch(1))
    log.flush()
    assert (read_epochs(files, log.directory), log.epochs.is_changed) == ([(3, 0), (4, 1)], False)
