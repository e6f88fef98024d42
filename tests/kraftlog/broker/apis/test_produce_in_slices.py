"""Batches with many records: they are read in slices, and inflated once (DB-84)."""

from __future__ import annotations

from collections import deque
from functools import cache
from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.kafka.apis import api_of
from kraftlog.kafka.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kraftlog.kafka.notation import Message
from kraftlog.kafka.record_batch import Compression
from kraftlog.kafka.record_scan import PIECES_A_TURN, RECORDS_A_TURN
from kraftlog.network.requests import ClientRequest, ConnectionRefused, RequestContext, Steps
from kraftlog.storage import batch_records
from tests.kraftlog.broker.broker_world import BrokerWorld, replicas, topic
from tests.kraftlog.broker.malformed_batches import compressed, rec
from tests.kraftlog.kafka.test_record_scan import record
from tests.kraftlog.storage.builders import NOW_MS, batch, header_of, produced, with_field
from tests.statemachine.builders import an_id

pytestmark = pytest.mark.usefixtures("record_loop")

MANY = 5 * RECORDS_A_TURN
COMPRESSED = [codec for codec in Compression if codec]


@cache
def many(codec: Compression, last: bytes | None = None) -> bytes:
    """A batch with many records."""
    records = [rec(index, timestamp=index % 7) for index in range(MANY - 1)]
    return compressed([*records, rec(MANY - 1) if last is None else last], codec, base_ms=NOW_MS)


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    return BrokerWorld(tmp_path, [topic("clicks"), replicas(index=0), replicas(index=1)])


class Connection:
    """One client, whose requests are handled in slices."""

    def __init__(self, world: BrokerWorld) -> None:
        self._world = world
        self._context = RequestContext("127.0.0.1", "PLAINTEXT")
        self.steps: deque[Steps] = deque()
        self.answers: list[PartitionProduceResponse] = []

    answer_room_bytes = 2**63 - 1

    def run(self, steps: Steps) -> None:
        """For the handler."""
        self.steps.append(steps)

    def slices(self) -> int:
        """Let everything be done that is due; returns how many slices that takes."""
        count = 0
        while self.steps:
            for _ in self.steps.popleft():
                count += 1
        self._world.runtime.run()
        return count

    def send(self, data: bytes, index: int = 0, acks: int = 1) -> None:
        topics = (
            TopicProduceData(topic_id=an_id(1), partition_data=(PartitionProduceData(index=index, records=data),)),
        )
        body = ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=topics)

        def reply(response: Message | None, throttle_ms: int = 0) -> None:
            if response is None:
                self.answers.append(PartitionProduceResponse())
            else:
                assert isinstance(response, ProduceResponse)
                self.answers.append(response.responses[0].partition_responses[0])

        request = ClientRequest(api_of(body.KEY), 13, body, self._context, 100, slices=self)
        self._world.produce.handle(request, reply)


@pytest.mark.parametrize("codec", list(Compression))
def test_many_records_are_read_in_slices_and_stored_as_they_came(world: BrokerWorld, codec: Compression) -> None:
    connection = Connection(world)
    connection.send(many(codec))
    log = world.replica().online_log()
    assert log.log_end_offset == 0
    assert connection.slices() >= 2
    assert connection.answers[0].error_code == ErrorCode.NONE
    assert log.log_end_offset == MANY
    stored = log.reader.read(0, 10_000_000, MANY)
    assert stored[61:] == many(codec)[61:]
    assert header_of(stored).max_timestamp_ms == NOW_MS + 6


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_batch_is_inflated_once(world: BrokerWorld, codec: Compression, monkeypatch: pytest.MonkeyPatch) -> None:
    inflated: list[int] = []
    inflate = batch_records.inflate

    def counted(*arguments: object):  # type: ignore[no-untyped-def]
        for piece in inflate(*arguments):  # type: ignore[arg-type]
            inflated.append(len(piece))
            yield piece

    monkeypatch.setattr(batch_records, "inflate", counted)
    connection = Connection(world)
    connection.send(many(codec))
    connection.slices()
    records = sum(len(rec(index, timestamp=index % 7)) for index in range(MANY))
    assert abs(sum(inflated) - records) < 10


def test_a_large_record_that_compresses_well_is_taken(world: BrokerWorld) -> None:
    value = bytes(40_000_000)
    connection = Connection(world)
    bomb = record(b"\0", 0, 0, -1, len(value), value, 0)
    connection.send(compressed([bomb], Compression.ZSTD, base_ms=NOW_MS))
    connection.slices()
    assert connection.answers[0].error_code == ErrorCode.NONE
    assert world.replica().online_log().size_bytes < 100_000


def test_others_go_on_meanwhile(world: BrokerWorld) -> None:
    slow, other = Connection(world), Connection(world)
    slow.send(many(Compression.GZIP))
    other.send(batch(1))
    assert world.replica().online_log().log_end_offset == 1
    slow.slices()
    assert slow.answers[0].base_offset == 1
    assert other.answers[0].base_offset == 0


def test_a_client_that_goes_meanwhile_leaves_nothing_half_read(world: BrokerWorld) -> None:
    slow = Connection(world)
    slow.send(many(Compression.GZIP))
    slow.steps.popleft().close()
    slow.slices()
    assert slow.answers == []
    assert world.replica().online_log().log_end_offset == 0


def test_an_idempotent_producer_that_sends_on_is_in_order(world: BrokerWorld) -> None:
    records = [rec(index) for index in range(MANY)]
    first = compressed(records, Compression.ZSTD, base_ms=NOW_MS)
    first = with_field(with_field(with_field(first, 43, ">q", 7), 51, ">h", 0), 53, ">i", 0)
    connection = Connection(world)
    for data in (first, produced(7, MANY, 2), first):
        connection.send(data)
        connection.slices()
    assert [answer.error_code for answer in connection.answers] == [ErrorCode.NONE] * 3
    assert [answer.base_offset for answer in connection.answers] == [0, MANY, 0]
    assert world.replica().online_log().log_end_offset == MANY + 2


def test_what_is_wrong_at_the_end_is_found_and_nothing_is_stored(world: BrokerWorld) -> None:
    connection = Connection(world)
    connection.send(many(Compression.LZ4, rec(MANY - 1, headers=-1)))
    connection.slices()
    assert [answer.error_code for answer in connection.answers] == [ErrorCode.INVALID_RECORD]
    connection.send(many(Compression.LZ4, rec(MANY - 1, headers=-1)), acks=0)
    with pytest.raises(ConnectionRefused, match="cannot be read"):
        connection.slices()
    assert world.replica().online_log().log_end_offset == 0


def test_a_broker_that_leads_no_more_when_all_is_read_stores_nothing(world: BrokerWorld) -> None:
    connection = Connection(world)
    connection.send(many(Compression.GZIP))
    world.commit(replicas(on=[1, 2], leader=2, epoch=1))
    connection.slices()
    assert connection.answers[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.replica().online_log().log_end_offset == 0


def test_portions_are_bounded() -> None:
    """A piece has at most 64 KB, so 9,362 records: a turn reads no more than that beyond its budget."""
    assert RECORDS_A_TURN <= 10_000
    assert PIECES_A_TURN * 64 <= 2_048
