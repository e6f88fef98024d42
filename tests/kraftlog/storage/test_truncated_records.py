"""What a follower cuts off is kept beside its log until nobody can miss it (DB-31)."""

from __future__ import annotations

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.files.files import read_whole
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.storage import truncated_records
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.partition_log import PartitionLog
from tests.kraftlog.storage.builders import NOW_MS, all_batches, append, batch, open_log

DIRECTORY = "data/clicks-0"
FIRST_CUT = "00000000000000000002-3.cut"


def kept(files: MemoryFileSystem) -> list[str]:
    return [name for name in files.list_directory(DIRECTORY) if ".cut" in name]


def log_with(files: MemoryFileSystem, count: int = 5, config: PartitionLogConfig | None = None) -> PartitionLog:
    """A log with batches of one record in epoch 1."""
    log = open_log(files, config)
    log.assign_epoch(1)
    for number in range(count):
        append(log, batch(value=b"record %d" % number), epoch=1)
    return log


def test_the_batches_that_are_cut_are_kept_with_their_offset_and_the_leaders_epoch() -> None:
    files = MemoryFileSystem()
    log = log_with(files)
    before = all_batches(log)
    log.truncate_as_follower(2, 3)
    assert (log.log_end_offset, all_batches(log)) == (2, before[:2])
    assert kept(files) == [FIRST_CUT]
    files.crash()
    assert read_whole(files, f"{DIRECTORY}/{FIRST_CUT}") == b"".join(before[2:])


def test_they_are_kept_over_segments_and_all_of_the_log() -> None:
    files = MemoryFileSystem()
    log = log_with(files, config=PartitionLogConfig(segment_bytes=150))
    before = all_batches(log)
    assert log.segment_count > 2
    log.truncate_as_follower(0, 3)
    assert log.log_end_offset == 0
    assert read_whole(files, f"{DIRECTORY}/00000000000000000000-3.cut") == b"".join(before)


def test_committed_ones_are_named_so_and_never_removed() -> None:
    files = MemoryFileSystem()
    log = log_with(files)
    log.advance_high_watermark(3)
    log.truncate_as_follower(2, 3)
    log.append_as_follower(batch(base_offset=2, epoch=3), NOW_MS, 3)
    log.advance_high_watermark(3)
    log.forget_kept_records()
    assert kept(files) == ["00000000000000000002-3.cut-committed"]


@pytest.mark.parametrize("restarts", [False, True])
def test_they_go_when_something_of_the_new_leaders_epoch_is_committed(restarts: bool) -> None:
    files = MemoryFileSystem()
    log = log_with(files)
    log.truncate_as_follower(2, 3)
    log.append_as_follower(batch(base_offset=2, epoch=2), NOW_MS, 3)
    log.append_as_follower(batch(base_offset=3, epoch=3), NOW_MS, 3)
    if restarts:
        log.flush()
        files.end_process()
        log = open_log(files)
    log.advance_high_watermark(3)
    log.forget_kept_records()
    assert kept(files) == [FIRST_CUT]
    log.advance_high_watermark(4)
    log.forget_kept_records()
    assert kept(files) == []


def test_what_was_cut_first_at_an_offset_stays() -> None:
    files = MemoryFileSystem()
    log = log_with(files)
    older = b"".join(all_batches(log)[2:])
    log.truncate_as_follower(2, 3)
    log.append_as_follower(batch(base_offset=2, epoch=3), NOW_MS, 3)
    log.truncate_as_follower(2, 3)
    assert read_whole(files, f"{DIRECTORY}/{FIRST_CUT}") == older


def test_there_are_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truncated_records, "TRUNCATED_BYTES_MAX", 200)
    monkeypatch.setattr(truncated_records, "TRUNCATED_FILES_MAX", 2)
    files = MemoryFileSystem()
    log = log_with(files, count=20)
    for leader_epoch, end_offset in ((3, 15), (4, 10), (5, 5)):
        log.truncate_as_follower(end_offset, leader_epoch)
    assert kept(files) == ["00000000000000000005-5.cut", "00000000000000000010-4.cut"]
    assert len(read_whole(files, f"{DIRECTORY}/00000000000000000005-5.cut")) == 200


def test_without_room_the_log_is_cut_and_nothing_is_kept() -> None:
    files = MemoryFileSystem()
    log = log_with(files)
    log.flush()
    files.space_limit = files.used_bytes() + 10
    log.truncate_as_follower(2, 3)
    assert (log.log_end_offset, kept(files)) == (2, [])


def test_a_cut_that_takes_nothing_keeps_nothing_but_takes_an_epoch_without_records() -> None:
    files = MemoryFileSystem()
    log = log_with(files)
    log.assign_epoch(2)
    log.truncate_as_follower(5, 3)
    assert (log.log_end_offset, log.epochs.latest, kept(files)) == (5, 1, [])


def test_a_follower_takes_batches_of_epochs_that_ascend_to_the_leaders() -> None:
    log = log_with(MemoryFileSystem())
    for epochs in ((0,), (4,), (3, 2)):
        data = b"".join(batch(base_offset=5 + at, epoch=epoch) for at, epoch in enumerate(epochs))
        with pytest.raises(ApiError) as refused:
            log.append_as_follower(data, NOW_MS, 3)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
        assert log.log_end_offset == 5
    log.append_as_follower(batch(base_offset=5, epoch=1) + batch(base_offset=6, epoch=3), NOW_MS, 3)
    assert log.epochs.entries() == ((1, 0), (3, 6))


def test_other_files_are_none_of_them() -> None:
    for name in (
        "00000000000000000002.cut",
        "2-3.cut",
        FIRST_CUT + ".tmp",
        FIRST_CUT + "ter",
        "00000000000000000002.log",
    ):
        assert truncated_records.TruncatedRecordsFile.named(name) is None
    for name in (FIRST_CUT, FIRST_CUT + "-committed"):
        file = truncated_records.TruncatedRecordsFile.named(name)
        assert file is not None
        assert file.name == name


def test_a_log_whose_file_has_become_shorter_is_damaged_and_its_copy_comes_to_an_end() -> None:
    files = MemoryFileSystem()
    log = log_with(files)
    file = files.open(f"{DIRECTORY}/00000000000000000000.log")
    file.truncate(file.size() - 40)
    with pytest.raises(ApiError, match="has become shorter") as raised:
        log.truncate_as_follower(2, 3)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
