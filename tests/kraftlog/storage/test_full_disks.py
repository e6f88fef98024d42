"""What a start knows of its logs, and a full disk: nothing is offline for a line that finds no room."""

from __future__ import annotations

from uuid import UUID

from kraftbase.files.files import read_whole
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.slices import run_at_once
from tests.kraftlog.storage.builders import CLICKS, NOW_MS, TOPIC_ID, append, batch, log_in, open_directory


def test_a_lost_topic_id_that_found_no_room_at_a_start_is_written_by_the_next_one() -> None:
    files = MemoryFileSystem()
    directory = open_directory(files)
    append(log_in(directory), batch(3))
    directory.close(broker_epoch=1)
    path = "data/clicks-0/partition.metadata"
    before = read_whole(files, path)
    files.remove(path)
    files.space_limit = files.used_bytes()
    directory = open_directory(files)
    assert not directory.offline_reason
    assert log_in(directory).log_end_offset == 3
    files.space_limit = None
    files.end_process()
    assert log_in(open_directory(files)).log_end_offset == 3
    assert read_whole(files, path) == before


def test_a_new_log_that_the_inventory_has_no_room_for_is_there() -> None:
    files = MemoryFileSystem()
    files.space_limit = 2_000  # nothing is reserved for the inventory
    directory = open_directory(files)
    files.space_limit = files.used_bytes() + 60
    log = directory.create_log(CLICKS, TOPIC_ID, PartitionLogConfig(), NOW_MS, UUID(int=7))
    assert directory.records.entry(CLICKS) is None
    assert not directory.offline_reason
    files.space_limit = None
    run_at_once(directory.checkpoint())
    assert directory.records.entry(CLICKS) == log.inventory_entry(TOPIC_ID)


def test_retention_makes_room_also_if_the_inventory_has_none() -> None:
    files = MemoryFileSystem()
    config = PartitionLogConfig(segment_bytes=100, retention_bytes=100)
    files.space_limit = 4_000  # nothing is reserved for the inventory
    directory = open_directory(files, config=config)
    log = log_in(directory, config)
    for _ in range(4):
        append(log, batch(1))
    log.flush()
    log.advance_high_watermark(log.log_end_offset)
    run_at_once(directory.checkpoint())
    files.space_limit = files.used_bytes()
    assert log.delete_old_segments(NOW_MS).segment_count > 0
    assert not directory.offline_reason
    assert log.log_start_offset > 0
    files.space_limit = None
    run_at_once(directory.checkpoint())
    assert directory.records.entry(CLICKS) == log.inventory_entry(TOPIC_ID)
    files.crash()
    assert not open_directory(files, config=config).damaged
