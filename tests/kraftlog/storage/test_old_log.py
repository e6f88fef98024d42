"""What a follower had before it started over is kept beside its log until it can no longer be missed (DB-34)."""

from __future__ import annotations

import contextlib
from uuid import UUID

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.files.files import read_whole
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.kafka.record_batch import read_batches
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.formats.batch_header import read_header
from kraftlog.storage.old_log import OldFile
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.slices import run_at_once
from tests.kraftlog.storage.agreement import check_agreement
from tests.kraftlog.storage.builders import CLICKS, NOW_MS, all_batches, append, batch, log_in, open_directory, open_log

DIRECTORY = "data/clicks-0"
CONFIG = PartitionLogConfig(segment_bytes=150)
EPOCH = 3


class Killed(BaseException):
    """The process ends here."""


def kept(files: MemoryFileSystem) -> list[str]:
    return [name for name in files.list_directory(DIRECTORY) if OldFile.named(name)]


def kept_batches(files: MemoryFileSystem) -> list[bytes]:
    data = b"".join(read_whole(files, f"{DIRECTORY}/{name}") for name in kept(files))
    return [bytes(found.data) for found in read_batches(data)]


def log_with(
    files: MemoryFileSystem, count: int = 5, config: PartitionLogConfig = CONFIG, *, flushes: bool = True
) -> PartitionLog:
    """A log with segments of two batches, of one record each in epoch 1."""
    directory = open_directory(files, config=config)
    log = log_in(directory, config)
    log.assign_epoch(1)
    for number in range(count):
        append(log, batch(value=b"record %d" % number), epoch=1)
    log.advance_high_watermark(count)
    if flushes:
        log.flush()
        run_at_once(directory.checkpoint())
        run_at_once(directory.checkpoint_high_watermarks())
    return log


def copied(log: PartitionLog, epoch: int) -> None:
    """The leader has sent a record of an epoch, and it is committed."""
    log.append_as_follower(batch(base_offset=log.log_end_offset, epoch=epoch), NOW_MS, EPOCH + 1)
    log.advance_high_watermark(log.log_end_offset)
    log.forget_kept_records()


def test_its_segments_are_renamed_and_no_byte_is_copied() -> None:
    files = MemoryFileSystem()
    log = log_with(files)
    before, bases = all_batches(log), [segment.base_offset for segment in log._segments.from_offset(0)]
    assert len(bases) > 2
    written: list[str] = []
    files.before_operation = lambda operation, path: written.append(path) if operation == "write_at" else None
    log.start_over_as_follower(100, EPOCH)
    assert not [path for path in written if "clicks-0" in path]
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (100, 100, 0)
    assert kept(files) == [f"{base:020d}-3.old" for base in bases]
    assert kept_batches(files) == before
    names = files.list_directory(DIRECTORY)
    assert [name for name in names if name.endswith((".log", ".index", ".timeindex"))] == [f"{100:020d}.log"]


@pytest.mark.parametrize("restarts", [False, True])
def test_it_goes_when_a_record_of_the_leaders_epoch_is_committed_and_no_earlier(restarts: bool) -> None:
    files = MemoryFileSystem()
    log = log_with(files)
    log.start_over_as_follower(100, EPOCH)
    copied(log, EPOCH - 1)
    assert kept(files)
    log.append_as_follower(batch(base_offset=101, epoch=EPOCH), NOW_MS, EPOCH)
    log.forget_kept_records()
    assert kept(files), "the record is not committed"
    if restarts:
        log.flush()
        files.end_process()
        log = open_log(files, CONFIG)
        assert (log.log_end_offset, bool(kept(files))) == (102, True)
    log.advance_high_watermark(102)
    log.forget_kept_records()
    assert kept(files) == []


def test_there_is_one_at_most_and_it_is_the_first() -> None:
    files = MemoryFileSystem()
    log = log_with(files)
    before = all_batches(log)
    log.start_over_as_follower(100, EPOCH)
    log.append_as_follower(batch(base_offset=100, epoch=2), NOW_MS, EPOCH)
    log.start_over_as_follower(200, EPOCH + 1)
    assert (log.log_end_offset, kept_batches(files)) == (200, before)


def test_an_empty_log_leaves_none() -> None:
    files = MemoryFileSystem()
    log = log_with(files, count=0)
    log.start_over_as_follower(100, EPOCH)
    assert (log.log_end_offset, kept(files)) == (100, [])


def test_with_less_than_a_tenth_of_the_disk_free_it_is_not_kept_or_goes() -> None:
    files = MemoryFileSystem()
    log = log_with(files)
    files.space_limit = files.used_bytes() * 10 // 9 - 10
    log.start_over_as_follower(100, EPOCH)
    assert (log.log_end_offset, kept(files)) == (100, [])
    files = MemoryFileSystem()
    log = log_with(files)
    files.space_limit = files.used_bytes() * 10 // 9 + 10
    log.start_over_as_follower(100, EPOCH)
    log.remove_old_log_without_room()
    assert kept(files)
    files.space_limit = files.used_bytes() * 10 // 9 - 10
    log.remove_old_log_without_room()
    assert kept(files) == []


def test_it_goes_with_its_topic() -> None:
    files = MemoryFileSystem()
    log_with(files).start_over_as_follower(100, EPOCH)
    files.end_process()
    directory = open_directory(files, config=CONFIG)
    directory.removal.delete_log(CLICKS, UUID(int=9), ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "deleted"))
    assert [name for name in files.list_directory("data") if name.endswith("-delete")]
    run_at_once(directory.removal.remove_deleted())
    assert not [name for name in files.list_directory("data") if name.startswith("clicks")]


@pytest.mark.parametrize("offset", [100, 5, 3, 0])
@pytest.mark.parametrize(("loses_power", "flushes"), [(False, False), (False, True), (True, True)])
def test_at_every_crash_each_record_is_in_the_log_or_beside_it(offset: int, loses_power: bool, flushes: bool) -> None:
    for operations in range(60):
        files = MemoryFileSystem()
        log = log_with(files, flushes=flushes)
        before = all_batches(log)
        left = operations

        def stop(_: str, __: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed

        files.before_operation = stop
        is_done = False
        with contextlib.suppress(Killed):
            log.start_over_as_follower(offset, EPOCH)
            is_done = True
        files.before_operation = None
        files.crash() if loses_power else files.end_process()
        directory = open_directory(files, config=CONFIG)
        assert directory.damaged == {}
        log = directory.logs[CLICKS]
        assert sorted({*all_batches(log), *kept_batches(files)}) == sorted(before), operations
        assert [name for name in kept(files) if not name.endswith(".old")] == []
        if all_batches(log):
            assert (all_batches(log), kept(files), is_done) == (before, [], False)
        else:
            assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (offset, offset, offset)
        check_agreement(log)
        copied(log, EPOCH)
        files.crash()
        log = open_log(files, CONFIG)
        if is_done:
            break
    else:
        pytest.fail("it was killed each time")


def test_a_start_over_that_is_over_is_not_taken_up_again_when_power_is_lost() -> None:
    files = MemoryFileSystem()
    log = log_with(files)
    log.start_over_as_follower(100, EPOCH)
    log.append_as_follower(batch(base_offset=100, epoch=EPOCH), NOW_MS, EPOCH)
    log.flush()
    files.crash()
    log = open_log(files, CONFIG)
    assert [read_header(data).base_offset for data in all_batches(log)] == [100]


def test_other_files_are_none_of_it() -> None:
    for name in (f"{2:020d}.old", "2-3.old", f"{2:020d}-3.older", f"{2:020d}-3.cut"):
        assert OldFile.named(name) is None
    for name in (f"{2:020d}-3.old", f"{2:020d}-3.start-over"):
        found = OldFile.named(name)
        assert found is not None
        assert found.name == name
