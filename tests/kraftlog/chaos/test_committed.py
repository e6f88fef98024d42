"""What is read out of the committed log."""

from __future__ import annotations

import asyncio

import pytest

from kraftbase.types import Epoch, Offset
from kraftlog.chaos.committed import CommittedLog
from kraftlog.sim.quorum.registers.oracle import CommittedWrite
from kraftpb.v1.metadata_pb2 import ConfigRecord, MetadataRecord, NoOpRecord
from raft.core.types import Batch
from raft.listener import BatchReader
from raft.storage.batch import encode_batch, encode_body


def register(key: str, value: str, config: str = "retention.ms") -> bytes:
    record = ConfigRecord(resource_type=2, resource_name=key, name=config, value=value)
    return MetadataRecord(config=record).SerializeToString()


def batch(base_offset: int, *records: bytes) -> Batch:
    return encode_batch(Offset(base_offset), Epoch(1), encode_body(records), len(records), 1_700_000_000_000)


async def take(log: CommittedLog, *batches: Batch) -> None:
    reader = BatchReader(batches, lambda: None)
    await log.handle_commit(reader)
    assert reader.closed


async def test_writes_have_the_offsets_of_their_records() -> None:
    log = CommittedLog()
    other = MetadataRecord(no_op=NoOpRecord()).SerializeToString()
    await take(log, batch(0, register("a", "1"), other, register("b", "2")))
    await take(log, batch(3, register("a", "3"), register("a", "4", config="cleanup.policy")))
    assert log.writes == [CommittedWrite(0, "a", "1"), CommittedWrite(2, "b", "2"), CommittedWrite(3, "a", "3")]
    assert log.end_offset == 5
    assert log.gaps == []


@pytest.mark.parametrize("base_offset", [0, 2])
async def test_what_is_skipped_or_repeated_is_noticed(base_offset: int) -> None:
    log = CommittedLog()
    await take(log, batch(0, register("a", "1")))
    await take(log, batch(base_offset, register("a", "2")))
    assert log.gaps == [f"expected offset 1, got offset {base_offset}"]


async def test_the_digest_is_of_every_byte() -> None:
    one, same, other = CommittedLog(), CommittedLog(), CommittedLog()
    await take(one, batch(0, register("a", "1")), batch(1, register("a", "2")))
    await take(same, batch(0, register("a", "1")))
    assert one.digest() != same.digest()
    await take(same, batch(1, register("a", "2")))
    await take(other, batch(0, register("a", "1")), batch(1, register("a", "3")))
    assert one.digest() == same.digest() != other.digest()


async def test_the_digest_of_a_part_is_that_of_a_log_that_begins_there() -> None:
    whole, part = CommittedLog(), CommittedLog(Offset(1))
    await take(whole, batch(0, register("a", "1")), batch(1, register("a", "2")), batch(2, register("a", "3")))
    await take(part, batch(1, register("a", "2")), batch(2, register("a", "3")))
    assert part.gaps == []
    assert part.digest() == whole.digest(Offset(1)) != whole.digest() != whole.digest(Offset(2))


async def test_who_waits_for_an_offset_is_told() -> None:
    log = CommittedLog()
    waiting = asyncio.ensure_future(log.wait_for(Offset(1), 5))
    await asyncio.sleep(0)
    assert not waiting.done()
    await take(log, batch(0, register("a", "1")))
    await waiting
    with pytest.raises(TimeoutError):
        await log.wait_for(Offset(2), 0.01)
