"""Replicas are compared by their bytes, and a producer's sequence is followed through a partition."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlog.chaos.brokers.checks import none_is_fenced, replicas_agree, sequences_hold
from kraftlog.kafka.record_batch import encode_batch
from kraftlog.kafka.records import Record
from statemachine.query.descriptions import PartitionDescription


def batch(base_offset: int, sequence: int, count: int = 1, producer_epoch: int = 0) -> bytes:
    return encode_batch(
        [Record(base_offset + number, 0, None, b"x") for number in range(count)],
        base_offset=base_offset,
        partition_leader_epoch=0,
        producer_id=7,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
    )


def test_a_sequence_goes_on_where_it_ended_and_begins_anywhere_in_a_new_epoch() -> None:
    assert sequences_hold(batch(0, 5, count=3) + batch(3, 8) + batch(4, 0, producer_epoch=1)) == []


@pytest.mark.parametrize(("sequence", "said"), [(0, "has sequence 0 in epoch 0, not 1"), (2, "has sequence 2")])
def test_a_batch_that_is_there_twice_or_missing_breaks_the_sequence(sequence: int, said: str) -> None:
    (story,) = sequences_hold(batch(0, 0) + batch(1, sequence))
    assert said in story


def test_batches_without_a_producer_id_have_no_sequence() -> None:
    plain = [encode_batch([Record(at, 0, None, b"x")], base_offset=at, partition_leader_epoch=0) for at in (0, 1)]
    assert sequences_hold(b"".join(plain)) == []


async def test_a_broker_that_says_in_peace_that_it_was_fenced_is_a_violation(tmp_path: Path) -> None:
    cluster: Any = SimpleNamespace(broker_ids=[1, 2], log_path=lambda broker_id: tmp_path / str(broker_id))
    was_fenced = "event='Broker 1 was fenced: the controller got no heartbeat'\n"
    for broker_id in cluster.broker_ids:
        (tmp_path / str(broker_id)).write_text(was_fenced)  # amid the faults
    assert await none_is_fenced(cluster, 0.0) == []

    async def fenced_again() -> None:
        with (tmp_path / "2").open("a") as file:
            file.write(was_fenced)

    found, _ = await asyncio.gather(none_is_fenced(cluster, 0.05), fenced_again())
    assert found == ["broker 2 was fenced in peace, while a client sent large requests"]


def test_replicas_agree_by_their_bytes_wherever_their_segments_begin(tmp_path: Path) -> None:
    first, second = batch(0, 0), batch(1, 1)
    brokers: Any = SimpleNamespace(data_path=lambda broker_id: tmp_path / str(broker_id))
    for broker_id, segments in ((1, {0: first + second}), (2, {0: first, 1: second}), (3, {0: first})):
        directory = tmp_path / str(broker_id) / "partitions" / "three-0"
        directory.mkdir(parents=True)
        for base_offset, content in segments.items():
            (directory / f"{base_offset:020}.log").write_bytes(content)

    def of(*replicas: int) -> PartitionDescription:
        return PartitionDescription(0, 1, 0, 0, replicas, replicas)

    assert replicas_agree(brokers, {"three": [of(1, 2)]}) == []
    (story,) = replicas_agree(brokers, {"three": [of(1, 3)]})
    assert story.startswith("the replicas of three-0 differ")


def test_what_retention_deleted_at_one_replica_alone_is_not_compared(tmp_path: Path) -> None:
    brokers: Any = SimpleNamespace(data_path=lambda broker_id: tmp_path / str(broker_id))
    logs = {1: [batch(0, 0), batch(1, 1), batch(2, 2)], 2: [batch(1, 1), batch(2, 2)], 3: [batch(1, 1), batch(2, 9)]}
    for broker_id, batches in logs.items():
        directory = tmp_path / str(broker_id) / "partitions" / "three-0"
        directory.mkdir(parents=True)
        (directory / f"{0:020}.log").write_bytes(b"".join(batches))

    def found(*replicas: int) -> list[str]:
        described = {"three": [PartitionDescription(0, 1, 0, 0, replicas, replicas)]}
        return replicas_agree(brokers, described, is_retained=True)

    assert found(1, 2) == []
    (story,) = found(1, 3)
    assert story.startswith("the replicas of three-0 differ")
