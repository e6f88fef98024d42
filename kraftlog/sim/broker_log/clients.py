"""The clients of a broker: producers, readers, and an administrator. They retry as Kafka's clients do."""

from __future__ import annotations

from typing import Final, cast

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from kraftlog.kafka.messages.fetch import FetchResponse
from kraftlog.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kraftlog.kafka.notation import Message
from kraftlog.kafka.records import Record
from kraftlog.sim.broker_log.broker import Broker
from kraftlog.sim.broker_log.checkers.batches import Batch, whole_batches
from kraftlog.sim.broker_log.checkers.rules import ACKNOWLEDGED, GOES_ON, READ, START
from kraftlog.sim.broker_log.in_flight import IN_FLIGHT_MAX, NO_PRODUCER, InFlight, Sent
from kraftlog.sim.broker_log.metadata import Topic
from kraftlog.sim.broker_log.world import World, fetch_request
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS

ANSWER_TIMEOUT_US: Final = 1_500 * MICROSECONDS_PER_MS
BACKOFF_US: Final = 200 * MICROSECONDS_PER_MS
DELAY_US: Final = (50, 1_500)
SLOWNESS: Final = (1, 1, 1, 40)
"""Factors of the delay of responses. Slow ones make several be in transit when a process ends."""
HIGH_WATERMARK: Final = -1

_AGAIN: Final = (
    ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT,
)  # fmt: skip
_NEW_TOPIC: Final = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Producer:
    """A producer that sends batches to one partition, several in flight."""

    def __init__(self, world: World, number: int, topic: str, index: int, acks: int, *, is_idempotent: bool) -> None:
        self._world = world
        self._number = number
        self._random = world.new_random()
        self._name = topic
        self._index = index
        self._acks = acks
        self._is_idempotent = is_idempotent
        self._topic: Topic | None = None
        self._made = 0
        self._in_flight = InFlight(number if is_idempotent else NO_PRODUCER)
        self._arrival_us = 0
        self._is_waiting_to_retry = False

    def start(self) -> None:
        """Schedule the next batches."""
        world = self._world
        world.event_queue.after(self._random.randrange(1, 2 * world.parameters.think_time_ms) * 1_000, self._tick)

    def _tick(self) -> None:
        if self._topic is None:
            self._topic = self._world.metadata.topics.get(self._name)
        if not self._world.is_quiet and self._topic is not None and self._in_flight.has_room:
            for _ in range(self._random.choice([1, 1, IN_FLIGHT_MAX])):
                self._send_new(self._topic)
        self.start()

    def _send_new(self, topic: Topic) -> None:
        promises = self._world.promises_of(topic, self._index)
        if promises is None or not self._in_flight.has_room:
            return
        count = self._random.choice([1, 1, 2, 4])
        self._made += 1
        value = f"{self._number}:{self._made}:".encode() + b"v" * self._random.choice([0, 30, 90])
        time_ms = self._world.true_ms + self._random.randint(-300, 300)
        sent = self._in_flight.add([Record(offset, time_ms + offset, None, value) for offset in range(count)])
        self._transmit(topic, sent)
        if self._acks == 0:
            self._in_flight.acknowledged(sent, sent.batch)  # there is no answer

    def _transmit(self, topic: Topic, sent: Sent) -> None:
        world = self._world
        sent.attempts += 1
        attempt, batch = sent.attempts, sent.batch
        promises = world.promises_of(topic, self._index)
        if promises is not None:
            promises.will_send(batch.data)
        data = PartitionProduceData(index=self._index, records=bytearray(batch.data))
        body = ProduceRequest(
            acks=self._acks, timeout_ms=1_000,
            topic_data=(TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=(data,)),),
        )  # fmt: skip
        now_us = world.event_queue.now_us
        self._arrival_us = max(self._arrival_us + 1, now_us + self._random.randint(*DELAY_US))

        def handle(broker: Broker) -> None:
            if not broker.handle(body, lambda response: self._answered(topic, sent, batch, attempt, response)):
                world.marks.hit("produce: acks=0 refused")

        world.event_queue.after(self._arrival_us - now_us, lambda: world.step(handle))
        world.marks.hit(f"produce: acks={self._acks}{', idempotent' if self._is_idempotent else ''}")
        if self._acks != 0:
            world.event_queue.after(ANSWER_TIMEOUT_US, lambda: self._timed_out(sent, attempt))

    def _answered(self, topic: Topic, sent: Sent, batch: Batch, attempt: int, response: Message | None) -> None:
        """Handle a response that leaves the broker."""
        if response is None:
            return
        world = self._world
        part = cast(ProduceResponse, response).responses[0].partition_responses[0]
        code = ErrorCode(part.error_code)
        world.note(
            f"producer {self._number}, attempt {attempt}: {code.name} {topic.name}-{self._index} {part.base_offset}"
        )
        world.marks.hit(f"produce: {code.name}")
        promises = world.promises_of(topic, self._index)
        if code is ErrorCode.NONE and promises is not None:
            if self._is_idempotent and part.base_offset in promises.by_offset:
                world.marks.hit("a duplicate was acknowledged")
            promises.acknowledged(batch, part.base_offset, part.log_start_offset, world.event_queue.now_us)
            world.told_of(topic, self._index, part.base_offset, batch.content, ACKNOWLEDGED)
        if self._random.random() < world.lost_answers_rate:
            world.marks.hit("an answer was lost")
            return
        process = world.process

        def arrive() -> None:
            if not process.has_ended:  # responses in transit are lost with the connection
                self._learn(sent, batch, attempt, code)

        world.event_queue.after(self._random.randint(*DELAY_US) * self._random.choice(SLOWNESS), arrive)

    def _learn(self, sent: Sent, batch: Batch, attempt: int, code: ErrorCode) -> None:
        if sent not in self._in_flight.sent or (sent.attempts != attempt and code is not ErrorCode.NONE):
            return  # a later attempt counts
        if code is ErrorCode.NONE:
            self._in_flight.acknowledged(sent, batch)
        elif code in _AGAIN:
            self._retry_soon()
        elif code in _NEW_TOPIC:
            self._topic = None
            self._in_flight.give_up()
        elif code is ErrorCode.INVALID_TIMESTAMP:
            self._in_flight.refused(sent)
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if self._in_flight.is_lost(sent):
                self._world.marks.hit("a producer raised its epoch")
            self._retry_soon()
        else:
            raise Violation(f"{GOES_ON}: a producer got {code.name}")

    def _timed_out(self, sent: Sent, attempt: int) -> None:
        if sent in self._in_flight.sent and sent.attempts == attempt:
            self._retry_soon()

    def _retry_soon(self) -> None:
        if not self._is_waiting_to_retry:
            self._is_waiting_to_retry = True
            self._world.event_queue.after(BACKOFF_US, self._retry)

    def _retry(self) -> None:
        """Send every batch in flight again, in order."""
        self._is_waiting_to_retry = False
        for sent in list(self._in_flight.sent):
            if self._topic is not None:
                self._world.marks.hit("produce: sent again")
                self._transmit(self._topic, sent)


class Reader:
    """A reader of one partition, from the start on. It goes back to an earlier offset from time to time."""

    def __init__(self, world: World, topic: str, index: int) -> None:
        self._world = world
        self._random = world.new_random()
        self._name = topic
        self._index = index
        self._topic: Topic | None = None
        self._position = 0
        self._round = 0

    def start(self) -> None:
        """Schedule the next fetch."""
        self._world.event_queue.after(self._random.randint(20, 400) * MICROSECONDS_PER_MS, self._ask)

    def _ask(self) -> None:
        world = self._world
        self._round += 1
        this_round = self._round
        self._topic = topic = world.metadata.topics.get(self._name)
        if topic is not None:
            bytes_max = self._random.choice([1, 400, 100_000])
            body = fetch_request(topic, self._index, self._position, bytes_max, self._random.choice([0, 300]))
            position = self._position

            def handle(broker: Broker) -> None:
                broker.handle(body, lambda response: self._answered(topic, this_round, position, response))

            world.event_queue.after(self._random.randint(*DELAY_US), lambda: world.step(handle))
        world.event_queue.after(ANSWER_TIMEOUT_US, lambda: self._ask() if self._round == this_round else None)

    def _answered(self, topic: Topic, this_round: int, position: int, response: Message | None) -> None:
        world = self._world
        promises = world.promises_of(topic, self._index)
        if promises is None or response is None or self._round != this_round:
            return
        part = cast(FetchResponse, response).responses[0].partitions[0]
        code = ErrorCode(part.error_code)
        world.marks.hit(f"fetch: {code.name}")
        if code is ErrorCode.NONE:
            batches = whole_batches(part.records or b"")
            promises.read(position, batches, part.high_watermark, part.log_start_offset, world.event_queue.now_us)
            for batch in batches:
                world.told_of(topic, self._index, batch.base_offset, batch.content, READ)
            if batches:
                world.marks.hit("a reader got records")
                self._position = batches[-1].last_offset + 1
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if promises.start <= position <= promises.end and position >= part.log_start_offset:
                raise Violation(f"{READ}: {promises.name}: {position} is out of range")
            self._position = max(0, part.log_start_offset)
        if self._random.random() < 0.1:
            self._position = self._random.randint(min(promises.start, self._position), self._position)
        self._round += 1
        self.start()


class Administrator:
    """An administrator that deletes records and topics, rolls logs and elects leaders."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.new_random()

    def start(self) -> None:
        """Schedule the next action."""
        self._world.event_queue.after(self._random.randint(200, 5_000) * MICROSECONDS_PER_MS, self._act)

    def _act(self) -> None:
        world, random = self._world, self._random
        if world.is_quiet:
            return
        names = sorted(world.metadata.topics)
        if names:
            name = random.choice(names)
            index = random.randrange(world.parameters.partitions)
            match random.choice(["delete records", "delete records", "roll", "roll", "elect", "delete topic"]):
                case "delete records":
                    self._delete_records(world.metadata.topics[name], index)
                case "roll":
                    world.step(lambda broker: self._roll(broker, name, index))
                case "elect":
                    deltas = world.metadata.elect(name)
                    world.marks.hit("a leader was elected")
                    world.deliver(deltas)
                case _:
                    self._make_anew(name)
        self.start()

    def _roll(self, broker: Broker, name: str, index: int) -> None:
        try:
            broker.roll(name, index)
            self._world.marks.hit("a log was rolled")
        except ApiError:
            self._world.marks.hit("a roll was refused")

    def _make_anew(self, name: str) -> None:
        """Delete a topic, and create another one with its name, at once or later."""
        world = self._world
        parameters = world.metadata.topics[name].parameters
        world.delete_topic(name)
        world.marks.hit("a topic was deleted")
        world.note(f"topic {name} is deleted")
        delay_us = self._random.choice([0, 1, 3_000]) * MICROSECONDS_PER_MS
        world.event_queue.after(delay_us, lambda: world.create_topic(name, parameters))

    def _delete_records(self, topic: Topic, index: int) -> None:
        promises = self._world.promises_of(topic, index)
        if promises is None:
            return
        offset = self._random.choice(
            [HIGH_WATERMARK, self._random.randint(promises.start, max(promises.start, promises.end))]
        )
        self._ask_to_delete(topic, index, offset)

    def _ask_to_delete(self, topic: Topic, index: int, offset: int) -> None:
        world = self._world
        topic_request = DeleteRecordsTopic(
            name=topic.name, partitions=(DeleteRecordsPartition(partition_index=index, offset=offset),)
        )
        body = DeleteRecordsRequest(topics=(topic_request,), timeout_ms=1_000)

        def handle(broker: Broker) -> None:
            promises = world.promises_of(topic, index)
            if promises is None:
                return
            promises.deleted_below = max(promises.deleted_below, promises.end if offset < 0 else offset)
            broker.handle(body, lambda response: self._deleted(topic, index, offset, response))

        world.step(handle)

    def _deleted(self, topic: Topic, index: int, offset: int, response: Message | None) -> None:
        world = self._world
        promises = world.promises_of(topic, index)
        if promises is None or response is None:
            return
        part = cast(DeleteRecordsResponse, response).topics[0].partitions[0]
        code = ErrorCode(part.error_code)
        world.marks.hit(f"delete records: {code.name}")
        world.note(f"records of {topic.name}-{index} below {offset}: {code.name} {part.low_watermark}")
        if code is ErrorCode.NONE:
            if part.low_watermark < offset:
                raise Violation(f"{START}: records below {offset} were deleted, but it is {part.low_watermark}")
            promises.deleted_below = max(promises.deleted_below, part.low_watermark)
            promises.started(part.low_watermark)
        elif code is ErrorCode.KAFKA_STORAGE_ERROR:
            world.event_queue.after(5 * BACKOFF_US, lambda: self._ask_to_delete(topic, index, offset))
