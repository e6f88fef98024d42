"""One log directory and several: whose they are, group commit, full disks, disks that fail, clean shutdowns."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraftbase.errors import ApiError, DirectoryError, ErrorCode, StorageError
from kraftbase.files.files import FileSystem, read_whole, write_new_file
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.partition import TopicPartition
from kraftlog.storage.config import DAY_MS, PartitionLogConfig
from kraftlog.storage.damage import DamagedSegment
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.log_directory import LogDirectory
from kraftlog.storage.log_manager import LogManager
from kraftlog.storage.registered_epoch import note_registration
from kraftlog.storage.set_aside import set_copies_aside
from kraftlog.storage.slices import run_at_once
from tests.kraftlog.storage.agreement import check_agreement
from tests.kraftlog.storage.builders import (
    CLICKS,
    CLUSTER_ID,
    DIRECTORY_ID,
    NOW_MS,
    TOPIC_ID,
    StepRuntime,
    all_batches,
    append,
    batch,
    checkpoint,
    delete_log,
    log_in,
    open_directory,
    produced,
)

ORDERS = TopicPartition("orders", 3)
LOG = "data/clicks-0/00000000000000000000.log"
GONE = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")


def open_as(files: FileSystem, cluster_id: str = CLUSTER_ID, node_id: int = 1) -> LogDirectory:
    return LogDirectory.open(
        files, "data", FileHandles(files), StepRuntime(), cluster_id=cluster_id, node_id=node_id,
        new_directory_id=UUID(int=77),
    )  # fmt: skip


def test_a_directory_is_one_brokers_and_no_other_process_uses_it(files: FileSystem) -> None:
    directory = open_directory(files)
    with pytest.raises(DirectoryError, match="in use by another process"):
        open_as(files)
    directory.close(broker_epoch=1)
    with pytest.raises(DirectoryError, match="belongs to cluster") as raised:
        open_as(files, cluster_id="another")
    assert raised.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    with pytest.raises(DirectoryError, match="belongs to broker 1, and this is broker 2"):
        open_as(files, node_id=2)
    assert open_as(files).directory_id == DIRECTORY_ID


def test_the_broker_epoch_of_a_clean_shutdown_is_known_once() -> None:
    files = MemoryFileSystem()
    open_directory(files).close(broker_epoch=41)
    directory = open_as(files)
    assert directory.records.clean_broker_epoch == 41
    directory.load(lambda partition: PartitionLogConfig(), NOW_MS)
    files.crash()
    assert open_as(files).records.clean_broker_epoch is None


def test_a_file_of_log_starts_that_is_damaged_is_named_and_one_of_recovery_points_does_no_harm() -> None:
    files = MemoryFileSystem()
    directory = open_directory(files)
    append(log_in(directory), batch(2))
    directory.close(broker_epoch=1)
    write_new_file(files, "data/recovery-point-offset-checkpoint", b"0\nx\n")
    assert log_in(open_directory(files)).log_end_offset == 2
    files.end_process()
    write_new_file(files, "data/log-start-offset-checkpoint", b"0\nx\n")
    assert log_in(open_directory(files)).log_end_offset == 2  # the inventory has the log's start as well
    files.end_process()
    write_new_file(files, "data/log-start-offset-checkpoint", b"0\nx\n")
    files.remove("data/kraftlog-inventory")
    with pytest.raises(StorageError, match="which records were deleted"):
        open_as(files)


@pytest.mark.parametrize(
    ("name", "words"),
    [("00000000000000000000.log", "byte 0"), ("partition.metadata", "which topic the records are of")],
)
def test_a_partition_that_has_rotted_is_offline_at_a_start_and_the_others_are_not(name: str, words: str) -> None:
    files = MemoryFileSystem()
    directory = open_directory(files)
    append(log_in(directory), batch(2))
    append(directory.create_log(ORDERS, TOPIC_ID, PartitionLogConfig(), NOW_MS, UUID(int=7)), batch(1))
    directory.close(broker_epoch=1)
    path = f"data/clicks-0/{name}"
    write_new_file(files, path, bytes(16) + read_whole(files, path)[16:])
    files.remove("data/kraftlog-inventory")  # which has the topic's id as well
    again = open_directory(files)
    assert again.offline_reason == ""
    assert list(again.logs) == [ORDERS]
    assert words in again.damaged[CLICKS]


# --- full disks -------------------------------------------------------------------------------------------------------


def test_a_full_disk_refuses_appends_and_takes_them_when_there_is_room() -> None:
    files = MemoryFileSystem()
    directory = open_directory(files)
    log = log_in(directory)
    append(log, batch(1))
    before = all_batches(log)
    files.space_limit = files.used_bytes() + 20
    with pytest.raises(ApiError, match="no space left") as raised:
        append(log, batch(3))
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not directory.offline_reason
    assert all_batches(log) == before
    assert len(read_whole(files, LOG)) == len(before[0])
    files.space_limit = None
    assert append(log, batch(3)) == 1


def test_a_full_disk_at_a_roll_leaves_the_log_as_it_is() -> None:
    files = MemoryFileSystem()
    config = PartitionLogConfig(segment_bytes=100, preallocates=True)
    directory = open_directory(files, config=config)
    log = log_in(directory, config)
    append(log, batch(1))
    files.space_limit = files.used_bytes() + 60
    with pytest.raises(ApiError, match="no space left"):
        append(log, batch(1))
    files.space_limit = None
    assert append(log, batch(1)) == 1
    files.end_process()
    assert log_in(open_directory(files, config=config)).log_end_offset == 2


def test_producers_and_checkpoints_wait_for_room() -> None:
    files, runtime = MemoryFileSystem(), StepRuntime()
    directory = open_directory(files, runtime=runtime)
    log = log_in(directory)
    log.assign_epoch(3)
    append(log, produced(7, 0), epoch=3)
    files.space_limit = files.used_bytes()
    answered: list[ApiError | None] = []
    directory.acknowledge(log, 1, answered.append)
    runtime.run()
    assert [error.code for error in answered if error] == [ErrorCode.KAFKA_STORAGE_ERROR]
    with pytest.raises(ApiError, match="no space left"):
        directory.create_log(ORDERS, TOPIC_ID, PartitionLogConfig(), NOW_MS, UUID(int=7))
    assert not directory.offline_reason
    files.space_limit = None
    directory.acknowledge(log, 1, answered.append)
    runtime.run()
    assert answered[-1] is None
    files.crash()
    assert log_in(open_directory(files)).epochs.entries() == ((3, 0),)


def test_a_log_start_that_found_no_room_is_written_when_it_is_asked_for_again() -> None:
    files = MemoryFileSystem()
    directory = open_directory(files)
    log = log_in(directory)
    append(log, batch(3))
    log.flush()
    log.advance_high_watermark(3)
    files.space_limit = files.used_bytes()
    with pytest.raises(ApiError, match="no space left"):
        log.delete_records(2)
    files.space_limit = None
    assert log.delete_records(2) == 2
    files.crash()
    assert log_in(open_directory(files)).log_start_offset == 2


def test_checkpoints_of_a_deleted_log_that_found_no_room_to_go_are_not_those_of_the_next_one() -> None:
    files = MemoryFileSystem()
    directory = open_directory(files)
    log = log_in(directory)
    append(log, batch(3))
    log.advance_high_watermark(log.flush())
    log.delete_records(3)
    files.space_limit = files.used_bytes()
    directory.removal.delete_log(CLICKS, UUID(int=1), GONE)  # for the inventory there is room, not for the checkpoints
    with pytest.raises(ApiError, match="no space left"):
        log_in(directory)
    files.space_limit = None
    log = log_in(directory)
    append(log, batch(2))
    log.flush()
    files.crash()
    log = log_in(open_directory(files))
    assert (log.log_start_offset, log.log_end_offset) == (0, 2)


def test_a_start_on_a_full_disk_leaves_nothing_offline_and_its_indexes_are_written_when_there_is_room() -> None:
    files = MemoryFileSystem()
    config = PartitionLogConfig(segment_bytes=400, index_interval_bytes=0)
    log = log_in(open_directory(files, config=config), config)
    log.assign_epoch(3)
    for index in range(12):
        append(log, batch(2, timestamp_ms=NOW_MS + index), epoch=3)
    log.flush()
    files.end_process()
    before, index_path = all_batches(log_in(open_directory(files, config=config))), "data/clicks-0/{:020}.timeindex"
    files.end_process()
    files.remove("data/kraftlog-inventory")  # so that the segments are read again
    files.space_limit = 0
    directory = open_directory(files, config=config)
    log = log_in(directory, config)
    assert (directory.offline_reason, all_batches(log), log.recovery_point) == ("", before, 24)
    assert log.durability.flush_due_ms(PartitionLogConfig(flush_ms=100)) in (None, NOW_MS + 100)
    assert not files.exists(index_path.format(0))
    with pytest.raises(ApiError, match="no space left"):
        append(log, batch(1), epoch=3)
    files.space_limit = None
    run_at_once(directory.checkpoint())
    append(log, batch(1, timestamp_ms=NOW_MS + 100), epoch=3)
    log.flush()
    assert files.exists(index_path.format(0))
    run_at_once(directory.checkpoint())
    files.crash()
    log = log_in(open_directory(files, config=config))
    assert all_batches(log)[:-1] == before
    for index in range(12):
        found = log.reader.find_timestamp(NOW_MS + index)
        assert found is not None
        assert found.timestamp_ms == NOW_MS + index
    check_agreement(log)


# --- several directories ----------------------------------------------------------------------------------------------


def open_manager(
    files: MemoryFileSystem,
    runtime: StepRuntime,
    paths: tuple[str, ...] = ("a", "b"),
    config: PartitionLogConfig | None = None,
) -> LogManager:
    ids = iter(range(1, 100))
    return LogManager.open(
        files, paths, runtime, cluster_id=CLUSTER_ID, node_id=1,
        config_of=lambda partition: config or PartitionLogConfig(), new_id=lambda: UUID(int=next(ids)),
    )  # fmt: skip


def test_a_broker_was_shut_down_cleanly_only_if_all_of_its_directories_were_with_one_epoch() -> None:
    files = MemoryFileSystem()
    manager = open_manager(files, StepRuntime())
    assert manager.clean_broker_epoch is None
    assert manager.close(broker_epoch=41)
    manager = open_manager(files, StepRuntime())
    assert manager.clean_broker_epoch == 41
    assert manager.close(broker_epoch=42)
    for name in files.list_directory("b"):
        files.remove(f"b/{name}")
    emptied = open_manager(files, StepRuntime())
    assert emptied.clean_broker_epoch is None
    assert emptied.close(broker_epoch=43)
    open_manager(files, StepRuntime(), paths=("b",)).close(broker_epoch=44)
    differing = open_manager(files, StepRuntime())
    assert differing.clean_broker_epoch is None
    assert differing.close(broker_epoch=45)
    files.failing_reads.add("b/meta.properties")
    assert open_manager(files, StepRuntime()).clean_broker_epoch is None


def test_a_directory_that_was_not_there_for_a_start_is_as_it_was_at_its_own_clean_shutdown() -> None:
    files = MemoryFileSystem()
    assert open_manager(files, StepRuntime()).close(broker_epoch=41)
    note_registration(files, "a", 41)
    assert open_manager(files, StepRuntime(), paths=("b",)).close(broker_epoch=44)
    both = open_manager(files, StepRuntime())
    assert both.clean_broker_epoch == 44
    assert both.close(broker_epoch=45)
    note_registration(files, "a", 46)  # and it was killed then
    assert open_manager(files, StepRuntime(), paths=("b",)).close(broker_epoch=47)
    assert open_manager(files, StepRuntime()).clean_broker_epoch is None


@pytest.mark.parametrize("assigned", ["a", "b", "neither"])
def test_of_two_copies_that_is_used_which_the_metadata_has_or_else_the_later_one(assigned: str) -> None:
    """A partition was moved from a directory that was offline, and that is there again."""
    files, runtime = MemoryFileSystem(), StepRuntime()
    ends = {"a": 3, "b": 10}
    manager = open_manager(files, runtime)
    for directory in manager.directories:
        log = directory.create_log(CLICKS, TOPIC_ID, PartitionLogConfig(), NOW_MS, UUID(int=50))
        append(log, batch(ends[directory.path]))
    assert manager.close(broker_epoch=1)
    manager = open_manager(files, runtime)
    ids = {directory.path: directory.directory_id for directory in manager.directories}
    set_copies_aside(manager, CLICKS, TOPIC_ID, ids.get(assigned, UUID(int=0)))
    assert manager.log_of(CLICKS).log_end_offset == ends.get(assigned, 10)
    other = {"a": "b", "b": "a", "neither": "a"}[assigned]
    assert [name for name in files.list_directory(other) if name.startswith("clicks-0.")]
    delete_log(manager, CLICKS, GONE)
    assert manager.directory_of(CLICKS) is None


def test_a_log_that_is_not_used_any_more_is_not_flushed_and_costs_no_other_one_anything() -> None:
    """Damage was found while somebody was about to have the log flushed."""
    files, runtime = MemoryFileSystem(), StepRuntime()
    manager = open_manager(files, runtime, paths=("a",))
    log, other = (manager.create_log(of, TOPIC_ID, PartitionLogConfig()) for of in partitions(2))
    append(log, batch(1))
    append(other, batch(1))
    (directory,) = manager.directories
    directory.partition_damaged(log.partition, DamagedSegment("a/clicks-0/00000000000000000000.log", 0, "it rotted"))
    answers: list[ApiError | None] = []
    log.acknowledge(1, answers.append)
    other.acknowledge(1, answers.append)
    runtime.run()
    assert [None if answer is None else answer.code for answer in answers] == [ErrorCode.KAFKA_STORAGE_ERROR, None]
    assert not directory.offline_reason


def test_a_log_is_flushed_by_the_directory_that_it_is_in_whatever_another_one_has() -> None:
    manager = open_manager(MemoryFileSystem(), runtime := StepRuntime(), paths=("a", "b"))
    first, second = manager.directories
    log = manager.create_log(CLICKS, TOPIC_ID, PartitionLogConfig(), second.directory_id)
    first.damaged[CLICKS] = "an old copy, which rotted"
    append(log, batch(1))
    answers: list[ApiError | None] = []
    log.acknowledge(1, answers.append)
    runtime.run()
    assert answers == [None]
    assert (first.commits.flush_times.count, second.commits.flush_times.count) == (0, 1)


def partitions(count: int) -> list[TopicPartition]:
    return [TopicPartition("clicks", index) for index in range(count)]


def test_partitions_go_to_the_directory_with_the_fewest_and_never_to_a_cordoned_one() -> None:
    files = MemoryFileSystem()
    manager = open_manager(files, StepRuntime())
    for partition in partitions(4):
        manager.create_log(partition, TOPIC_ID, PartitionLogConfig())
    assert [len(directory.logs) for directory in manager.directories] == [2, 2]
    manager.cordoned = frozenset({UUID(int=1)})
    manager.create_log(ORDERS, TOPIC_ID, PartitionLogConfig())
    found = manager.directory_of(ORDERS)
    assert found is not None and found.path == "b"
    manager.cordoned = frozenset({UUID(int=1), UUID(int=2)})
    with pytest.raises(ApiError, match="offline or cordoned"):
        manager.create_log(TopicPartition("more", 0), TOPIC_ID, PartitionLogConfig())
    with pytest.raises(ApiError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        manager.log_of(TopicPartition("more", 0))


def test_a_directory_that_fails_takes_only_its_own_partitions_offline() -> None:
    files = MemoryFileSystem()
    manager = open_manager(files, StepRuntime())
    first, second = (manager.create_log(partition, TOPIC_ID, PartitionLogConfig()) for partition in partitions(2))
    files.failing_reads.add(f"{first.directory}/00000000000000000000.log")
    append(first, batch(1))
    with pytest.raises(ApiError, match="KAFKA_STORAGE_ERROR"):
        first.reader.read(0, 100, 1)
    with pytest.raises(ApiError, match="the log directory a is offline"):
        manager.log_of(first.partition)
    assert append(manager.log_of(second.partition), batch(1)) == 0
    assert [directory.path for directory in manager.online] == ["b"]
    assert manager.create_log(ORDERS, TOPIC_ID, PartitionLogConfig()).directory == "b/orders-3"
    manager.close(broker_epoch=9)
    assert (files.exists("a/.kafka_cleanshutdown"), files.exists("b/.kafka_cleanshutdown")) == (False, True)


def test_a_directory_that_cannot_be_opened_leaves_the_others() -> None:
    files = MemoryFileSystem()
    open_manager(files, StepRuntime()).close(broker_epoch=1)
    files.failing_reads.add("a/meta.properties")
    manager = open_manager(files, StepRuntime())
    assert list(manager.failed) == ["a"]
    assert [directory.path for directory in manager.online] == ["b"]


def test_all_logs_are_there_after_a_kill() -> None:
    files, runtime = MemoryFileSystem(), StepRuntime()
    manager = open_manager(files, runtime)
    for partition in partitions(6):
        append(manager.create_log(partition, TOPIC_ID, PartitionLogConfig()), batch(partition.partition_id + 1))
    files.end_process()
    manager = open_manager(files, runtime)
    assert [manager.log_of(partition).log_end_offset for partition in partitions(6)] == [1, 2, 3, 4, 5, 6]
    found = [directory.records.topic_ids for directory in manager.directories]
    assert found[0] | found[1] == dict.fromkeys(partitions(6), TOPIC_ID)


def test_maintenance_deletes_and_flushes_but_not_when_the_clock_has_jumped() -> None:
    files, runtime = MemoryFileSystem(), StepRuntime()
    config = PartitionLogConfig(retention_ms=1_000, flush_before_ack=False, flush_ms=500)
    manager = open_manager(files, runtime, config=config)
    log = manager.create_log(CLICKS, TOPIC_ID, config)
    append(log, produced(7, 0))
    log.advance_high_watermark(1)
    runtime.clock_ms = 600.0
    assert manager.maintain() == 0
    runtime.run()
    assert log.recovery_point == 1
    runtime.wall_clock_ms = lambda: NOW_MS + 10 * DAY_MS  # type: ignore[method-assign]
    assert manager.maintain() == 0, "a clock that has jumped deletes nothing"
    assert manager.forget_producers(DAY_MS) == 0
    del runtime.wall_clock_ms  # type: ignore[method-assign]
    runtime.clock_ms = 1_600.0
    assert manager.maintain() == 1
    assert log.log_start_offset == 1
    runtime.clock_ms = DAY_MS + 1_600.0
    assert manager.forget_producers(DAY_MS) == 1
    assert len(log.producers.states) == 0


def test_flush_ms_acts_though_the_clock_was_set_back() -> None:
    files, runtime = MemoryFileSystem(), StepRuntime()
    config = PartitionLogConfig(flush_before_ack=False, flush_ms=500)
    manager = open_manager(files, runtime, config=config)
    log = manager.create_log(CLICKS, TOPIC_ID, config)
    append(log, batch(1), now_ms=NOW_MS)
    runtime.wall_clock_ms = lambda: NOW_MS - DAY_MS  # type: ignore[method-assign]
    manager.maintain()
    runtime.run()
    assert log.recovery_point == 1


def test_a_deleted_log_is_gone_at_once_its_files_later_and_another_can_take_its_name() -> None:
    files, runtime = MemoryFileSystem(), StepRuntime()
    config = PartitionLogConfig()
    manager = open_manager(files, runtime, paths=("a",), config=config)
    log = manager.create_log(CLICKS, TOPIC_ID, config)
    append(log, batch(3))
    log.flush()
    checkpoint(manager)
    delete_log(manager, CLICKS, GONE)
    with pytest.raises(ApiError, match=r"none of this broker.s log directories has"):
        manager.log_of(CLICKS)
    with pytest.raises(ApiError, match="was deleted"):
        append(log, batch(1))
    again = manager.create_log(CLICKS, UUID(int=9), config)
    assert (again.log_end_offset, again.epochs.latest) == (0, -1)
    assert b"clicks" not in read_whole(files, "a/recovery-point-offset-checkpoint")
    assert len([name for name in files.list_directory("a") if name.endswith("-delete")]) == 1
    manager.maintain()
    runtime.run()
    assert [name for name in files.list_directory("a") if name.endswith("-delete")] == []
    append(again, batch(1))
    again.flush()
    files.crash()
    reopened = open_manager(files, runtime, paths=("a",), config=config)
    assert reopened.log_of(CLICKS).log_end_offset == 1
    assert reopened.directories[0].records.topic_ids[CLICKS] == UUID(int=9)


def test_deleting_a_log_that_is_being_flushed_refuses_who_waits_and_harms_nobody_else() -> None:
    files, runtime = MemoryFileSystem(), StepRuntime()
    directory = open_directory(files, runtime=runtime)
    log, other = log_in(directory), directory.create_log(ORDERS, TOPIC_ID, PartitionLogConfig(), NOW_MS, UUID(int=7))
    answered: list[str] = []

    def note(name: str, error: ApiError | None) -> None:
        answered.append(f"{name}: {'durable' if error is None else error.code.name}")

    log.assign_epoch(5)
    directory.acknowledge(log, append(log, batch(1), epoch=5) + 1, lambda error: note("deleted", error))
    directory.acknowledge(other, append(other, batch(1)) + 1, lambda error: note("other", error))
    directory.commits._flusher.recent_flush_ms = 1_000.0  # the disk is slow: the flush runs in the thread
    runtime.soon.pop(0)()
    directory.removal.delete_log(CLICKS, UUID(int=1), GONE)
    again = directory.create_log(CLICKS, UUID(int=9), PartitionLogConfig(), NOW_MS, UUID(int=7))
    runtime.run()
    assert answered == ["deleted: UNKNOWN_TOPIC_OR_PARTITION", "other: durable"]
    assert not directory.offline_reason
    again.flush()
    files.crash()
    assert log_in(open_directory(files)).epochs.latest == -1, "the epochs of the log that was deleted are gone"


def test_a_start_removes_what_a_deletion_has_left() -> None:
    files, runtime = MemoryFileSystem(), StepRuntime()
    manager = open_manager(files, runtime, paths=("a",), config=PartitionLogConfig())
    manager.create_log(TopicPartition("x" * 249, 0), TOPIC_ID, PartitionLogConfig())
    delete_log(manager, TopicPartition("x" * 249, 0), GONE)
    (left,) = [name for name in files.list_directory("a") if name.endswith("-delete")]
    assert len(left) <= 255
    files.crash()
    again = open_manager(files, runtime, paths=("a",), config=PartitionLogConfig())
    assert not again.directories[0].logs
    again.maintain()
    runtime.run()
    assert not [name for name in files.list_directory("a") if name.endswith("-delete")]
