"""Producers and readers. They find leaders by asking any broker, and retry as Kafka's clients do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kraftlog.kafka.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kraftlog.kafka.notation import Message
from kraftlog.kafka.records import Record
from kraftlog.sim.broker_log.checkers.batches import Batch, whole_batches
from kraftlog.sim.broker_log.checkers.rules import GOES_ON
from kraftlog.sim.broker_log.in_flight import IN_FLIGHT_MAX, NO_PRODUCER, InFlight, Sent
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS
from kraftlog.sim.replication.checkers.rules import READ
from kraftlog.sim.replication.metadata import Topic
from kraftlog.sim.replication.wire import CLIENTS, Exchange, Line
from kraftlog.sim.replication.world import World

BACKOFF_US: Final = 100 * MICROSECONDS_PER_MS
PRODUCE_VERSION: Final = 13
FETCH_VERSION: Final = 17
UNKNOWN: Final = -1

_AGAIN: Final = (
    ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.BROKER_NOT_AVAILABLE,
)  # fmt: skip


class ClientProcess:
    """The process of a client, which never ends (`kraftlog.sim.replication.wire.Asker`)."""

    def run(self, callback: Callable[[], None]) -> None:
        """Run `callback` at once."""
        callback()


class Client:
    """A client of one partition, and the leader that it knows."""

    def __init__(self, world: World, topic: str, index: int) -> None:
        self.world = world
        self.random = world.new_random()
        self.topic_name = topic
        self.index = index
        self.topic: Topic | None = None
        self.leader = UNKNOWN
        self.leader_epoch = UNKNOWN
        """The highest leader epoch that the client knows. Kafka's clients ignore older metadata (KIP-320)."""
        self.process = ClientProcess()
        self.line = Line()

    def after(self, delay_us: int, callback: Callable[[], None]) -> None:
        """Run `callback` after a delay."""
        self.world.event_queue.after(delay_us, callback)

    def find_leader(self) -> None:
        """Ask any broker for the leader. The answer may be outdated."""
        world = self.world
        known = world.metadata.topics.get(self.topic_name)
        if known is not self.topic:
            self.topic, self.leader_epoch = known, UNKNOWN
        machine = world.machines[self.random.choice(sorted(world.machines))]
        if self.topic is None or machine.broker is None or not machine.broker.is_serving:
            return
        view = machine.broker.cluster.topic_with_id(self.topic.topic_id)
        record = None if view is None else view.partition(self.index)
        if record is not None and record.leader >= 0 and record.leader_epoch >= self.leader_epoch:
            self.leader, self.leader_epoch = record.leader, record.leader_epoch
            self.line = Line()

    def ask(
        self, body: Message, version: int, destination: int, on_response: Callable[[Message | ApiError], None]
    ) -> Exchange:
        """Send a request to a broker."""
        return self.world.wire.ask(self.process, CLIENTS, destination, body, version, on_response, self.line)


class Producer(Client):
    """A producer that sends batches to one partition, several in flight."""

    def __init__(self, world: World, number: int, topic: str, index: int, acks: int, *, is_idempotent: bool) -> None:
        super().__init__(world, topic, index)
        self._number = number
        self._acks = acks
        self._is_idempotent = is_idempotent
        self._made = 0
        self._in_flight = InFlight(number if is_idempotent else NO_PRODUCER)
        self._exchanges: dict[Sent, Exchange] = {}
        """By batch in flight: its last exchange."""
        self._is_waiting_to_retry = False

    def start(self) -> None:
        """Schedule the next batches."""
        think_us = self.random.randrange(1, 2 * self.world.parameters.think_time_ms) * MICROSECONDS_PER_MS
        self.after(think_us, self._tick)

    def _tick(self) -> None:
        known = self.world.metadata.topics.get(self.topic_name)
        if known is not self.topic or self.leader == UNKNOWN:
            if self.topic is not None and known is not self.topic:
                self._give_up()
            self.find_leader()
        if self.topic is not None and self.leader != UNKNOWN and not self._is_waiting_to_retry:
            for _ in range(self.random.choice([1, 1, IN_FLIGHT_MAX])):
                if self._in_flight.has_room and not self.world.is_quiet:
                    self._send_new(self.topic)
        self.start()

    def _send_new(self, topic: Topic) -> None:
        if (topic.topic_id, self.index) not in self.world.checker.partitions:
            return
        count = self.random.choice([1, 1, 2, 4])
        self._made += 1
        value = f"{self._number}:{self._made}:".encode() + b"v" * self.random.choice([0, 30, 90])
        records = [Record(offset, self.world.true_ms + offset, None, value) for offset in range(count)]
        self._transmit(topic, self._in_flight.add(records))

    def _transmit(self, topic: Topic, sent: Sent) -> None:
        batch, checker = sent.batch, self.world.checker.partitions.get((topic.topic_id, self.index))
        if checker is not None:
            checker.promises.sent.add(batch.content)
        data = PartitionProduceData(index=self.index, records=bytearray(batch.data))
        body = ProduceRequest(
            acks=self._acks, timeout_ms=1_000,
            topic_data=(TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=(data,)),),
        )  # fmt: skip
        self.world.marks.hit(f"produce: acks={self._acks}{', idempotent' if self._is_idempotent else ''}")
        if sent in self._exchanges:
            self._exchanges[sent].close()
        exchange = self.ask(body, PRODUCE_VERSION, self.leader, lambda response: self._learn(sent, batch, response))
        exchange.on_answer_leaves = lambda response: self._acknowledged(topic, batch, exchange, response)
        self._exchanges[sent] = exchange

    def _acknowledged(self, topic: Topic, batch: Batch, exchange: Exchange, response: Message) -> None:
        """Record an acknowledgment as it leaves the broker: whether or not it arrives, it is a promise."""
        part = cast(ProduceResponse, response).responses[0].partition_responses[0]
        if part.error_code == ErrorCode.NONE:
            machine = self.world.machines[exchange.destination]
            self.world.checker.acknowledged(machine, (topic.topic_id, self.index), part.base_offset, batch, self._acks)

    def _learn(self, sent: Sent, batch: Batch, response: Message | ApiError) -> None:
        if sent not in self._in_flight.sent:
            return
        if isinstance(response, ApiError):
            code = response.code
        else:
            part = cast(ProduceResponse, response).responses[0].partition_responses[0]
            code = ErrorCode(part.error_code)
            self.world.note(
                f"producer {self._number} hears of broker {self.leader}: {code.name} {self.topic_name}-{self.index}"
                f" {part.base_offset}"
            )
        self.world.marks.hit(f"produce: {code.name}")
        if code is ErrorCode.NONE:
            self._in_flight.acknowledged(sent, batch)
            del self._exchanges[sent]
        elif sent.batch is not batch:
            return  # the batch has another sequence number by now
        elif code in _AGAIN:
            self.leader = UNKNOWN
            self._retry_soon()
        elif code is ErrorCode.INVALID_TIMESTAMP:
            self._in_flight.refused(sent)
            del self._exchanges[sent]
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if self._in_flight.is_lost(sent):
                self.world.marks.hit("a producer raised its epoch")
            self._retry_soon()
        else:
            raise Violation(f"{GOES_ON}: a producer got {code.name}")

    def _give_up(self) -> None:
        """Abandon the batches in flight: the topic has been deleted."""
        self._in_flight.give_up()
        self._exchanges.clear()

    def _retry_soon(self) -> None:
        if not self._is_waiting_to_retry:
            self._is_waiting_to_retry = True
            self.after(BACKOFF_US, self._retry)

    def _retry(self) -> None:
        """Send every batch in flight again, in order."""
        self._is_waiting_to_retry = False
        known = self.world.metadata.topics.get(self.topic_name)
        if known is not self.topic:
            self._give_up()
        self.find_leader()
        if self.topic is None or self.leader == UNKNOWN:
            self._retry_soon()
            return
        if self._in_flight.sent:
            self.world.marks.hit("produce: sent again")
        for sent in list(self._in_flight.sent):
            self._transmit(self.topic, sent)


class Reader(Client):
    """A reader of one partition, from the start on, which goes back at times.

    With a rack it reads from the replica that the leader names (KIP-392), or from any replica.
    """

    def __init__(self, world: World, topic: str, index: int, rack: str) -> None:
        super().__init__(world, topic, index)
        self._rack = rack
        self._preferred = UNKNOWN
        self._position = 0

    def start(self) -> None:
        """Schedule the next fetch."""
        self.after(self.random.randint(20, 250) * MICROSECONDS_PER_MS, self._ask)

    def _ask(self) -> None:
        known = self.world.metadata.topics.get(self.topic_name)
        if known is not self.topic:
            self._position = 0
            self.leader = UNKNOWN
        if self.leader == UNKNOWN:
            self.find_leader()
        topic = self.topic
        if topic is None or self.leader == UNKNOWN or self.index not in topic.partitions:
            self.start()
            return
        source = self.leader if self._preferred == UNKNOWN else self._preferred
        if self._rack and self.random.random() < 0.1:
            source = self.random.choice(topic.partitions[self.index].replicas)
        bytes_max = self.random.choice([1, 400, 100_000])
        partition = FetchPartition(partition=self.index, fetch_offset=self._position, partition_max_bytes=bytes_max)
        body = FetchRequest(
            max_wait_ms=self.random.choice([0, 100]), min_bytes=1, max_bytes=bytes_max, rack_id=self._rack,
            topics=(FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=(partition,)),),
        )  # fmt: skip
        position = self._position
        exchange = self.ask(body, FETCH_VERSION, source, lambda response: self._learn(position, response))
        exchange.on_answer_leaves = lambda response: self._given(topic, source, position, response)

    def _given(self, topic: Topic, source: int, position: int, response: Message) -> None:
        """Check the records that leave a broker."""
        part = cast(FetchResponse, response).responses[0].partitions[0]
        checker = self.world.checker.partitions.get((topic.topic_id, self.index))
        if checker is None:
            return
        batches = whole_batches(part.records or b"")
        if any(batch.last_offset >= part.high_watermark for batch in batches):
            raise Violation(f"{READ}: {checker.name}: broker {source} returned uncommitted {batches[-1].last_offset}")
        self.world.checker.read(self.world.machines[source], (topic.topic_id, self.index), batches)
        is_lost = part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and part.log_start_offset <= position
        is_settled = not checker.promises.unconfirmed and source == checker.state.leader
        if is_lost and is_settled and checker.promises.end > position >= checker.promises.start:
            raise Violation(f"{READ}: {checker.name}: {position} is out of range at broker {source}")

    def _learn(self, position: int, response: Message | ApiError) -> None:
        if isinstance(response, ApiError):
            self.leader = self._preferred = UNKNOWN
            self.start()
            return
        part = cast(FetchResponse, response).responses[0].partitions[0]
        if part.preferred_read_replica >= 0:
            self.world.marks.hit("a reader was sent to a follower")
            self._preferred = part.preferred_read_replica
        elif self.random.random() < 0.2:
            self._preferred = UNKNOWN  # as clients do from time to time, because another replica may be better by now
        code = ErrorCode(part.error_code)
        self.world.marks.hit(f"fetch: {code.name}")
        batches = whole_batches(part.records or b"")
        if code is ErrorCode.NONE and batches:
            self.world.marks.hit("a reader got records")
            self._position = batches[-1].last_offset + 1
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._position = max(0, part.log_start_offset)
        elif code is not ErrorCode.NONE:
            self.leader = self._preferred = UNKNOWN
        if self.random.random() < 0.1:
            self._position = self.random.randint(0, self._position)
        self.start()
