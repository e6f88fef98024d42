"""What attacks on starts with real processes have found (DB-88, DB-89)."""

from __future__ import annotations

from functools import partial
from uuid import UUID

import pytest

from kraftbase.files.files import read_whole, write_new_file
from kraftbase.partition import TopicPartition
from kraftlog.storage.damage import DamagedSegment
from kraftlog.storage.findings import Finding
from kraftlog.storage.formats.checkpoints import encode_partition_metadata
from tests.kraftlog.storage.builders import CLICKS, TOPIC_ID, all_batches, checkpoint, delete_log, header_of
from tests.kraftlog.storage.test_crashes import OPERATIONS_MAX, kill_after
from tests.kraftlog.storage.test_damaged_starts import (
    CONFIG,
    ENDS,
    GONE,
    INVENTORY,
    METADATA,
    NEW_ID,
    RECOVERY_POINTS,
    STARTS,
    Broker,
    segment,
)


@pytest.mark.parametrize("keeps_inventory", [True, False])
@pytest.mark.parametrize("loses_power", [False, True])
def test_db88_what_is_behind_an_accepted_loss_stays_when_that_is_killed(
    loses_power: bool, keeps_inventory: bool
) -> None:
    """The start after that must not take the offsets that are missing for what a crash has taken from the log's end."""
    for operations in range(OPERATIONS_MAX):
        broker = Broker()
        broker.end("kill")
        broker.files.remove(segment(2))
        broker.files.fsync_directory("a/clicks-0")
        kept = [data for data in broker.before if header_of(data).base_offset not in (2, 3)]
        assert broker.start() is Finding.DAMAGED
        accept = partial(broker.manager.accept_loss, CLICKS, TOPIC_ID, CONFIG)
        was_killed = kill_after(broker.files, operations, accept, loses_power=loses_power)
        if not keeps_inventory:  # an older version does not know it
            broker.files.remove(INVENTORY)
        if broker.start() is Finding.DAMAGED:
            broker.manager.accept_loss(CLICKS, TOPIC_ID, CONFIG)
        assert all_batches(broker.found()) == kept, operations
        if not was_killed:
            return
    raise AssertionError("to accept the loss takes more operations")


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("lost", ["the end", "every segment"])
def test_db89_a_wrong_topic_id_does_not_hide_that_the_end_is_lost(how: str, lost: str) -> None:
    broker = Broker()
    broker.end(how)
    write_new_file(broker.files, METADATA, encode_partition_metadata(UUID(int=TOPIC_ID.int ^ 1 << 40)))
    for base_offset in (0, 2, 4) if lost == "every segment" else ():
        broker.files.remove(segment(base_offset))
    file = broker.files.open(segment(6))
    file.truncate(0)
    file.fsync()
    file.close()
    broker.files.fsync_directory("a/clicks-0")
    assert broker.start() is Finding.DAMAGED


def test_on_a_full_disk_a_damaged_log_does_not_take_its_directory_offline() -> None:
    broker = Broker()
    broker.log.advance_high_watermark(7)
    checkpoint(broker.manager, high_watermarks=True)
    broker.end("kill")
    broker.files.remove(segment(2))
    broker.files.fsync_directory("a/clicks-0")
    broker.files.space_limit = broker.files.used_bytes()
    assert broker.start() is Finding.DAMAGED
    assert broker.manager.directory_of(CLICKS) is not None
    assert broker.manager.directories[0].offline_reason == ""
    assert broker.manager.directories[0].records.high_watermarks == {CLICKS: 7}, "it may be put back"


def test_a_second_loss_in_a_segment_keeps_what_the_first_one_has_left() -> None:
    broker = Broker()
    for _ in range(2):
        broker.end("kill")
        data = bytearray(read_whole(broker.files, segment(4)))
        data[-1] ^= 1
        write_new_file(broker.files, segment(4), bytes(data))
        if broker.start() is not Finding.DAMAGED:
            broker.manager.directories[0].partition_damaged(CLICKS, DamagedSegment(segment(4), 0, "it rotted"))
        broker.manager.accept_loss(CLICKS, TOPIC_ID, CONFIG)
    assert sorted(name for name in broker.names("a/clicks-0") if name.endswith(".lost")) == [
        f"{4:020d}.log.2.lost",
        f"{4:020d}.log.lost",
    ]


def test_checkpoints_have_no_lines_of_logs_that_are_gone() -> None:
    broker = Broker()
    other = TopicPartition("orders", 0)
    broker.manager.create_log(other, NEW_ID, CONFIG)
    checkpoint(broker.manager)
    delete_log(broker.manager, other, GONE)
    checkpoint(broker.manager)
    for directory in ("a", "b"):
        for name in (STARTS, RECOVERY_POINTS):
            path = f"{directory}/{name.partition('/')[2]}"
            if broker.files.exists(path):
                assert b"orders" not in read_whole(broker.files, path)
