"""New logs and deleted ones: a few syncs for all of them, and what every crash leaves (DB-95, DB-96)."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterator
from functools import partial
from random import Random
from uuid import UUID

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.partition import TopicPartition
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.findings import Finding
from kraftlog.storage.log_directory import LogDirectory
from kraftlog.storage.log_manager import LogManager
from kraftlog.storage.new_logs import expect_logs
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.set_aside import set_strays_aside
from kraftlog.storage.slices import run_at_once
from tests.kraftlog.storage.builders import (
    CLICKS,
    CLUSTER_ID,
    DIRECTORY_ID,
    TOPIC_ID,
    StepRuntime,
    all_batches,
    append,
    batch,
    checkpoint,
    delete_log,
)
from tests.kraftlog.storage.test_crashes import OPERATIONS_MAX, Killed, kill_after

CONFIG = PartitionLogConfig(flush_before_ack=True)
OLD_ID, NEW_ID = TOPIC_ID, UUID(int=99)
GONE = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "deleted")
ANYWHERE = UUID(int=0)
SYNCS = ("fsync", "fdatasync", "fsync_directory", "make_directories")


def new_ids() -> Iterator[UUID]:
    yield DIRECTORY_ID
    for number in itertools.count(1):
        yield UUID(int=number)


def open_manager(files: MemoryFileSystem) -> LogManager:
    return LogManager.open(
        files, ["a"], StepRuntime(), cluster_id=CLUSTER_ID, node_id=1, config_of=lambda partition: CONFIG,
        new_id=new_ids().__next__,
    )  # fmt: skip


def names_of(count: int) -> list[TopicPartition]:
    return [TopicPartition("clicks", index) for index in range(count)]


def make(manager: LogManager, count: int, topic_id: UUID = OLD_ID) -> list[PartitionLog]:
    """Logs as a change of the metadata makes them: some are there already."""
    found = {name: manager.assess(name, topic_id) for name in names_of(count)}
    new = [name for name, finding in found.items() if finding is Finding.NEW]
    run_at_once(expect_logs(manager, dict.fromkeys(new, (topic_id, ANYWHERE))))
    for name in new:
        manager.create_log(name, topic_id, CONFIG)
    return [manager.log_of(name) for name in names_of(count)]


def delete(manager: LogManager, count: int) -> None:
    run_at_once(manager.delete_logs({name: manager.retire_log(name, GONE) for name in names_of(count)}))


class Counted:
    """Counts syncs of a file system within a block."""

    def __init__(self, files: MemoryFileSystem) -> None:
        self._files = files
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> Counter[str]:
        self._files.before_operation = self._note
        return self.counts

    def __exit__(self, *_: object) -> None:
        self._files.before_operation = None

    def _note(self, operation: str, path: str) -> None:
        if operation in SYNCS:
            self.counts[operation] += 1


def acknowledged(manager: LogManager, logs: list[PartitionLog]) -> set[TopicPartition]:
    """Append a record to each, and wait: those that were acknowledged, also if the process ends meanwhile."""
    found: set[TopicPartition] = set()
    directory, runtime = manager.directories[0], manager.runtime
    assert isinstance(runtime, StepRuntime)

    def answer(name: TopicPartition, error: ApiError | None) -> None:
        if error is None:
            found.add(name)

    for log in logs:
        end_offset = append(log, batch(1)) + 1
        directory.acknowledge(log, end_offset, lambda error, name=log.partition: answer(name, error))
    with contextlib.suppress(Killed):
        runtime.run()
    return found


# --- how many syncs ---------------------------------------------------------------------------------------------------


def test_db95_many_logs_are_made_with_one_sync() -> None:
    files = MemoryFileSystem()
    manager = open_manager(files)
    with Counted(files) as counts:
        make(manager, 200)
    assert counts == {"fdatasync": 1}
    assert len(manager.directories[0].logs) == 200


def test_db95_many_logs_are_deleted_with_a_few_syncs() -> None:
    files = MemoryFileSystem()
    manager = open_manager(files)
    for log in make(manager, 200):
        append(log, batch(1))
        log.flush()
        log.advance_high_watermark(1)
    checkpoint(manager)
    checkpoint(manager, high_watermarks=True)
    with Counted(files) as counts:
        delete(manager, 200)
    assert counts == {"fdatasync": 1, "fsync": 2, "fsync_directory": 3}, "the inventory, the names, two checkpoints"
    assert not manager.directories[0].logs


def test_db95_logs_that_are_made_on_a_full_disk_are_durable_by_themselves() -> None:
    files = MemoryFileSystem()
    manager = open_manager(files)
    files.remove("a/kraftlog-inventory")
    manager.directories[0].records._inventory.remove()
    make(manager, 3)
    inventory = manager.directories[0].records._inventory
    inventory.remove()
    original, inventory.save = inventory.save, _no_room  # type: ignore[method-assign]
    log = manager.create_log(TopicPartition("clicks", 7), OLD_ID, CONFIG)
    inventory.save = original  # type: ignore[method-assign]
    assert not log.durability.is_new
    files.crash()
    assert TopicPartition("clicks", 7) in open_manager(files).directories[0].logs


def _no_room(*_: object, **__: object) -> None:
    from kraftbase.errors import OutOfSpace

    raise OutOfSpace("no space left")


@pytest.mark.parametrize("how", ["close", "start after a kill", "start after a close"])
@pytest.mark.parametrize("has_records", [False, True])
def test_db96_nothing_is_synced_for_a_log_without_an_append_since_the_last_checkpoint(
    how: str, has_records: bool
) -> None:
    found: list[Counter[str]] = []
    for count in (5, 50):
        files = MemoryFileSystem()
        manager = open_manager(files)
        logs = make(manager, count)
        for log in logs:
            log.assign_epoch(0)
        if has_records:
            assert len(acknowledged(manager, logs)) == count
        checkpoint(manager)
        if how == "close":
            with Counted(files) as counts:
                assert manager.close(broker_epoch=1)
        else:
            if how == "start after a close":
                assert manager.close(broker_epoch=1)
            files.end_process()
            with Counted(files) as counts:
                manager = open_manager(files)
                logs = make(manager, count)
            assert [log.log_end_offset for log in logs] == [int(has_records)] * count
        found.append(counts)
    assert found[0] == found[1]
    assert found[1].total() <= 20


def test_db96_what_was_appended_since_the_last_checkpoint_is_synced_at_a_start() -> None:
    files = MemoryFileSystem()
    manager = open_manager(files)
    (log,) = make(manager, 1)
    acknowledged(manager, [log])
    checkpoint(manager)
    acknowledged(manager, [log])
    files.end_process()
    with Counted(files) as counts:
        open_manager(files)
    with_nothing = Counted(files)
    files.end_process()
    with with_nothing:
        open_manager(files)
    assert counts.total() > with_nothing.counts.total()


def test_db96_a_batch_that_was_cut_off_behind_the_recovery_point_is_synced_at_a_start() -> None:
    """A killed process had cut it off; the power must not bring it back in the place of another."""
    for operations in range(12):
        files = MemoryFileSystem()
        manager = open_manager(files)
        (log,) = make(manager, 1)
        acknowledged(manager, [log])
        checkpoint(manager)
        append(log, batch(1, value=b"old"))
        files._directories["a/clicks-0"].current["00000000000000000000.log"].sync()  # the kernel writes when it likes
        kill_after(files, operations, partial(log.truncate, 1), loses_power=False)
        log = make(open_manager(files), 1)[0]
        if log.log_end_offset == 1:
            append(log, batch(1, value=b"new"))
            files.crash()
            assert all(b"old" not in data for data in all_batches(make(open_manager(files), 1)[0])), operations


# --- crashes ----------------------------------------------------------------------------------------------------------


def points(how: str | int, count: int) -> range:
    """Before which operations the process ends: each one, also over all seeds of what a loss of power keeps."""
    return range(count) if isinstance(how, str) else range(how, count, 12)


@pytest.mark.parametrize("how", ["kill", "power", *range(12)])
def test_db95_no_crash_while_logs_are_made_and_written_to_takes_what_was_acknowledged(how: str | int) -> None:
    """At each operation: the inventory, the directories, the files, the first flush, its note in the inventory."""
    for operations in points(how, 50):
        files = MemoryFileSystem()
        manager = open_manager(files)
        found: set[TopicPartition] = set()

        def work() -> None:
            found.update(acknowledged(manager, make(manager, 2)))  # noqa: B023 (it is called at once)

        kill_after(files, operations, work, loses_power=False)
        if how != "kill":
            files.crash(random=None if how == "power" else Random(f"{how} {operations}"))
        manager = open_manager(files)
        assert manager.directories[0].damaged == {}, operations
        logs = make(manager, 2)
        assert {log.partition for log in logs if log.log_end_offset > 0} >= found, operations
        assert len(acknowledged(manager, logs)) == 2, "it goes on"


@pytest.mark.parametrize("how", ["kill", "power", *range(12)])
@pytest.mark.parametrize("is_flushed", [True, False])
def test_db95_no_crash_gives_a_topic_that_is_made_again_the_old_records(how: str | int, is_flushed: bool) -> None:
    """At each operation of the deletion, of the creation under the same name, and of the first appends."""
    for operations in points(how, 60):
        files = MemoryFileSystem()
        manager = open_manager(files)
        for log in make(manager, 2):
            append(log, batch(1, value=b"old"))
            if is_flushed:
                log.flush()
                log.advance_high_watermark(1)
        if is_flushed:
            checkpoint(manager)
            checkpoint(manager, high_watermarks=True)

        def work() -> None:
            delete(manager, 2)  # noqa: B023
            acknowledged(manager, make(manager, 2, NEW_ID))  # noqa: B023

        kill_after(files, operations, work, loses_power=False)
        if how != "kill":
            files.crash(random=None if how == "power" else Random(f"{how} {operations}"))
        manager = open_manager(files)
        run_at_once(set_strays_aside(manager, dict.fromkeys(names_of(2), NEW_ID).get))
        for log in make(manager, 2, NEW_ID):
            assert all(b"old" not in data for data in all_batches(log)), operations
            assert log.high_watermark <= log.log_end_offset
        assert manager.directories[0].damaged == {}, operations


@pytest.mark.parametrize("how", ["kill", "power", *range(6)])
def test_db95_a_topic_whose_deletion_was_carried_out_does_not_come_back(how: str | int) -> None:
    files = MemoryFileSystem()
    manager = open_manager(files)
    for log in make(manager, 3):
        append(log, batch(1))
        log.flush()
    delete(manager, 3)
    if how != "kill":
        files.crash(random=None if how == "power" else Random(how))
    files.end_process()
    manager = open_manager(files)
    assert not manager.directories[0].logs
    assert not manager.directories[0].damaged
    assert not [name for name in files.list_directory("a") if name.endswith("-stray")]


@pytest.mark.parametrize("change", ["truncate_fully_and_start_at", "delete_records", "truncate"])
def test_db95_a_new_log_that_is_cut_or_starts_elsewhere_is_durable_first(change: str) -> None:
    """Else a start would make it again at offset 0, and give offsets out twice."""
    for operations in range(OPERATIONS_MAX):
        files = MemoryFileSystem()
        manager = open_manager(files)
        (log,) = make(manager, 1)
        append(log, batch(5))
        log.advance_high_watermark(5)
        was_killed = kill_after(files, operations, partial(getattr(log, change), 3), loses_power=True)
        manager = open_manager(files)
        assert manager.directories[0].damaged == {}, operations
        (log,) = make(manager, 1)
        if not was_killed:
            assert change == "truncate" or log.log_start_offset == 3
            return
    raise AssertionError(f"{change} takes more operations")


def test_db95_a_new_log_with_a_flush_whose_directory_is_lost_is_damaged() -> None:
    """What was acknowledged was in it: only a log of which nothing was flushed is made again."""
    files = MemoryFileSystem()
    manager = open_manager(files)
    acknowledged(manager, make(manager, 1))
    files.end_process()
    for name in files.list_directory("a/clicks-0"):
        files.remove(f"a/clicks-0/{name}")
    files.remove_directory("a/clicks-0")
    assert open_manager(files).assess(CLICKS, OLD_ID) is Finding.DAMAGED


def test_db95_an_error_of_the_disk_takes_the_directory_offline_and_nothing_is_made() -> None:
    files = MemoryFileSystem()
    manager = open_manager(files)
    files.failing_syncs.add("a/kraftlog-inventory")
    run_at_once(expect_logs(manager, dict.fromkeys(names_of(3), (OLD_ID, ANYWHERE))))
    assert "is offline" in manager.directories[0].offline_reason
    with pytest.raises(ApiError, match="offline"):
        manager.create_log(CLICKS, OLD_ID, CONFIG)
    assert isinstance(manager.directories[0], LogDirectory)
    assert not files.exists("a/clicks-0")


def test_deleting_one_log_twice_changes_nothing() -> None:
    files = MemoryFileSystem()
    manager = open_manager(files)
    make(manager, 1)
    delete_log(manager, CLICKS, GONE)
    delete_log(manager, CLICKS, GONE)
    assert len([name for name in files.list_directory("a") if name.endswith("-delete")]) == 1
