"""ListOffsets by time in batches with many records: they are read in slices (DB-51)."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from types import FrameType

import pytest

from kraftlog.broker.apis.offsets import MAX_TIMESTAMP
from kraftlog.kafka.apis import api_of
from kraftlog.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kraftlog.kafka.notation import Message
from kraftlog.kafka.record_batch import Compression
from kraftlog.kafka.record_scan import RECORDS_A_TURN
from kraftlog.network.requests import ClientRequest, RequestContext, Steps
from kraftlog.storage import timestamps
from tests.kraftlog.broker.broker_world import BrokerWorld, replicas, topic
from tests.kraftlog.broker.malformed_batches import compressed, rec
from tests.kraftlog.storage.builders import NOW_MS, append, batch

pytestmark = pytest.mark.usefixtures("record_loop")

MANY = 6 * RECORDS_A_TURN
LATER_MS = NOW_MS + 5
NAMED_TUPLE = "<string>"
"""The file in which Python makes named tuples."""
CONTEXT = RequestContext("127.0.0.1", "PLAINTEXT")


class Asked:
    """A question, and its answer when there is one."""

    def __init__(self, world: BrokerWorld, *questions: tuple[int, int]) -> None:
        """Each question is a partition and a timestamp."""
        self.answer: ListOffsetsResponse | None = None
        self._steps: Steps = iter(())
        partitions = tuple(
            ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index, timestamp in questions
        )
        body = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name="clicks", partitions=partitions),))

        def reply(response: Message | None, throttle_ms: int = 0) -> None:
            assert isinstance(response, ListOffsetsResponse)
            self.answer = response

        world.list_offsets.handle(ClientRequest(api_of(body.KEY), 7, body, CONTEXT, 100, slices=self), reply)

    answer_room_bytes = 2**63 - 1

    def run(self, steps: Steps) -> None:
        """For the handler."""
        self._steps = steps

    def slices(self) -> int:
        """Let everything be done; returns how many slices that takes."""
        return sum(1 for _ in self._steps)

    def offsets(self) -> list[int]:
        assert self.answer is not None
        return [one.offset for one in self.answer.topics[0].partitions]


@cache
def with_the_last_one_newest() -> bytes:
    records = [*(rec(index) for index in range(MANY - 1)), rec(MANY - 1, timestamp=5)]
    return compressed(records, Compression.GZIP, base_ms=NOW_MS)


@cache
def with_each_newer_than_the_one_before() -> bytes:
    return compressed([rec(index, timestamp=index) for index in range(MANY)], Compression.GZIP, base_ms=NOW_MS)


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    """A broker with two partitions; the last record of many in the first one is the newest."""
    made = BrokerWorld(tmp_path, [topic("clicks"), replicas(index=0), replicas(index=1)])
    for index, data in ((0, with_the_last_one_newest()), (1, batch(2))):
        log = made.replica(index).online_log()
        append(log, data)
        log.flush()
        made.replica(index).raise_high_watermark()
    return made


@pytest.mark.parametrize("timestamp", [LATER_MS, MAX_TIMESTAMP])
def test_no_slice_reads_more_than_a_piece(world: BrokerWorld, timestamp: int) -> None:
    asked = Asked(world, (0, timestamp))
    assert asked.slices() >= MANY // (2 * RECORDS_A_TURN)
    assert asked.offsets() == [MANY - 1]


@pytest.mark.parametrize("timestamp", [NOW_MS + MANY - 1, MAX_TIMESTAMP])
def test_no_object_is_made_for_a_record(world: BrokerWorld, timestamp: int) -> None:
    log = world.replica(1).online_log()
    append(log, with_each_newer_than_the_one_before())
    log.flush()
    world.replica(1).raise_high_watermark()
    asked = Asked(world, (1, timestamp))
    calls = 0

    def note(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename in (timestamps.__file__, NAMED_TUPLE)

    sys.setprofile(note)
    try:
        asked.slices()
    finally:
        sys.setprofile(None)
    assert asked.offsets() == [2 + MANY - 1]
    assert calls < MANY / 50


def test_others_go_on_meanwhile(world: BrokerWorld) -> None:
    slow = Asked(world, (0, LATER_MS), (1, NOW_MS + 1))
    quick = Asked(world, (1, NOW_MS + 1), (0, NOW_MS))
    quick.slices()
    assert quick.offsets() == [1, 0]
    assert slow.answer is None
    slow.slices()
    assert slow.offsets() == [MANY - 1, 1]


def test_a_partition_that_is_removed_meanwhile_ends_no_search(world: BrokerWorld) -> None:
    asked = Asked(world, (0, LATER_MS), (1, NOW_MS + 1))
    world.commit(replicas(index=0, on=[2], epoch=1))
    asked.slices()
    assert asked.offsets()[1] == 1
