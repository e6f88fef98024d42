"""A damaged log whose data other voters have: it opens shorter, records what is missing, until that is back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kraftbase.errors import CorruptLog, StorageError
from kraftbase.files.files import read_whole, write_new_file
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import Epoch, Offset
from raft.core.types import UNKNOWN_UNTIL_OFFSET, RecoveringLog
from raft.storage.copies import copy_paths
from raft.storage.recovering_file import (
    DAMAGED_SUFFIX,
    RECOVERING_NAME,
    decode_recovering,
    encode_recovering,
    read_recovering,
)
from raft.storage.segmented_log import SegmentedLog
from tests.raft.storage.builders import (
    EPOCH,
    LOG,
    SMALL,
    all_batches,
    batches_from,
    flip,
    open_accepting,
    segment_paths,
)
from tests.raft.storage.crash_points import tell_until

BATCHES = batches_from(0, 12)
END = BATCHES[-1].end_offset


def opened(files: MemoryFileSystem, minimum_durable_offset: int = 0, *, may_create: bool = True) -> SegmentedLog:
    return open_accepting(files, SMALL, minimum_durable_offset, may_create=may_create)


def flushed_log() -> MemoryFileSystem:
    """Several segments, every batch flushed, with a later frame that records it."""
    files = MemoryFileSystem()
    log = opened(files)
    for batch in BATCHES:
        log.append([batch])
        log.flush()
    log.write_marker()
    log.close()
    files.crash(kept_unsynced_bytes=10**9)
    assert len(segment_paths(files)) > 2
    return files


def flip_in_the_first(files: MemoryFileSystem) -> None:
    flip(files, segment_paths(files)[0], 100)


def flip_in_the_last(files: MemoryFileSystem) -> None:
    flip(files, segment_paths(files)[-1], 40)


def lose_the_first(files: MemoryFileSystem) -> None:
    files.remove(segment_paths(files)[0])
    files.fsync_directory(LOG)


def lose_one_in_the_middle(files: MemoryFileSystem) -> None:
    files.remove(segment_paths(files)[1])
    files.fsync_directory(LOG)


def read_error(files: MemoryFileSystem) -> None:
    files.failing_reads.add(segment_paths(files)[1])


DAMAGE = [flip_in_the_first, flip_in_the_last, lose_the_first, lose_one_in_the_middle, read_error]


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_before_the_damage_stays_and_the_rest_is_to_be_fetched(
    damage: Callable[[MemoryFileSystem], None],
) -> None:
    files = flushed_log()
    damage(files)
    log = opened(files)
    held = all_batches(log)
    assert held == BATCHES[: len(held)]
    assert log.log_end_offset < END
    assert log.flushed_end_offset == log.log_end_offset
    assert log.recovering is not None
    assert (log.recovering.until_offset, log.recovering.epoch) == (END, EPOCH)
    assert log.recovering.reason


@pytest.mark.parametrize("damage", DAMAGE)
def test_it_recovers_until_it_is_told_that_it_has(damage: Callable[[MemoryFileSystem], None]) -> None:
    files = flushed_log()
    damage(files)
    log = opened(files)
    missing = [batch for batch in BATCHES if batch.base_offset >= log.log_end_offset]
    for batch in missing[:2]:
        log.append([batch])
        log.flush()
    log.close()
    log = opened(files)
    assert log.recovering is not None, "a restart does not make it whole"
    missing = [batch for batch in BATCHES if batch.base_offset >= log.log_end_offset]
    log.append(missing)
    log.flush()
    log.end_recovering()
    log.close()
    files.failing_reads.clear()
    files.crash()
    log = opened(files)
    assert log.recovering is None
    assert all_batches(log) == BATCHES
    assert not [name for name in files.list_directory(LOG) if DAMAGED_SUFFIX in name or name == RECOVERING_NAME]


def test_without_others_it_is_refused_and_nothing_changes() -> None:
    files = flushed_log()
    flip_in_the_last(files)
    before = {name: read_whole(files, f"{LOG}/{name}") for name in files.list_directory(LOG)}
    with pytest.raises(CorruptLog, match="no other voter"):
        SegmentedLog.open(files, LOG, config=SMALL)
    assert {name: read_whole(files, f"{LOG}/{name}") for name in files.list_directory(LOG)} == before


def test_what_was_damaged_is_kept_for_an_operator() -> None:
    files = flushed_log()
    path = segment_paths(files)[0]
    flip_in_the_first(files)
    damaged = read_whole(files, path)
    opened(files)
    assert read_whole(files, path + DAMAGED_SUFFIX) == damaged


def test_without_room_for_the_copy_it_recovers_all_the_same() -> None:
    files = flushed_log()
    flip_in_the_first(files)
    files.space_limit = files.used_bytes() + 300
    assert opened(files).recovering is not None


def test_damage_found_while_recovering_never_lowers_what_is_to_be_fetched() -> None:
    files = flushed_log()
    flip_in_the_last(files)
    opened(files).close()
    flip_in_the_first(files)
    log = opened(files)
    assert log.recovering is not None
    assert log.recovering.until_offset == END


def test_what_the_state_machine_has_applied_counts_as_durable() -> None:
    files = MemoryFileSystem()
    opened(files).close()
    log = opened(files, minimum_durable_offset=20)
    assert log.recovering is not None
    assert log.recovering.until_offset == UNKNOWN_UNTIL_OFFSET, "it may have acknowledged more than was applied"
    log.close()
    assert opened(files, minimum_durable_offset=20).recovering is not None, "known already, no new damage"


def lose_the_reads_of_the_last(files: MemoryFileSystem) -> None:
    files.failing_reads.add(segment_paths(files)[-1])


def lose_all(files: MemoryFileSystem) -> None:
    for path in segment_paths(files):
        files.remove(path)
    files.fsync_directory(LOG)


def flip_in_the_first_and_end_in_garbage(files: MemoryFileSystem) -> None:
    """The last marker is lost, and it is unknown whether there was anything else."""
    flip_in_the_first(files)
    path = segment_paths(files)[-1]
    flip(files, path, len(read_whole(files, path).rstrip(b"\0")) - 1)


@pytest.mark.parametrize("damage", [lose_the_reads_of_the_last, lose_all, flip_in_the_first_and_end_in_garbage])
def test_how_far_the_log_went_is_not_known_where_its_end_cannot_be_seen(
    damage: Callable[[MemoryFileSystem], None],
) -> None:
    """A replica that mistook the undamaged part for the whole log would vote as if it had acknowledged nothing else."""
    files = flushed_log()
    damage(files)
    log = opened(files, may_create=False)
    assert log.recovering is not None
    assert log.recovering.until_offset == UNKNOWN_UNTIL_OFFSET
    log.close()
    files.failing_reads.clear()
    files.crash()
    assert opened(files).recovering == log.recovering


def test_a_log_that_was_there_is_not_made_anew_without_others() -> None:
    files = flushed_log()
    lose_all(files)
    with pytest.raises(CorruptLog, match="is missing"):
        SegmentedLog.open(files, LOG, config=SMALL, may_create=False)
    assert segment_paths(files) == []


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_crash_anywhere_on_the_way_is_followed_by_the_same(damage: Callable[[MemoryFileSystem], None]) -> None:
    """Stop before every operation of opening a damaged log; lose unsynced data; open again."""
    for stop_after in range(10_000):
        files = flushed_log()
        damage(files)
        if not tell_until(files, None, lambda files, _: opened(files).close(), stop_after):
            return
        files.crash()
        log = opened(files)
        held = all_batches(log)
        assert held == BATCHES[: len(held)]
        assert log.recovering is not None
        assert log.recovering.until_offset == END
    pytest.fail("opening a log takes fewer operations")


def test_the_file_says_what_it_was_told() -> None:
    recovering = RecoveringLog(Offset(9), Epoch(4), "a segment = lost\nand found")
    decoded = decode_recovering(encode_recovering(recovering), "recovering")
    assert decoded == recovering._replace(reason="a segment = lost and found")


def test_a_path_that_is_no_utf_8_or_has_line_breaks_can_be_told_of() -> None:
    recovering = RecoveringLog(Offset(9), Epoch(4), "data-\udcff\u2028until.offset=0/log is damaged")
    assert decode_recovering(encode_recovering(recovering), "recovering")[:2] == (9, 4)


def recovering_log() -> MemoryFileSystem:
    files = flushed_log()
    flip_in_the_first(files)
    opened(files).close()
    return files


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("how", ["damaged", "lost"])
def test_one_copy_is_brought_back_from_the_other(which: int, how: str) -> None:
    files = recovering_log()
    paths = copy_paths(LOG, RECOVERING_NAME)
    whole = read_whole(files, paths[0])
    if how == "damaged":
        flip(files, paths[which], 12)
    else:
        files.remove(paths[which])
    log = opened(files)
    assert log.recovering is not None
    assert log.recovering.until_offset == END
    assert [read_whole(files, path) for path in paths] == [whole, whole]


def test_without_a_whole_copy_it_recovers_everything_that_a_leader_has() -> None:
    files = recovering_log()
    for path in copy_paths(LOG, RECOVERING_NAME):
        flip(files, path, 12)
    log = opened(files)
    assert log.recovering is not None
    assert log.recovering[:2] == (UNKNOWN_UNTIL_OFFSET, EPOCH)
    log.close()
    assert read_recovering(files, LOG) == log.recovering


def test_without_a_whole_copy_and_others_to_fetch_from_it_does_not_start_and_nothing_changes() -> None:
    files = recovering_log()
    for path in copy_paths(LOG, RECOVERING_NAME):
        flip(files, path, 12)
    before = {name: read_whole(files, f"{LOG}/{name}") for name in files.list_directory(LOG)}
    with pytest.raises(StorageError, match=r"is unknown up to which offset.*Delete nothing"):
        SegmentedLog.open(files, LOG, config=SMALL)
    assert {name: read_whole(files, f"{LOG}/{name}") for name in files.list_directory(LOG)} == before


def test_copies_of_two_findings_hold_it_to_both() -> None:
    files = recovering_log()
    later = RecoveringLog(Offset(END + 7), Epoch(EPOCH + 1), "an older program has found more")
    write_new_file(files, f"{LOG}/{RECOVERING_NAME}", encode_recovering(later))
    assert opened(files).recovering == later


def test_a_file_of_another_version_is_refused_by_name() -> None:
    data = encode_recovering(RecoveringLog(Offset(9), Epoch(4), "x")).replace(b"version=1", b"version=2")
    lines = data[: data.rindex(b"crc32c=")]
    from kraftbase.checksum import crc32c

    with pytest.raises(StorageError, match="version 2"):
        decode_recovering(lines + f"crc32c={crc32c(lines):08x}\n".encode(), "recovering")
