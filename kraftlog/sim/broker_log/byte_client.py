"""A client that sends bytes: its requests arrive in pieces, several at a time, and it may disconnect within one.

It must receive the responses to its requests, in order (109). Its requests change no log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from random import Random
from typing import Final

from kraftbase.sentinels import NO_LEADER
from kraftlog.kafka.connections import ClientConnection
from kraftlog.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kraftlog.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kraftlog.kafka.notation import Message, Versions
from kraftlog.network.requests import RequestContext
from kraftlog.sim.broker_log.broken_producer import CHANGES, broken_batch
from kraftlog.sim.broker_log.broker import VERSIONS
from kraftlog.sim.broker_log.broker_end import BrokerEnd
from kraftlog.sim.broker_log.checkers.rules import ANSWERS
from kraftlog.sim.broker_log.metadata import Topic
from kraftlog.sim.broker_log.process import BrokerProcess
from kraftlog.sim.broker_log.world import World, fetch_request
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS

DELAY_US: Final = (20, 2_000)
PIECES_MAX: Final = 4
MANY_PARTITIONS: Final = 300
"""More partitions than are read or written in one slice."""
LATEST: Final = -1
LONG_WAIT_MS: Final = 60_000
ANSWERED_US: Final = 10_000 * MICROSECONDS_PER_MS
"""The time within which every request is answered and nothing waits for a client that has disconnected."""


class ByteClient:
    """Sends several requests at once from time to time, over one connection after the other."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = Random(f"client that talks bytes {world.parameters.seed}")  # so that nothing else changes
        self._dialogue: _Dialogue | None = None

    def start(self) -> None:
        """Schedule the next requests."""
        self._world.event_queue.after(self._random.randint(50, 1_000) * MICROSECONDS_PER_MS, self._ask)

    def _ask(self) -> None:
        world = self._world
        if world.is_quiet:
            return
        dialogue, names = self._dialogue, sorted(world.metadata.topics)
        if world.broker is not None and names and (dialogue is None or not dialogue.is_in_use):
            if dialogue is None or dialogue.is_over:
                dialogue = self._dialogue = _Dialogue(world, self._random)
            dialogue.ask([world.metadata.topics[self._random.choice(names)] for _ in range(self._random.randint(1, 5))])
        self.start()


class _Dialogue:
    """The exchange of bytes over one connection with the present process."""

    def __init__(self, world: World, random: Random) -> None:
        broker = world.broker
        if broker is None:
            raise LookupError("no broker serves")
        self._world = world
        self._random = random
        self._process: BrokerProcess = broker.process
        self._asking = ClientConnection("bytes")
        self._inbox: deque[Callable[[], None]] = deque()  # events in transit to the broker, in order
        self._arrival_us = 0
        self._outbox: deque[Callable[[], None]] = deque()  # events in transit to the client, in order
        self._return_us = 0
        self._got = bytearray()
        self._open = 0
        """The number of missing responses."""
        self._has_left = False
        self._is_to_be_closed = False
        self._is_closed = False
        self._told = (0, 0)
        offered = {key: Versions(version, version) for key, version in VERSIONS.items()}
        self._end = BrokerEnd(
            self._process, RequestContext("127.0.0.1", "PLAINTEXT"), offered, broker.take, random,
            lambda data: self._return(partial(self._arrived, data)), lambda: self._return(self._closed),
        )  # fmt: skip

    @property
    def is_over(self) -> bool:
        """Whether no more bytes are exchanged."""
        return self._has_left or self._is_closed or self._process.has_ended

    @property
    def is_in_use(self) -> bool:
        """Whether the client waits for responses."""
        return not self.is_over and bool(self._open or self._is_to_be_closed)

    # --- requests -----------------------------------------------------------------------------------------------------

    def ask(self, topics: list[Topic]) -> None:
        """Send a request about each topic.

        The client may disconnect before the responses, or within the last request.
        """
        random, pieces = self._random, list[bytes]()
        how = random.choice(["stays", "stays", "stays", "sends nothing more", "is gone"])
        for topic in topics:
            body = self._request(topic, is_leaving=how != "stays")
            is_answered = not (isinstance(body, ProduceRequest) and body.acks == 0)
            self._open += is_answered
            pieces.append(b"".join(self._asking.send(body, VERSIONS[body.KEY], is_answered)))
        data = b"".join(pieces)
        if how != "stays" and random.random() < 0.5:
            data = data[: -random.randint(1, len(pieces[-1]) - 1)]
            self._world.marks.hit("bytes: a client left amid a request")
        cuts = sorted({0, len(data), *(random.randrange(len(data) + 1) for _ in range(random.randrange(PIECES_MAX)))})
        for start, end in pairwise(cuts):
            self._bring(partial(self._end.received, data[start:end]))
        if how != "stays":
            self._has_left = True
            self._bring(self._end.ended if how == "sends nothing more" else self._end.lost)
            self._world.marks.hit(f"bytes: a client {how}")
        self._process.after(ANSWERED_US, self._check_answered)

    def _request(self, topic: Topic, *, is_leaving: bool) -> Message:
        index = self._random.randrange(self._world.parameters.partitions)
        match self._random.choice(["fetch", "fetch", "offsets", "offsets", "many offsets", "no produce", "broken"]):
            case "fetch":
                wait_ms = LONG_WAIT_MS if is_leaving else self._random.choice([0, 5, 300])
                request = fetch_request(topic, index, 0, 1_000, wait_ms)
                request.min_bytes = 2**30
                return request
            case "offsets":
                return _offsets(topic, [index])
            case "many offsets":
                return _offsets(topic, list(range(MANY_PARTITIONS)))
            case "broken" if self._random.random() < 0.2:
                self._is_to_be_closed = True  # nothing else shows a failure with acks=0
                return _produce(topic, index, broken_batch(self._world.true_ms, b"bytes", next(iter(CHANGES))))
            case _:
                self._world.marks.hit("bytes: acks=0 has no answer")
                return ProduceRequest(acks=0, timeout_ms=1_000)

    def _bring(self, event: Callable[[], None]) -> None:
        """Deliver an event to the broker, after everything sent earlier."""
        now_us = self._world.event_queue.now_us
        self._arrival_us = max(self._arrival_us, now_us + self._random.randint(*DELAY_US))
        self._inbox.append(event)
        self._process.after(self._arrival_us - now_us, lambda: self._inbox.popleft()())

    def _return(self, event: Callable[[], None]) -> None:
        """Deliver an event to the client, after everything sent earlier, unless the process ends before."""
        now_us = self._world.event_queue.now_us
        self._return_us = max(self._return_us, now_us + self._random.randint(*DELAY_US))
        self._outbox.append(event)

        def arrive() -> None:
            event = self._outbox.popleft()
            if not self._process.has_ended:
                event()

        self._world.event_queue.after(self._return_us - now_us, arrive)

    # --- responses ----------------------------------------------------------------------------------------------------

    def _arrived(self, data: bytes) -> None:
        """Check bytes that arrived: they must be those of the responses, in the order of the requests.

        Raises Violation.
        """
        self._got += data
        expected = self._end.expected
        while expected and len(self._got) >= len(expected[0]):
            answer = expected.popleft()
            if self._got[: len(answer)] != answer:
                raise Violation(f"{ANSWERS}: a client got bytes that differ from the next response")
            del self._got[: len(answer)]
            self._open -= 1
        if self._got and not (expected and expected[0].startswith(self._got)):
            raise Violation(f"{ANSWERS}: a client got {len(self._got)} bytes that belong to no response")
        if self._end.slices > self._told[0]:
            self._world.marks.hit("bytes: a large request or answer took several slices")
        if self._end.kept_early > self._told[1]:
            self._world.marks.hit("bytes: an answer waited for an earlier one")
        self._told = (self._end.slices, self._end.kept_early)

    def _closed(self) -> None:
        """Handle a connection that the broker has closed."""
        self._is_closed = True
        if not self._has_left:
            if not self._is_to_be_closed:
                raise Violation(f"{ANSWERS}: a connection was closed although its client did not disconnect")
            self._world.marks.hit("bytes: acks=0 that failed closed the connection")

    def _check_answered(self) -> None:
        if self._end.parked and (self._has_left or self._is_closed):
            raise Violation(f"{ANSWERS}: {self._end.parked} requests wait for more data, but their client is gone")
        if (self._open or self._is_to_be_closed) and not self.is_over:
            raise Violation(f"{ANSWERS}: {self._open} responses were not sent within {ANSWERED_US // 1_000} ms")
        if self._has_left and not self._is_closed:
            raise Violation(f"{ANSWERS}: a connection is open, but its client is gone")


def _offsets(topic: Topic, indexes: list[int]) -> ListOffsetsRequest:
    partitions = tuple(ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in indexes)
    return ListOffsetsRequest(replica_id=NO_LEADER, topics=(ListOffsetsTopic(name=topic.name, partitions=partitions),))


def _produce(topic: Topic, index: int, records: bytearray) -> ProduceRequest:
    data = PartitionProduceData(index=index, records=records)
    part = TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=(data,))
    return ProduceRequest(acks=0, timeout_ms=1_000, topic_data=(part,))
