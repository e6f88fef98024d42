"""Many connections, each of which sends a record at a fixed rate, with one request per record.

kraftlog's codec makes the requests, so that the client needs little processor time: confluent-kafka has several threads
for each producer. A record's time begins when it is due, not when it is sent: a broker that falls behind delays later
records, and these delays count.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from kraftbase.errors import ErrorCode
from kraftlog.bench.broker.loads.load import STALL_SECONDS, Load, failed, times_ms
from kraftlog.config.endpoints import parse_endpoints
from kraftlog.kafka.connections import ClientConnection
from kraftlog.kafka.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kraftlog.kafka.record_batch import encode_batch
from kraftlog.kafka.records import Record

PRODUCE_VERSION: Final = 12
"""The last version that has topic names, so that the client need not know the topic's id."""
IN_FLIGHT_MAX: Final = 5
"""`max.in.flight.requests.per.connection` of Kafka's producers."""
PRODUCE_TIMEOUT_MS: Final = 30_000
TICK_SECONDS: Final = 0.002
"""Records that are due within a tick are sent at its beginning: event loops wait for whole milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections(Load):
    """Sends to `partitions` partitions in turn, with acks=all. The first seconds are not counted."""

    connections: int
    records_per_second: int
    """The rate of each connection."""
    partitions: int
    seconds: float
    warm_up_seconds: float

    def run(self) -> dict[str, float]:
        """Return the times from due to acknowledged. Raises ApiError if a record was refused or a connection ended."""
        import uvloop

        return uvloop.run(self._run())

    async def _run(self) -> dict[str, float]:
        (endpoint,) = parse_endpoints(self.bootstrap_servers)
        loop = asyncio.get_running_loop()
        producers = [
            (await loop.create_connection(_maker(self._request(number)), endpoint.host, endpoint.port))[1]
            for number in range(self.connections)
        ]
        period = 1 / self.records_per_second
        slots = max(1, round(period / TICK_SECONDS))
        groups = [producers[slot::slots] for slot in range(slots)]
        begin = time.perf_counter()
        counted_from = begin + self.warm_up_seconds
        end = counted_from + self.seconds
        used, is_counting = 0.0, False
        for tick in itertools.count():
            due = begin + tick * period / slots
            if due >= end:
                break
            if due >= counted_from and not is_counting:
                used, is_counting = self.processor_seconds(), True
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            for producer in groups[tick % slots]:
                producer.send(due)
        await _all_answered(producers)
        used = self.processor_seconds() - used
        times = [seconds for producer in producers for due, seconds in producer.answered if due >= counted_from]
        return {
            **times_ms("acknowledged", times),
            "records_per_second": round(len(times) / self.seconds, 1),
            "processor_microseconds_per_record": round(used * 1e6 / len(times), 1),
        }

    def _request(self, number: int) -> ProduceRequest:
        batch = encode_batch(
            [Record(0, round(time.time() * 1_000), None, self.value())], base_offset=0, partition_leader_epoch=-1
        )
        partition = PartitionProduceData(index=number % self.partitions, records=batch)
        topic = TopicProduceData(name=self.topic, partition_data=(partition,))
        return ProduceRequest(acks=-1, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=(topic,))


class _Producer(asyncio.Protocol):
    """One connection. It sends the same request again and again."""

    def __init__(self, request: ProduceRequest) -> None:
        self.answered: list[tuple[float, float]] = []
        """For each record, when it was due, and the seconds until it was acknowledged."""
        self.problem: str | None = None
        self._request = request
        self._client = ClientConnection("bench")
        self._in_flight: deque[float] = deque()
        self._waiting: deque[float] = deque()
        """When the records were due that wait for room in flight. Bounded by the records of the load."""
        self._transport: asyncio.Transport | None = None

    @property
    def is_done(self) -> bool:
        """Whether every record is answered, or the connection has failed."""
        return self.problem is not None or not (self._in_flight or self._waiting)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note a problem: a broker must not close connections."""
        self.problem = self.problem or f"the broker closed a connection: {exc or 'without an error'}"

    def send(self, due: float) -> None:
        """Send a record that is due at that time, as soon as there is room in flight."""
        self._waiting.append(due)
        self._send_waiting()

    def data_received(self, data: bytes) -> None:
        """Process answers."""
        self._client.receive_data(data)
        now = time.perf_counter()
        while (response := self._client.next_event()) is not None:
            due = self._in_flight.popleft()
            self.answered.append((due, now - due))
            self._check(cast(ProduceResponse, response.body))
        self._send_waiting()

    def _send_waiting(self) -> None:
        while self._waiting and len(self._in_flight) < IN_FLIGHT_MAX and self._transport is not None:
            self._in_flight.append(self._waiting.popleft())
            self._transport.writelines(self._client.send(self._request, PRODUCE_VERSION))

    def _check(self, answer: ProduceResponse) -> None:
        for topic in answer.responses:
            for partition in topic.partition_responses:
                if partition.error_code != ErrorCode.NONE:
                    self.problem = f"a record was refused with error {partition.error_code}: {partition.error_message}"


def _maker(request: ProduceRequest) -> type[_Producer]:
    return lambda: _Producer(request)  # type: ignore[return-value]


async def _all_answered(producers: Sequence[_Producer]) -> None:
    """Wait until everything is answered. Raises ApiError."""
    deadline = time.perf_counter() + STALL_SECONDS
    while not all(producer.is_done for producer in producers):
        if time.perf_counter() > deadline:
            raise failed(f"the broker is {STALL_SECONDS:g} s behind the rate of the records")
        await asyncio.sleep(TICK_SECONDS)
    for producer in producers:
        if producer.problem is not None:
            raise failed(producer.problem)
