"""What a log knows of its producers after a start, a cut and a long time (DB-70, DB-71, DB-72, DB-75)."""

from __future__ import annotations

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.files.files import read_whole, write_new_file
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.storage.config import DAY_MS, PartitionLogConfig
from kraftlog.storage.formats.names import HIGH_WATERMARKS_NAME, INVENTORY_NAME
from kraftlog.storage.formats.producer_snapshot import ProducerEntry, decode_snapshot, encode_snapshot
from kraftlog.storage.log_directory import LogDirectory
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.slices import run_at_once
from tests.kraftlog.storage.builders import (
    CLICKS,
    NOW_MS,
    TRANSACTIONAL,
    append,
    batch,
    log_in,
    marker,
    open_directory,
    open_log,
    produced,
)

SMALL = PartitionLogConfig(segment_bytes=400)


def snapshots_in(files: MemoryFileSystem) -> dict[int, list[ProducerEntry]]:
    names = [name for name in files.list_directory("data/clicks-0") if name.endswith(".snapshot")]
    return {int(name[:20]): decode_snapshot(read_whole(files, f"data/clicks-0/{name}"), name) for name in names}


def ended(directory: LogDirectory, how: str) -> None:
    """End the process that has a directory, after a roll if it is killed."""
    if how == "shut down":
        directory.close(broker_epoch=1)
    else:
        directory.logs[CLICKS].roll(NOW_MS)
        directory.logs[CLICKS].flush()
        run_at_once(directory.checkpoint())  # so that the start reads from the new segment on


# --- the last five batches --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["shut down", "killed after a roll"])
@pytest.mark.parametrize("lives", [1, 2])
def test_db71_all_batches_in_flight_are_duplicates_after_a_start(how: str, lives: int) -> None:
    """Consider a producer with five batches in flight, whose answers the end of the broker has taken."""
    files = MemoryFileSystem()
    for life in range(lives):
        directory = open_directory(files)
        if life == 0:
            for index in range(7):
                append(log_in(directory), produced(7, 2 * index, 2))
        ended(directory, how)
        files.end_process()
    log = open_log(files)
    for index in range(2, 7):
        again = log.append_as_leader(produced(7, 2 * index, 2), 0, NOW_MS)
        assert (again.is_duplicate, again.base_offset, again.last_offset) == (True, 2 * index, 2 * index + 1)
    with pytest.raises(ApiError) as raised:
        log.append_as_leader(produced(7, 2, 2), 0, NOW_MS)
    assert raised.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 14


def test_db75_a_snapshot_has_five_batches_of_a_producer_the_last_one_with_the_open_transaction() -> None:
    files = MemoryFileSystem()
    directory = open_directory(files)
    log = log_in(directory)
    for index in range(6):
        append(log, produced(7, index, attributes=TRANSACTIONAL), now_ms=NOW_MS + index)
    append(log, produced(8, 40))
    append(log, marker(9, aborts=True, producer_epoch=3, coordinator_epoch=2))
    directory.close(broker_epoch=1)
    found = snapshots_in(files)
    assert found == {
        8: [
            *(ProducerEntry(7, 0, index, index, 0, NOW_MS + 5, -1, 0 if index == 5 else -1) for index in range(1, 6)),
            ProducerEntry(8, 0, 40, 6, 0, NOW_MS, -1, -1),
            ProducerEntry(9, 3, -1, -1, 0, NOW_MS, 2, -1),
        ]
    }


@pytest.mark.parametrize("how", ["shut down", "killed after a roll"])
def test_db89_a_snapshot_in_whose_place_is_another_one_is_not_used(how: str) -> None:
    """It is whole, and of other producers: its CRC is not the one that the inventory has."""
    files = MemoryFileSystem()
    directory = open_directory(files)
    append(log_in(directory), produced(7, 0, 5, attributes=TRANSACTIONAL))
    ended(directory, how)
    files.end_process()
    other = encode_snapshot([ProducerEntry(8, 0, 4, 4, 4, NOW_MS, -1, -1)])
    write_new_file(files, f"data/clicks-0/{5:020d}.snapshot", other)
    log = open_log(files)
    assert log.producers.states.state_of(8) is None
    assert log.append_as_leader(produced(7, 0, 5, attributes=TRANSACTIONAL), 0, NOW_MS).is_duplicate
    log.advance_high_watermark(5)
    assert log.last_stable_offset == 0


def test_db71_batches_of_an_older_epoch_are_in_no_snapshot() -> None:
    files = MemoryFileSystem()
    directory = open_directory(files)
    log = log_in(directory)
    append(log, produced(7, 0))
    append(log, produced(7, 0, producer_epoch=1))
    directory.close(broker_epoch=1)
    assert [entry.epoch for entry in snapshots_in(files)[2]] == [1]


def test_db75_a_snapshot_of_the_version_before_is_read_as_it_is() -> None:
    """It has one batch of each producer, with the timestamp of the producer."""
    files = MemoryFileSystem()
    directory = open_directory(files)
    log = log_in(directory)
    for index in range(3):
        append(log, produced(7, index))
    directory.close(broker_epoch=1)
    before = [ProducerEntry(7, 0, 2, 2, 0, NOW_MS - 5, -1, -1), ProducerEntry(8, 4, -1, -1, 0, -1, 3, -1)]
    write_new_file(files, f"data/clicks-0/{3:020d}.snapshot", encode_snapshot(before))
    files.remove(f"data/{INVENTORY_NAME}")  # that version has none
    files.end_process()
    states = open_log(files).producers.states
    known, of_a_marker = states.state_of(7), states.state_of(8)
    assert known is not None
    assert of_a_marker is not None
    assert ([*known.batches], known.appended_ms) == ([(2, 2, 0)], NOW_MS - 5)
    assert (of_a_marker.epoch, of_a_marker.coordinator_epoch, [*of_a_marker.batches]) == (4, 3, [])
    assert of_a_marker.appended_ms == NOW_MS, "a batch without a timestamp is not as old as time"


def test_db71_a_batch_that_is_stored_is_a_duplicate_though_the_clock_and_the_settings_have_changed() -> None:
    """A producer that was told otherwise would send the batches behind it again, in another epoch."""
    log = open_log(MemoryFileSystem())
    append(log, produced(7, 0, 5))
    again = produced(7, 0, 5)
    assert log.append_as_leader(again, 0, NOW_MS - 2 * DAY_MS).is_duplicate
    log.config = PartitionLogConfig(max_message_bytes=len(again) - 1, timestamp_before_max_ms=1, is_compacted=True)
    assert log.append_as_leader(again, 0, NOW_MS + DAY_MS).is_duplicate
    with pytest.raises(ApiError) as raised:
        log.append_as_leader(produced(7, 5, 5), 0, NOW_MS)
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_duplicate_is_answered_with_the_time_that_it_was_given_also_after_a_start() -> None:
    files = MemoryFileSystem()
    config = PartitionLogConfig(has_log_append_time=True)
    directory = open_directory(files, config=config)
    log = log_in(directory, config)
    for index in range(3):
        append(log, produced(7, index), now_ms=NOW_MS + 10 * index)
    directory.close(broker_epoch=1)
    files.end_process()
    log = open_log(files, config)
    for index in range(3):
        again = log.append_as_leader(produced(7, index), 0, NOW_MS + DAY_MS)
        assert (again.is_duplicate, again.append_time_ms) == (True, NOW_MS + 10 * index)


# --- how long a producer is remembered --------------------------------------------------------------------------------


@pytest.mark.parametrize("timestamp_ms", [NOW_MS - 2 * DAY_MS, -1], ids=["two days old", "none"])
def test_db70_a_producer_is_remembered_by_when_it_has_appended(timestamp_ms: int) -> None:
    files = MemoryFileSystem()
    directory = open_directory(files)
    log = log_in(directory)
    data = batch(producer_id=7, producer_epoch=0, sequence=0, timestamps=[timestamp_ms])
    append(log, data, now_ms=NOW_MS)
    assert log.producers.states.expire(NOW_MS + DAY_MS - 1, DAY_MS) == 0
    directory.close(broker_epoch=1)
    files.end_process()
    states = log_in(open_directory(files, now_ms=NOW_MS + DAY_MS // 2)).producers.states
    assert states.expire(NOW_MS + DAY_MS - 1, DAY_MS) == 0, "the snapshot has the time of the append"
    assert states.expire(NOW_MS + DAY_MS, DAY_MS) == 1


def test_db70_a_batch_that_is_read_again_without_a_snapshot_counts_as_appended_then() -> None:
    files = MemoryFileSystem()
    append(open_log(files), batch(producer_id=7, producer_epoch=0, sequence=0, timestamps=[NOW_MS - 2 * DAY_MS]))
    files.end_process()
    log = log_in(open_directory(files, now_ms=NOW_MS + 2 * DAY_MS))
    assert log.producers.states.expire(NOW_MS + 3 * DAY_MS - 1, DAY_MS) == 0
    assert log.producers.states.expire(NOW_MS + 3 * DAY_MS, DAY_MS) == 1


def test_db70_a_cut_keeps_producers_for_as_long_as_their_last_append_may_be_ago() -> None:
    log = open_log(MemoryFileSystem())
    append(log, produced(7, 0), now_ms=NOW_MS + 1_000)
    append(log, batch(1), now_ms=NOW_MS + 2_000)
    log.truncate(1)
    assert log.producers.states.expire(NOW_MS + 1_000 + DAY_MS - 1, DAY_MS) == 0
    assert log.producers.states.expire(NOW_MS + 2_000 + DAY_MS, DAY_MS) == 1


# --- the last stable offset -------------------------------------------------------------------------------------------


def started_with(files: MemoryFileSystem, high_watermark: int, config: PartitionLogConfig = SMALL) -> PartitionLog:
    """The log after a start that finds that high watermark in the checkpoint."""
    write_new_file(files, f"data/{HIGH_WATERMARKS_NAME}", f"0\n1\nclicks 0 {high_watermark}\n".encode())
    files.end_process()
    return open_log(files, config)


@pytest.mark.parametrize("how", ["shut down", "killed after a roll"])
@pytest.mark.parametrize("aborts", [False, True])
def test_db72_a_start_knows_transactions_whose_markers_are_not_committed(how: str, aborts: bool) -> None:
    files = MemoryFileSystem()
    directory = open_directory(files, config=SMALL)
    log = log_in(directory, SMALL)
    append(log, produced(7, 0, 3))
    append(log, produced(8, 0, 2, attributes=TRANSACTIONAL))
    append(log, produced(9, 0, 1, attributes=TRANSACTIONAL))
    append(log, produced(7, 3, 2))
    append(log, marker(8, aborts=aborts))
    append(log, produced(7, 5, 2))
    aborted = log.reader.aborted_transactions(0, 100)
    assert log.segment_count > 1
    ended(directory, how)
    log = started_with(files, 7)
    assert (log.high_watermark, log.last_stable_offset) == (7, 3)
    log.advance_high_watermark(8)
    assert log.last_stable_offset == 3, "the marker at 8 is not committed"
    log.advance_high_watermark(9)
    assert log.last_stable_offset == 5, "producer 9 has a transaction open since"
    append(log, marker(9, aborts=False))
    log.advance_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset
    assert log.reader.aborted_transactions(0, 100) == aborted
    assert log.append_as_leader(produced(7, 5, 2), 0, NOW_MS).is_duplicate


def test_db72_a_start_with_a_checkpoint_from_before_the_transaction() -> None:
    files = MemoryFileSystem()
    directory = open_directory(files)
    log = log_in(directory)
    append(log, produced(7, 0, 3))
    append(log, produced(8, 0, 2, attributes=TRANSACTIONAL))
    append(log, marker(8, aborts=False))
    ended(directory, "shut down")
    log = started_with(files, 1, PartitionLogConfig())
    log.advance_high_watermark(5)
    assert log.last_stable_offset == 3
    log.advance_high_watermark(6)
    assert log.last_stable_offset == 6


def test_a_start_does_not_read_a_log_without_transactions_to_find_one_that_has_ended() -> None:
    """Consider a high watermark checkpoint that is lost: all of the log is above it."""
    files = MemoryFileSystem()
    directory = open_directory(files, config=SMALL)
    log = log_in(directory, SMALL)
    for index in range(20):
        append(log, produced(7, index))
    ended(directory, "shut down")
    closed = [name for name in files.list_directory("data/clicks-0") if name.endswith(".log")][:-1]
    assert len(closed) > 1
    files.failing_reads |= {f"data/clicks-0/{name}" for name in closed}
    log = started_with(files, 0)
    assert (log.log_end_offset, log.last_stable_offset) == (20, 0)


@pytest.mark.parametrize("how", ["shut down", "killed after a roll"])
def test_db72_a_start_does_not_hold_what_is_committed_by_its_checkpoint(how: str) -> None:
    files = MemoryFileSystem()
    directory = open_directory(files)
    log = log_in(directory)
    append(log, produced(8, 0, 2, attributes=TRANSACTIONAL))
    append(log, marker(8, aborts=False))
    append(log, batch(2))
    ended(directory, how)
    assert started_with(files, 3, PartitionLogConfig()).last_stable_offset == 3


def test_db72_a_cut_does_not_hold_what_is_committed() -> None:
    log = open_log(MemoryFileSystem())
    append(log, produced(8, 0, 2, attributes=TRANSACTIONAL))
    append(log, marker(8, aborts=False))
    append(log, batch(4))
    log.advance_high_watermark(4)
    assert log.last_stable_offset == 4
    log.truncate(5)
    assert (log.log_end_offset, log.high_watermark, log.last_stable_offset) == (3, 3, 3)


def test_db72_it_is_not_below_the_start_of_the_log() -> None:
    files = MemoryFileSystem()
    directory = open_directory(files)
    log = log_in(directory)
    append(log, produced(8, 0, 2, attributes=TRANSACTIONAL))
    append(log, batch(4))
    log.advance_high_watermark(6)
    assert log.last_stable_offset == 0
    log.delete_records(4)
    assert (log.log_start_offset, log.last_stable_offset) == (4, 4)
    directory.close(broker_epoch=1)
    files.end_process()
    assert open_log(files).last_stable_offset == 4


# --- snapshots at rolls -----------------------------------------------------------------------------------------------


def test_db75_a_snapshot_at_a_roll_behind_a_gap_has_the_name_of_the_new_segment() -> None:
    """A follower copies a log whose compaction has left a gap."""
    files = MemoryFileSystem()
    config = PartitionLogConfig(segment_bytes=100)
    log = open_log(files, config)
    log.append_as_follower(replicated(0, 0), NOW_MS)
    log.append_as_follower(replicated(20, 5), NOW_MS)
    assert log.segment_count == 2
    assert list(snapshots_in(files)) == [20]


def test_a_snapshot_of_a_roll_that_found_no_room_is_not_used_when_the_log_has_gone_on_before_it() -> None:
    """Consider a roll behind a gap, and after it another leader, which has what the first one had compacted."""
    files = MemoryFileSystem()
    config = PartitionLogConfig(segment_bytes=100, preallocates=True)
    directory = open_directory(files, config=config)
    log = log_in(directory, config)
    log.append_as_follower(replicated(0, 0), NOW_MS)
    files.space_limit = files.used_bytes() + 100
    with pytest.raises(ApiError):
        log.append_as_follower(replicated(20, 5), NOW_MS)
    assert list(snapshots_in(files)) == [20]
    files.space_limit = None
    log.config = PartitionLogConfig()
    log.append_as_follower(replicated(1, 1), NOW_MS)
    log.config = config
    log.append_as_follower(replicated(20, 2), NOW_MS)
    assert [entry.last_sequence for entry in snapshots_in(files)[20]] == [0, 1]


def replicated(base_offset: int, sequence: int) -> bytes:
    return batch(1, base_offset=base_offset, epoch=0, producer_id=7, producer_epoch=0, sequence=sequence)
