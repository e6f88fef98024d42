"""A client that reads everything that brokers serve of some partitions, and checks every batch's CRC.

Unlike a client library it continues after a batch whose CRC is wrong, and it detects when it makes no progress. It has
one connection for each broker.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode, KraftlogError
from kraftlog.chaos.brokers.ledger import At
from kraftlog.chaos.damage.contents import Contents, Entry, entries_of
from kraftlog.clients.broker_connection import BrokerConnection
from kraftlog.clients.broker_errors import refusal
from kraftlog.kafka.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kraftlog.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kraftlog.kafka.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kraftlog.kafka.notation import Uuid
from kraftlog.kafka.record_batch import RecordBatch, read_batches

EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
READ_COMMITTED: Final = 1
FETCH_BYTES: Final = 1 << 20
FETCH_WAIT_MS: Final = 50
SEEK_BYTES: Final = 1
"""With it a broker returns one batch, of any size."""
EMPTY_ANSWERS_MAX: Final = 20
"""After this many answers without a record and without an error, a reader is stuck."""
ACKS_ALL: Final = -1
PRODUCE_TIMEOUT_MS: Final = 20_000
ABORT: Final = 0

TopicIds = Mapping[str, Uuid]


@dataclass(slots=True)
class Reading:
    """The result of reading one partition."""

    error: str = ""
    """The error that a client got instead of the rest; empty if it could read to the end."""
    log_start_offset: int = -1
    log_end_offset: int = -1
    last_stable_offset: int = -1
    entries: list[Entry] = field(default_factory=list)
    """The received records, in their order."""
    committed: list[Entry] = field(default_factory=list)
    """The records that a reader of committed records received."""
    bad_batches: list[str] = field(default_factory=list)
    """The errors of batches that a client refuses, since their CRC is wrong or they cannot be read."""
    stuck_at: int | None = None
    """The offset from which on it got neither records nor an error, although the partition continues."""
    seeks: dict[int, Entry | None] = field(default_factory=dict)
    """By start offset, the first record that a reader received; None if it received none."""
    lookups: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By timestamp, the timestamp and the offset that ListOffsets returned."""
    largest: tuple[int, int] | None = None
    """The timestamp and the offset that ListOffsets returned for the largest timestamp."""
    resent_offset: int | None = None
    """The offset in the answer when the last batch of the idempotent producer was sent again."""
    resent_error: str = ""


class Client:
    """Sends requests to the leaders of partitions. Its calls block; for use in one thread."""

    def __init__(self, endpoints: Mapping[int, Endpoint], topic_ids: TopicIds) -> None:
        """Connects to a broker at the first request to it."""
        self._endpoints = endpoints
        self._topic_ids = topic_ids
        self._stack = ExitStack()
        self._connections: dict[int, BrokerConnection] = {}

    def close(self) -> None:
        """Close all connections."""
        self._stack.close()

    def connection(self, broker_id: int) -> BrokerConnection:
        """Return the connection to a broker. Raises ApiError."""
        if broker_id not in self._connections:
            self._connections[broker_id] = self._stack.enter_context(BrokerConnection(self._endpoints[broker_id]))
        return self._connections[broker_id]

    def produce(self, leader: int, at: At, batch: bytes) -> PartitionProduceResponse:
        """Produce one batch with acks=all. Raises ApiError if the broker does not answer."""
        data = (PartitionProduceData(index=at.partition, records=batch),)
        topic = TopicProduceData(name=at.topic, topic_id=self._topic_ids[at.topic], partition_data=data)
        request = ProduceRequest(acks=ACKS_ALL, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=(topic,))
        return self.connection(leader).call(request, ProduceResponse).responses[0].partition_responses[0]

    def list_offset(self, leader: int, at: At, timestamp: int) -> tuple[int, int]:
        """Return the timestamp and the offset that ListOffsets returns. Raises ApiError."""
        of = ListOffsetsPartition(partition_index=at.partition, timestamp=timestamp)
        topic = ListOffsetsTopic(name=at.topic, partitions=(of,))
        request = ListOffsetsRequest(replica_id=-1, topics=(topic,), timeout_ms=PRODUCE_TIMEOUT_MS)
        answer = self.connection(leader).call(request, ListOffsetsResponse).topics[0].partitions[0]
        _raise_for(answer.error_code, f"ListOffsets of {at} for {timestamp}")
        return answer.timestamp, answer.offset

    def fetch(
        self, leader: int, at: At, offset: int, isolation_level: int, max_bytes: int = FETCH_BYTES
    ) -> PartitionData:
        """Fetch one partition from an offset. Raises ApiError."""
        of = FetchPartition(partition=at.partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        topic = FetchTopic(topic=at.topic, topic_id=self._topic_ids[at.topic], partitions=(of,))
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS, min_bytes=1, isolation_level=isolation_level, topics=(topic,)
        )  # fmt: skip
        response = self.connection(leader).call(request, FetchResponse)
        _raise_for(response.error_code, "Fetch")
        answer = response.responses[0].partitions[0]
        _raise_for(answer.error_code, f"Fetch of {at} at {offset}")
        return answer


def read_partition(client: Client, leader: int, contents: Contents, places: int) -> Reading:
    """Read a partition from its start, from several offsets, and with ListOffsets. The result has an error, if any."""
    reading, at = Reading(), contents.at
    try:
        reading.log_start_offset = client.list_offset(leader, at, EARLIEST)[1]
        _read(client, leader, contents, reading)
        _read_committed(client, leader, contents, reading)
        for offset in _some([entry.offset for entry in contents.readable], places):
            reading.seeks[offset] = _seek(client, leader, at, offset)
        for timestamp in _some(list(contents.lookups()), places):
            reading.lookups[timestamp] = client.list_offset(leader, at, timestamp)
        reading.largest = client.list_offset(leader, at, MAX_TIMESTAMP)
    except ApiError as error:
        reading.error = str(error)
    return reading


def _some(everything: Sequence[int], count: int) -> Sequence[int]:
    """Return about this many of the values, evenly spread, or all."""
    return everything[:: max(1, -(-len(everything) // count))]


def _seek(client: Client, leader: int, at: At, offset: int) -> Entry | None:
    """Return the first record of a reader that begins at an offset, which the broker looks up in the index."""
    answer = client.fetch(leader, at, offset, 0, SEEK_BYTES)
    try:
        for batch in read_batches(answer.records or b""):
            batch.check_crc()
            for entry in entries_of(batch):
                if entry.offset >= offset:
                    return entry
    except (KraftlogError, zlib.error):
        return None  # reading everything meets the same batch
    return None


def resend(client: Client, leader: int, contents: Contents, reading: Reading) -> None:
    """Send the last batch of the partition's idempotent producer again, as if its answer had been lost."""
    if contents.last_idempotent is None:
        return
    try:
        answer = client.produce(leader, contents.at, contents.last_idempotent[1])
    except ApiError as error:
        reading.resent_error = str(error)
        return
    if answer.error_code == ErrorCode.NONE:
        reading.resent_offset = answer.base_offset
    else:
        reading.resent_error = str(refusal(answer.error_code, answer.error_message or "no reason is given"))


def _read(client: Client, leader: int, contents: Contents, reading: Reading) -> None:
    def take(batch: RecordBatch, entries: Iterable[Entry]) -> None:
        reading.entries += entries

    reading.log_end_offset = _follow(client, leader, contents, reading, 0, take)


def _read_committed(client: Client, leader: int, contents: Contents, reading: Reading) -> None:
    reader = _Committed(reading.committed)
    end = _follow(client, leader, contents, reading, READ_COMMITTED, reader.take, reader.told)
    reading.last_stable_offset = end


class _Committed:
    """Leaves out the records of transactions that an answer names as aborted, as Kafka's consumer does."""

    def __init__(self, taken: list[Entry]) -> None:
        self._taken = taken
        self._told: list[AbortedTransaction] = []
        self._aborting: set[int] = set()

    def told(self, answer: PartitionData) -> None:
        """Begin an answer, with the aborted transactions in its range."""
        self._told = sorted(answer.aborted_transactions or (), key=lambda of: of.first_offset)
        self._aborting.clear()

    def take(self, batch: RecordBatch, entries: Iterable[Entry]) -> None:
        """Read the next batch of the answer."""
        while self._told and self._told[0].first_offset < batch.end_offset:
            self._aborting.add(self._told.pop(0).producer_id)
        if batch.is_control:
            self._aborting.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in self._aborting):
            self._taken += entries


def _follow(
    client: Client,
    leader: int,
    contents: Contents,
    reading: Reading,
    isolation_level: int,
    take: Callable[[RecordBatch, Iterable[Entry]], None],
    told: Callable[[PartitionData], None] = lambda answer: None,
) -> int:
    """Read from the log start to the end for this isolation level; return that end."""
    offset, end, empty = reading.log_start_offset, 0, 0
    wanted = contents.log_end_offset
    if isolation_level == READ_COMMITTED and contents.last_stable_offset is not None:
        wanted = contents.last_stable_offset
    while empty < EMPTY_ANSWERS_MAX:
        answer = client.fetch(leader, contents.at, offset, isolation_level)
        end = answer.last_stable_offset if isolation_level == READ_COMMITTED else answer.high_watermark
        told(answer)
        before = offset
        for batch in _batches_of(answer, offset, reading):
            problem = _take(batch, offset, take)
            if problem:
                reading.bad_batches.append(problem)
            offset = max(offset, batch.end_offset)
        if offset >= max(end, wanted):
            return end
        # A leader may learn the high watermark only a moment after its election.
        empty = 0 if offset > before else empty + 1
    if offset < end:
        reading.stuck_at = offset
    return end


def _batches_of(answer: PartitionData, offset: int, reading: Reading) -> list[RecordBatch]:
    found: list[RecordBatch] = []
    try:
        found.extend(read_batches(answer.records or b""))
    except KraftlogError as error:
        reading.bad_batches.append(str(error))
    return [batch for batch in found if batch.end_offset > offset]


def _take(batch: RecordBatch, offset: int, take: Callable[[RecordBatch, Iterable[Entry]], None]) -> str:
    """Read a batch; return its error, or an empty text."""
    try:
        batch.check_crc()
        take(batch, () if batch.is_control else [of for of in entries_of(batch) if of.offset >= offset])
    except (KraftlogError, zlib.error) as error:
        return str(error)
    return ""


def _raise_for(error_code: int, what: str) -> None:
    if error_code != ErrorCode.NONE:
        raise refusal(error_code, what)
