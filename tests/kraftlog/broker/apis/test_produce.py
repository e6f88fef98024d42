"""Produce (DB-64): what is refused and with which error, several partitions in one request, what readers are shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.kafka.record_batch import Compression
from kraftlog.network.requests import ConnectionRefused
from kraftlog.storage.formats.batch_header import has_right_crc
from kraftpb.v1.metadata_pb2 import MetadataRecord
from tests.kraftlog.broker.broker_world import BrokerWorld, replicas, topic
from tests.kraftlog.broker.malformed_batches import compressed, rec
from tests.kraftlog.storage.builders import (
    NOW_MS,
    TRANSACTIONAL,
    batch,
    damaged,
    header_of,
    marker,
    produced,
    with_field,
)
from tests.statemachine.builders import BROKER, config, remove_topic

ATTRIBUTES_AT, COUNT_AT = 21, 57
NO_BATCH = b"x" * 80


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    """A broker that leads two partitions."""
    return BrokerWorld(tmp_path, [topic("clicks"), replicas(index=0), replicas(index=1)])


# --- several partitions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [0, 1])
def test_without_acks_an_error_in_one_partition_closes_the_connection_and_the_other_is_shown(
    world: BrokerWorld, wrong: int
) -> None:
    parts = [(0, batch(1)), (1, batch(1))]
    parts[wrong] = (wrong, NO_BATCH)
    with pytest.raises(ConnectionRefused, match="magic"):
        world.send(*parts, acks=0)
    world.runtime.run()
    assert world.answers == []
    assert world.high_watermark(wrong) == 0
    assert world.high_watermark(1 - wrong) == 1


@pytest.mark.parametrize("acks", [1, -1])
def test_db64_each_partition_has_its_own_result(world: BrokerWorld, acks: int) -> None:
    world.send((1, batch(2)), (0, NO_BATCH), (7, batch(1)), acks=acks)
    assert world.answers == []
    world.runtime.run()
    answered = world.produced()
    assert [(part.index, part.error_code, part.base_offset) for part in answered] == [
        (1, ErrorCode.NONE, 0),
        (0, ErrorCode.CORRUPT_MESSAGE, -1),
        (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]
    assert world.high_watermark(0) == 0
    assert world.high_watermark(1) == 2


# --- what is refused --------------------------------------------------------------------------------------------------


def refused(world: BrokerWorld, data: bytes | None, version: int = 13, transactional_id: str | None = None) -> int:
    """The error code of a batch that is refused; nothing of it is in the log."""
    end_offset = world.replica().online_log().log_end_offset
    world.send((0, data), version=version, transactional_id=transactional_id)
    (code,) = world.produced_codes()
    assert world.replica().online_log().log_end_offset == end_offset
    return code


def test_records_of_a_transaction_are_refused_as_nobody_would_end_it(world: BrokerWorld) -> None:
    data = produced(7, 0, attributes=TRANSACTIONAL)
    assert refused(world, data, transactional_id="mine") == ErrorCode.INVALID_TXN_STATE
    assert refused(world, data) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_zstd_is_refused_in_versions_whose_readers_do_not_know_it(world: BrokerWorld) -> None:
    data = compressed([rec(0)], Compression.ZSTD, base_ms=NOW_MS)
    assert refused(world, data, version=6) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    world.send((0, data), version=7, acks=1)
    world.runtime.run()
    assert world.produced_codes() == [ErrorCode.NONE]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (damaged(batch(1)), ErrorCode.CORRUPT_MESSAGE),
        (with_field(batch(1), ATTRIBUTES_AT, ">h", 5), ErrorCode.INVALID_RECORD),
        (with_field(batch(1), ATTRIBUTES_AT, ">h", 7), ErrorCode.INVALID_RECORD),
        (with_field(batch(1), COUNT_AT, ">i", 0), ErrorCode.INVALID_RECORD),
        (with_field(batch(1), COUNT_AT, ">i", 2), ErrorCode.INVALID_RECORD),
        (batch(1) + batch(1), ErrorCode.INVALID_RECORD),
        (batch(1, base_offset=3), ErrorCode.INVALID_RECORD),
        (batch(1, timestamp_ms=NOW_MS + 3_600_001), ErrorCode.INVALID_TIMESTAMP),
        (batch(1, value=b"x" * 2_000_000), ErrorCode.MESSAGE_TOO_LARGE),
        (marker(7, aborts=False), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (with_field(batch(1), ATTRIBUTES_AT, ">h", 0x20), ErrorCode.INVALID_RECORD),
        (batch(1, producer_id=7, producer_epoch=0, sequence=-1), ErrorCode.INVALID_RECORD),
        (b"\x00" * 16 + b"\x00" + b"\x00" * 60, ErrorCode.INVALID_RECORD),
        (b"\x00" * 16 + b"\x01" + b"\x00" * 60, ErrorCode.INVALID_RECORD),
    ],
)  # fmt: skip
def test_what_is_no_batch_for_a_client_to_write_is_refused_by_name(
    world: BrokerWorld, data: bytes | None, code: ErrorCode
) -> None:
    assert refused(world, data) == code


def test_clients_do_not_write_to_the_topics_of_coordinators(world: BrokerWorld) -> None:
    world.commit(topic("__consumer_offsets", 2), replicas(2))
    world.send((0, batch(1)), number=2)
    assert world.produced_codes() == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    world.client_id = "__admin_client"
    world.send((0, batch(1)), number=2, acks=1)
    world.runtime.run()
    assert world.produced_codes() == [ErrorCode.NONE]


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (remove_topic(1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (replicas(index=0, on=[2], epoch=1), ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_a_produce_whose_partition_goes_before_its_flush_is_told_whether_the_topic_is_gone(
    world: BrokerWorld, acks: int, change: MetadataRecord, code: ErrorCode
) -> None:
    world.send((0, batch(1)), acks=acks)
    world.commit(change)
    world.runtime.run()
    assert world.produced_codes() == [code]


def test_db85_a_batch_keeps_its_codec_whatever_the_topics_compression_type_is(world: BrokerWorld) -> None:
    """DB-85."""
    world.commit(config("clicks", "compression.type", "zstd"))
    world.send((0, batch(2)))
    world.runtime.run()
    assert world.produced_codes() == [ErrorCode.NONE]
    world.read((0, 0))
    (read,) = world.fetched()
    assert read.records is not None
    assert bytes(read.records)[16:] == batch(2)[16:]


def test_a_timestamp_that_is_too_old_for_its_topic_is_refused(world: BrokerWorld) -> None:
    world.commit(config("clicks", "message.timestamp.before.max.ms", "1000"))
    assert refused(world, batch(1, timestamp_ms=NOW_MS - 1_001)) == ErrorCode.INVALID_TIMESTAMP
    world.send((0, batch(1, timestamp_ms=NOW_MS - 1_000)), acks=1)
    world.runtime.run()
    assert world.produced_codes() == [ErrorCode.NONE]


def test_with_log_append_time_a_batch_gets_the_brokers_time_whatever_its_own(world: BrokerWorld) -> None:
    world.commit(config("clicks", "message.timestamp.type", "LogAppendTime"))
    world.send((0, batch(2, timestamp_ms=5)), acks=1)
    world.runtime.run()
    assert [(part.error_code, part.log_append_time_ms) for part in world.produced()] == [(ErrorCode.NONE, NOW_MS)]
    world.read((0, 0))
    (part,) = world.fetched()
    assert part.records is not None
    header = header_of(bytes(part.records))
    assert (header.max_timestamp_ms, has_right_crc(header, part.records)) == (NOW_MS, True)


# --- idempotence ------------------------------------------------------------------------------------------------------


def test_a_refusal_says_where_the_log_starts_unless_it_is_of_the_leader_or_the_disk(world: BrokerWorld) -> None:
    world.send((0, produced(7, 0, count=2)), acks=1)
    world.runtime.run()
    world.replica().online_log().delete_records(2)
    for data, answer in (
        (produced(7, 5), (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 2)),
        (damaged(batch(1)), (ErrorCode.CORRUPT_MESSAGE, -1)),
    ):
        world.send((0, data))
        assert [(part.error_code, part.log_start_offset) for part in world.produced()] == [answer]
    world.send((9, batch(1)))
    assert [part.log_start_offset for part in world.produced()] == [-1]


def test_a_duplicate_is_answered_with_the_offset_of_the_first_and_a_gap_is_refused(world: BrokerWorld) -> None:
    for sequence in (0, 2, 0, 2):
        world.send((0, produced(7, sequence, count=2)), acks=1)
    world.runtime.run()
    assert [part.base_offset for _ in range(4) for part in world.produced()] == [2, 0, 2, 0]
    assert refused(world, produced(7, 5)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(world, produced(7, 3)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    world.send((0, produced(7, 0, producer_epoch=1)), acks=1)
    world.runtime.run()
    assert world.produced_codes() == [ErrorCode.NONE]
    assert refused(world, produced(7, 4)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_duplicate_is_acknowledged_when_the_first_is_durable_and_not_before(world: BrokerWorld) -> None:
    world.send((0, produced(7, 0)))
    world.send((0, produced(7, 0)))
    assert world.answers == []
    world.runtime.run()
    assert [part.base_offset for _ in range(2) for part in world.produced()] == [0, 0]
    assert world.high_watermark() == 1


# --- waiting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("acks", [1, -1])
def test_what_is_flushed_after_the_time_of_its_request_is_shown_to_readers(world: BrokerWorld, acks: int) -> None:
    world.send((0, batch(1)), acks=acks)
    world.runtime.expire()
    assert world.produced_codes() == [ErrorCode.REQUEST_TIMED_OUT]
    world.read((0, 0))
    assert world.answers == []
    world.runtime.run()
    assert [part.high_watermark for part in world.fetched()] == [1]
    assert world.answers == []


def test_a_partition_that_is_twice_in_a_request_is_waited_for_twice(tmp_path: Path) -> None:
    world = BrokerWorld(
        tmp_path, [topic("clicks"), replicas(on=[1, 2]), config("clicks", "flush.before.ack", "false")]
    )  # fmt: skip
    world.send((0, batch(1)), (0, batch(1)))
    log = world.replica().online_log()
    for offset in (1, 2):
        assert world.answers == []
        log.advance_high_watermark(offset)
        world.replica().notify()
    assert [(part.error_code, part.base_offset) for part in world.produced()] == [(0, 0), (0, 1)]
    assert world.replica().watcher_count == 0


def test_db23_what_was_committed_while_too_few_have_become_in_sync_is_said_to_be_appended_only(tmp_path: Path) -> None:
    """DB-23."""
    settings = [config("clicks", "flush.before.ack", "false"), config("clicks", "min.insync.replicas", "2")]
    world = BrokerWorld(tmp_path, [topic("clicks"), replicas(on=[1, 2]), *settings])
    world.send((0, batch(1)))
    assert world.answers == []
    world.replica().online_log().advance_high_watermark(1)
    world.commit(replicas(on=[1, 2], isr=[1], epoch=1))
    assert world.produced_codes() == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


def test_a_topic_whose_records_are_not_validated_follows_its_config_and_the_brokers(world: BrokerWorld) -> None:
    unreadable = compressed([rec(0, headers=-1)], Compression.ZSTD, base_ms=NOW_MS)
    assert refused(world, unreadable) == ErrorCode.INVALID_RECORD
    world.commit(config("", "log.validate.records", "false", BROKER))
    world.send((0, unreadable), acks=1)
    world.runtime.run()
    assert world.produced_codes() == [ErrorCode.NONE]
    world.commit(config("clicks", "validate.records", "true"))
    assert refused(world, unreadable) == ErrorCode.INVALID_RECORD
