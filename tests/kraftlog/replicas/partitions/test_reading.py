"""What a reader is given of a partition: by offset, by the epoch that it read last, and by its isolation."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.kafka.record_batch import read_batches
from kraftlog.storage.producer_states import Origin
from tests.kraftlog.broker.broker_world import BrokerWorld, replicas, topic
from tests.kraftlog.storage.builders import NOW_MS, TRANSACTIONAL, batch, marker, produced


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    """A leader with offsets 0 to 3 of epoch 2, and 4 to 5 of epoch 5."""
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas(epoch=2)])
    world.send((0, batch(4)), acks=1)
    world.runtime.run()
    world.commit(replicas(epoch=5))
    world.send((0, batch(2)), acks=1)
    world.runtime.run()
    world.answers.clear()
    return world


def read(world: BrokerWorld, offset: int, last_epoch: int = -1) -> tuple[int, tuple[int, int], int]:
    """The error code, the diverging epoch with its end, and the first offset of the records; -1 if there are none."""
    world.read((0, offset), min_bytes=0, last_fetched_epoch=last_epoch)
    (part,) = world.fetched()
    found = [one.base_offset for one in read_batches(bytes(part.records or b""))]
    diverging = part.diverging_epoch.epoch, part.diverging_epoch.end_offset
    return part.error_code, diverging, found[0] if found else -1


NONE = (-1, -1)


@pytest.mark.parametrize(
    ("offset", "last_epoch", "answer"),
    [
        (4, -1, (ErrorCode.NONE, NONE, 4)),
        (4, 2, (ErrorCode.NONE, NONE, 4)),
        (6, 5, (ErrorCode.NONE, NONE, -1)),
        (5, 2, (ErrorCode.NONE, (2, 4), -1)),
        (4, 3, (ErrorCode.NONE, (2, 4), -1)),
        (1, 1, (ErrorCode.NONE, (1, 0), -1)),
        (4, 6, (ErrorCode.OFFSET_OUT_OF_RANGE, NONE, -1)),
        (7, 5, (ErrorCode.NONE, (5, 6), -1)),
        (7, -1, (ErrorCode.OFFSET_OUT_OF_RANGE, NONE, -1)),
        (-1, -1, (ErrorCode.OFFSET_OUT_OF_RANGE, NONE, -1)),
    ],
)
def test_a_reader_whose_log_is_another_is_told_where_they_part(
    world: BrokerWorld, offset: int, last_epoch: int, answer: tuple[int, tuple[int, int], int]
) -> None:
    assert read(world, offset, last_epoch) == answer


@pytest.mark.parametrize("last_epoch", [-1, 2, 3, 5])
def test_db26_below_the_logs_start_a_reader_is_out_of_range_before_it_is_told_where_logs_part(
    world: BrokerWorld, last_epoch: int
) -> None:
    world.replica().online_log().delete_records(5)
    assert read(world, 4, last_epoch) == (ErrorCode.OFFSET_OUT_OF_RANGE, NONE, -1)


def test_readers_of_committed_records_are_told_of_aborted_transactions_and_wait_for_open_ones(
    world: BrokerWorld,
) -> None:
    log = world.replica().online_log()
    for data, origin in (
        (produced(7, 0, attributes=TRANSACTIONAL), Origin.CLIENT),
        (marker(7, aborts=True), Origin.COORDINATOR),
        (produced(8, 0, attributes=TRANSACTIONAL), Origin.CLIENT),
        (batch(1), Origin.CLIENT),
    ):
        log.append_as_leader(data, 5, NOW_MS, origin)
    log.flush()
    world.replica().raise_high_watermark()
    found = []
    for isolation in (0, 1):
        world.read((0, 6), isolation=isolation)
        (part,) = world.fetched()
        aborted = part.aborted_transactions
        assert part.records is not None
        last = [one.base_offset for one in read_batches(bytes(part.records))][-1]
        told = None if aborted is None else [(one.producer_id, one.first_offset) for one in aborted]
        found.append((part.high_watermark, part.last_stable_offset, last, told))
    assert found == [(10, 8, 9, None), (10, 8, 7, [(7, 6)])]


def test_a_reader_of_committed_records_is_told_of_those_aborted_transactions_only_that_it_has_records_of(
    world: BrokerWorld,
) -> None:
    log = world.replica().online_log()
    for producer_id in (7, 8):
        log.append_as_leader(produced(producer_id, 0, attributes=TRANSACTIONAL), 5, NOW_MS)
        log.append_as_leader(marker(producer_id, aborts=True), 5, NOW_MS, Origin.COORDINATOR)
    log.flush()
    world.replica().raise_high_watermark()
    told = {}
    for max_bytes in (1, 1_000_000):
        world.read((0, 6), isolation=1, max_bytes=max_bytes)
        (part,) = world.fetched()
        told[max_bytes] = [one.producer_id for one in part.aborted_transactions or ()]
    assert told == {1: [7], 1_000_000: [7, 8]}
