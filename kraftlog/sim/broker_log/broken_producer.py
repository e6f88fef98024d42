"""A producer of batches that no consumer could read. None of them may be acknowledged or appended."""

from __future__ import annotations

import struct
from random import Random
from typing import Final, cast

from kraftbase.checksum import crc32c
from kraftbase.errors import ErrorCode
from kraftlog.kafka.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kraftlog.kafka.notation import Message
from kraftlog.kafka.record_batch import HEADER_BYTES, encode_batch
from kraftlog.kafka.records import Record
from kraftlog.sim.broker_log.broker import Broker
from kraftlog.sim.broker_log.checkers.rules import ACKNOWLEDGED
from kraftlog.sim.broker_log.world import World
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS

CHANGES: Final = {
    "the record is longer than its batch": (0, +2),
    "the record ends before its value": (0, -2),
    "the offset delta is 1": (3, +2),
    "the value is longer than the record": (5, +2),
    "there are -1 headers": (-1, +1),
}
"""By change: the byte of a record that is changed, and the number added to it.

All numbers in the record take one byte.
"""
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_CRC_START: Final = 21


def broken_batch(time_ms: int, value: bytes, change: str) -> bytearray:
    """Return a broken batch of one record, with a correct CRC."""
    data = bytearray(encode_batch([Record(0, time_ms, None, value)], base_offset=0, partition_leader_epoch=-1))
    at, added = CHANGES[change]
    data[HEADER_BYTES + at if at >= 0 else at] += added
    _CRC.pack_into(data, _CRC_AT, crc32c(bytes(data[_CRC_START:])))
    return data


class BrokenProducer:
    """Sends such a batch to a random partition from time to time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = Random(
            f"broken producer {world.parameters.seed}"
        )  # a separate generator, so that nothing else changes
        self._made = 0

    def start(self) -> None:
        """Schedule the next batch."""
        self._world.event_queue.after(self._random.randint(100, 2_000) * MICROSECONDS_PER_MS, self._send)

    def _send(self) -> None:
        world, random = self._world, self._random
        if world.is_quiet:
            return
        names = sorted(world.metadata.topics)
        if names:
            topic, index = world.metadata.topics[random.choice(names)], random.randrange(world.parameters.partitions)
            change = random.choice(list(CHANGES))
            self._made += 1
            data = PartitionProduceData(
                index=index, records=broken_batch(world.true_ms, f"broken:{self._made}".encode(), change)
            )
            body = ProduceRequest(
                acks=-1, timeout_ms=1_000,
                topic_data=(TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=(data,)),),
            )  # fmt: skip

            def answered(response: Message | None) -> None:
                self._answered(f"{topic.name}-{index}", change, response)

            def handle(broker: Broker) -> None:
                broker.handle(body, answered)

            world.step(handle)
        self.start()

    def _answered(self, name: str, change: str, response: Message | None) -> None:
        if response is None:
            return
        code = ErrorCode(cast(ProduceResponse, response).responses[0].partition_responses[0].error_code)
        if code is ErrorCode.NONE:
            raise Violation(f"{ACKNOWLEDGED}: {name}: a batch that no consumer can read was acknowledged: {change}")
        if code is ErrorCode.INVALID_RECORD:
            self._world.marks.hit("produce: INVALID_RECORD")
