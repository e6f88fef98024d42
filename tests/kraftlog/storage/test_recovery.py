"""What a start finds after a crash: a torn tail is cut, damage is told from it, indexes are made again."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.files.files import SECTOR_BYTES, read_whole, write_new_file
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.partition import TopicPartition
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.loading import RecoveryProgress
from kraftlog.storage.log_directory import LogDirectory
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.slices import run_at_once
from tests.kraftlog.storage.agreement import check_agreement
from tests.kraftlog.storage.builders import (
    CLICKS,
    NOW_MS,
    TOPIC_ID,
    StepRuntime,
    all_batches,
    append,
    batch,
    log_in,
    open_directory,
)

FIRST = "data/clicks-0/00000000000000000000.log"


def written(segment_bytes: int = 10**6, count: int = 6) -> tuple[MemoryFileSystem, LogDirectory, PartitionLog]:
    """Six batches of two records, about a sector each, none of them flushed."""
    files = MemoryFileSystem()
    config = PartitionLogConfig(segment_bytes=segment_bytes)
    directory = open_directory(files, config=config)
    log = log_in(directory, config)
    for _ in range(count):
        append(log, batch(2, value=b"v" * 250))
    return files, directory, log


def overwrite(files: MemoryFileSystem, path: str, position: int, data: bytes) -> None:
    file = files.open(path)
    file.write_at(position, data)
    file.close()


def position_of(log: PartitionLog, index: int) -> int:
    return sum(len(data) for data in all_batches(log)[:index])


def test_a_torn_tail_is_cut_and_the_rest_is_there() -> None:
    files, _, log = written()
    before, tail = all_batches(log), position_of(log, 5)
    files.end_process()
    files.open(FIRST).truncate(tail + 30)
    log = log_in(open_directory(files))
    assert all_batches(log) == before[:5]
    assert append(log, batch(1)) == 10
    check_agreement_of(log)


def check_agreement_of(log: PartitionLog) -> None:
    log.advance_high_watermark(log.log_end_offset)
    check_agreement(log)


def test_a_batch_whose_sector_was_lost_is_cut_with_those_behind_it() -> None:
    files, _, log = written()
    before, third = all_batches(log), position_of(log, 2)
    sector = (third // SECTOR_BYTES + 1) * SECTOR_BYTES
    files.end_process()
    overwrite(files, FIRST, sector, bytes(SECTOR_BYTES))
    log = log_in(open_directory(files))
    assert all_batches(log) == before[:2]


def damage_third_batch(files: MemoryFileSystem, log: PartitionLog) -> None:
    overwrite(files, FIRST, position_of(log, 2) + 100, b"\xff\xee\xdd")


def test_damage_before_valid_batches_is_no_torn_tail_and_stays_named() -> None:
    files, _, log = written()
    damage_third_batch(files, log)
    stored = read_whole(files, FIRST)
    files.end_process()
    for _ in range(2):
        directory = open_directory(files)
        assert CLICKS not in directory.logs
        assert "00000000000000000000.log" in directory.damaged[CLICKS]
        assert not directory.offline_reason, "the other partitions of the directory are used"
        assert read_whole(files, FIRST + ".damaged") == stored
        directory.release()
    assert "set aside when the damage was found" in directory.damaged[CLICKS]


def test_damage_below_the_recovery_point_is_found_even_at_the_end() -> None:
    files, directory, log = written()
    last = position_of(log, 5)
    log.flush()
    run_at_once(directory.checkpoint())
    files.end_process()
    overwrite(files, FIRST, last + 100, bytes(400))
    directory = open_directory(files)
    assert "offsets below 12 were flushed" in directory.damaged[CLICKS]
    assert "the batch with offset 10 is missing or invalid" in directory.damaged[CLICKS]


def test_a_flushed_end_that_is_missing_is_damage() -> None:
    files, directory, log = written()
    end = position_of(log, 5)
    log.flush()
    run_at_once(directory.checkpoint())
    files.end_process()
    files.open(FIRST).truncate(end)
    assert "offsets below 12 were flushed" in open_directory(files).damaged[CLICKS]


def test_damage_at_the_end_of_a_segment_is_told_by_the_next_one() -> None:
    files, _, log = written(segment_bytes=1300)
    assert log.segment_count == 3
    overwrite(files, FIRST, position_of(log, 1) + 100, b"\xff\xee\xdd")
    files.end_process()
    directory = open_directory(files, config=PartitionLogConfig(segment_bytes=1300))
    assert "a later segment begins with a valid batch" in directory.damaged[CLICKS]


def test_a_lost_batch_in_one_sector_with_the_begin_of_one_that_was_cut_off_is_no_damage() -> None:
    """The first segment's second batch is lost, and of its third all but what is in the second one's sector."""
    config = PartitionLogConfig(segment_bytes=800)
    files = MemoryFileSystem()
    log = log_in(open_directory(files, config=config), config)
    for size in (100, 100, 300, 300):
        append(log, batch(1, value=b"v" * size))
    assert log.segment_count == 2
    before = all_batches(log)
    files.end_process()
    overwrite(files, FIRST, len(before[0]), bytes(len(before[1])))
    files.open(FIRST).truncate(SECTOR_BYTES)
    log = log_in(open_directory(files, config=config), config)
    assert all_batches(log) == before[:1]
    check_agreement(log)


def test_segments_behind_a_torn_one_are_removed() -> None:
    files, _, log = written(segment_bytes=1300)
    before = all_batches(log)
    files.open(FIRST).truncate(position_of(log, 1) + 80)
    files.end_process()
    log = log_in(open_directory(files, config=PartitionLogConfig(segment_bytes=1300)))
    assert all_batches(log) == before[:1]
    assert [name for name in files.list_directory("data/clicks-0") if name.endswith(".log")] == [FIRST[-24:]]


def test_whole_batches_that_a_crash_took_from_the_end_of_a_segment_take_the_later_ones_along() -> None:
    files, _, log = written(segment_bytes=1300)
    before = all_batches(log)
    files.open(FIRST).truncate(position_of(log, 1))
    files.end_process()
    log = log_in(open_directory(files, config=PartitionLogConfig(segment_bytes=1300)))
    assert all_batches(log) == before[:1]


def test_in_a_compacted_log_a_gap_between_segments_is_no_loss() -> None:
    files, _, log = written(segment_bytes=1300)
    before = all_batches(log)
    files.open(FIRST).truncate(position_of(log, 1))
    files.end_process()
    log = log_in(open_directory(files, config=PartitionLogConfig(segment_bytes=1300, is_compacted=True)))
    assert all_batches(log) == before[:1] + before[2:]
    assert log.reader.read(2, 10, log.log_end_offset)[:8] == before[2][:8], "a read goes on in the next segment"


def lose_index(files: MemoryFileSystem, path: str) -> None:
    files.remove(path)


def tear_index(files: MemoryFileSystem, path: str) -> None:
    overwrite(files, path, 0, b"\xff" * 5)


def preallocate_index(files: MemoryFileSystem, path: str) -> None:
    file = files.open(path)
    file.reserve(1200)


@pytest.mark.parametrize("spoil", [lose_index, tear_index, preallocate_index])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("segment", [0, 10])
@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
def test_an_index_that_cannot_be_used_is_made_again(
    spoil: Callable[[MemoryFileSystem, str], None], suffix: str, segment: int, is_clean: bool
) -> None:
    files = MemoryFileSystem()
    config = PartitionLogConfig(segment_bytes=700, index_interval_bytes=10)
    directory = open_directory(files, config=config)
    log = log_in(directory, config)
    for index in range(8):
        append(log, batch(2, timestamp_ms=NOW_MS + 100 * index))
    log.roll(NOW_MS)
    before = all_batches(log)
    if is_clean:
        directory.close(broker_epoch=1)
    else:
        log.flush()
        run_at_once(directory.checkpoint())
    files.end_process()
    names = [name for name in files.list_directory("data/clicks-0") if name.endswith(suffix)]
    spoil(files, f"data/clicks-0/{names[0] if segment == 0 else names[-1]}")
    log = log_in(open_directory(files, config=config), config)
    assert all_batches(log) == before
    check_agreement_of(log)


def test_a_log_that_ends_before_its_start_is_empty_and_no_offset_comes_again() -> None:
    files, _, log = written()
    log.advance_high_watermark(12)
    assert log.delete_records(12) == 12
    files.crash()
    log = log_in(open_directory(files))
    assert (log.log_start_offset, log.log_end_offset) == (12, 12)
    assert append(log, batch(1)) == 12


def test_epochs_that_the_file_lacks_are_read_from_the_batches() -> None:
    files, _, log = written()
    append(log, batch(1), epoch=4)
    append(log, batch(1), epoch=9)
    assert not files.exists("data/clicks-0/leader-epoch-checkpoint")
    files.end_process()
    log = log_in(open_directory(files))
    assert log.epochs.entries() == ((0, 0), (4, 12), (9, 13))
    log.flush()
    write_new_file(files, "data/clicks-0/leader-epoch-checkpoint", b"0\n1\nx y\n")
    files.end_process()
    assert log_in(open_directory(files)).epochs.entries() == ((0, 0), (4, 12), (9, 13))


def test_a_clean_start_reads_nothing_but_the_end() -> None:
    files, directory, _ = written()
    directory.close(broker_epoch=1)
    files.end_process()
    seen: list[RecoveryProgress] = []
    directory = open_unloaded(files)
    directory.load(lambda partition: PartitionLogConfig(), NOW_MS, seen.append)
    assert seen == []
    assert directory.logs[CLICKS].log_end_offset == 12


def test_recovery_tells_how_far_it_is() -> None:
    files, _, log = written(segment_bytes=1300)
    files.end_process()
    seen: list[RecoveryProgress] = []
    directory = open_unloaded(files)
    directory.load(lambda partition: PartitionLogConfig(segment_bytes=1300), NOW_MS, seen.append)
    assert [(one.segments_read, one.segments_to_read) for one in seen] == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert seen[-1].bytes_read == log.size_bytes
    assert seen[0].directory == "data/clicks-0"


def open_unloaded(files: MemoryFileSystem) -> LogDirectory:
    from kraftlog.storage.file_handles import FileHandles
    from tests.kraftlog.storage.builders import CLUSTER_ID, DIRECTORY_ID

    return LogDirectory.open(
        files, "data", FileHandles(files), StepRuntime(), cluster_id=CLUSTER_ID, node_id=1,
        new_directory_id=DIRECTORY_ID,
    )  # fmt: skip


def test_a_segment_that_would_replace_one_that_the_inventory_has_is_damage() -> None:
    files, directory, _ = written()
    directory.close(broker_epoch=1)
    files.open("data/clicks-0/00000000000000000000.log.swap", create=True).close()
    files.end_process()
    again = open_directory(files)
    assert again.logs == {}
    assert "which the inventory still has" in again.damaged[CLICKS]
    assert files.exists("data/clicks-0/00000000000000000000.log")


def test_what_kafka_was_about_to_delete_goes() -> None:
    files, directory, log = written()
    before = all_batches(log)
    directory.close(broker_epoch=1)
    for name in ("00000000000000000003.log.deleted", "00000000000000000003.index", "leader-epoch-checkpoint.tmp"):
        files.open(f"data/clicks-0/{name}", create=True).close()
    files.end_process()
    assert all_batches(log_in(open_directory(files))) == before
    assert not [name for name in files.list_directory("data/clicks-0") if name.startswith("00000000000000000003")]


def test_a_header_that_has_rotted_takes_its_partition_offline_when_it_is_read_and_no_other() -> None:
    files, directory, log = written()
    other = directory.create_log(TopicPartition("orders", 0), TOPIC_ID, PartitionLogConfig(), NOW_MS, UUID(int=7))
    overwrite(files, FIRST, position_of(log, 0) + 16, b"\7")
    with pytest.raises(ApiError, match="its magic is 7") as raised:
        log.reader.read(0, 100, 12)
        log.reader.find_timestamp(NOW_MS + 1)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "damaged at byte" in directory.damaged[CLICKS]
    with pytest.raises(ApiError, match="damaged at byte"):
        append(log, batch(1))
    assert append(other, batch(1)) == 0


def test_a_file_that_cannot_be_read_takes_the_directory_offline_and_is_named() -> None:
    files, directory, log = written()
    files.failing_reads.add(FIRST)
    with pytest.raises(ApiError, match="input/output error") as raised:
        log.reader.read(0, 100, 12)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "data is offline" in directory.offline_reason
    with pytest.raises(ApiError, match="is offline"):
        append(log, batch(1))
    with pytest.raises(ApiError, match="is offline"):
        directory.create_log(CLICKS, TOPIC_ID, PartitionLogConfig(), NOW_MS, UUID(int=7))


@pytest.mark.parametrize("bit", [0x01, 0x10])
def test_a_base_offset_that_has_changed_cuts_nothing_behind_it(bit: int) -> None:
    """No checksum goes over it: the batch reads back, and those behind it seem to begin too low."""
    files, _, log = written()
    at = position_of(log, 2)
    files.end_process()
    before = read_whole(files, FIRST)
    files.damage(FIRST, at + 4, bytes([before[at + 4] ^ bit]))
    directory = open_directory(files)
    assert "a valid batch with offset 6 follows" in directory.damaged[CLICKS]
    assert len(read_whole(files, FIRST + ".damaged")) == len(before)
