"""Clients of the brokers, with confluent-kafka: producers, readers, and one that reads everything back.

Each producer and reader is a thread. Producers are idempotent, use acks=all, and enter their answers into the ledger.
When a producer of the library fails for good, another one with another name replaces it.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from random import Random
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from kraftlog.chaos.brokers.ledger import At, Ledger

RECORDS_PER_SECOND: Final = 100
"""The rate of each producer."""
FILLER: Final = bytes(range(256))
"""The value of every record, unless a subclass has others: keys distinguish records."""
READ_SECONDS: Final = 0.1
RECORDS_PER_CALL: Final = 1_000
BACK_SECONDS: Final = 120.0
"""How long reading everything back may take without faults."""
DELIVERY_TIMEOUT_MS: Final = 30_000
CONNECTED: Final[Mapping[str, Any]] = {
    "log_level": 0,
    "socket.timeout.ms": 4_000,
    "reconnect.backoff.max.ms": 1_000,
    "topic.metadata.refresh.interval.ms": 2_000,
}
"""Short timeouts, so that a client soon leaves a paused broker."""
SETTINGS: Final[Mapping[str, Any]] = {**CONNECTED, "allow.auto.create.topics": False}
LIST_SECONDS: Final = 2.0
CUT_ERRORS: Final = (KafkaError._LOG_TRUNCATION, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)
"""The error that a reader gets if records that it has read no longer exist."""


class Clients:
    """Producers and readers that work until they are stopped."""

    def __init__(
        self,
        bootstrap_servers: str,
        partitions: Sequence[At],
        ledger: Ledger,
        random: Random,
        producers: int,
        records_per_second: float = RECORDS_PER_SECOND,
    ) -> None:
        """Starts nothing. `records_per_second` is the rate of each producer."""
        self.ledger = ledger
        self._records_per_second = records_per_second
        self._bootstrap_servers = bootstrap_servers
        self._partitions = partitions
        self._is_over = threading.Event()
        """Set when producers must end."""
        self._may_end = threading.Event()
        """Set when readers must end."""
        seeds = [random.getrandbits(32) for _ in range(producers)]
        self._producers = [
            threading.Thread(target=self._guarded, args=(functools.partial(self._produce, number, Random(seed)),))
            for number, seed in enumerate(seeds)
        ]
        self.next_offsets = {f"reader {number}": dict.fromkeys(partitions, OFFSET_BEGINNING) for number in range(2)}
        """The next offset of each reader. The reader writes it, other threads may read it."""
        self.last_errors: dict[str, str] = dict.fromkeys(self.next_offsets, "none")
        self._readers = [
            threading.Thread(target=self._guarded, args=(functools.partial(self._read, name),))
            for name in self.next_offsets
        ]
        self._readers.append(threading.Thread(target=self._guarded, args=(self._watch_high_watermarks,)))

    def start(self) -> None:
        """Start all threads."""
        for thread in (*self._readers, *self._producers):
            thread.start()

    def stop_producing(self) -> None:
        """Let producers end when all their records are acknowledged or have failed."""
        self._is_over.set()
        for thread in self._producers:
            thread.join()

    def stop(self) -> None:
        """Let producers and readers end."""
        self.stop_producing()
        self._may_end.set()
        for thread in self._readers:
            thread.join()

    # --- producers ----------------------------------------------------------------------------------------------------

    def _produce(self, number: int, random: Random) -> None:
        for incarnation in itertools.count():
            if self._is_over.is_set():
                return
            self._produce_as(f"{number}.{incarnation}", number, random)

    def producer_settings(self, number: int) -> dict[str, Any]:
        """Return the settings of the producer with this number."""
        return {
            **SETTINGS,
            "bootstrap.servers": self._bootstrap_servers,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
            "request.timeout.ms": 4_000,
        }

    def value(self, random: Random) -> bytes:
        """Return the value of the next record."""
        return FILLER

    def _produce_as(self, name: str, number: int, random: Random) -> None:
        """Produce until the end, or until the library's producer has failed for good."""
        producer = Producer(self.producer_settings(number))
        try:
            for sequence in itertools.count():
                if self._is_over.is_set():
                    break
                at, key = random.choice(self._partitions), f"{name}:{sequence}"
                answered = functools.partial(self._answered, at, key)
                producer.produce(at.topic, self.value(random), key, partition=at.partition, on_delivery=answered)
                until = time.monotonic() + random.uniform(0, 2 / self._records_per_second)
                while (left := until - time.monotonic()) > 0:
                    producer.poll(left)
            producer.flush(2 * DELIVERY_TIMEOUT_MS / 1_000)
        except KafkaException as failure:
            self.ledger.note(f"producer {name} has failed: {failure.args[0].str()}")

    def _answered(self, at: At, key: str, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.ledger.lose_track()
        else:
            offset = message.offset()
            self.ledger.acknowledge(at, -1 if offset is None else offset, key)

    # --- readers ------------------------------------------------------------------------------------------------------

    def _read(self, name: str) -> None:
        """Read all partitions from their beginnings. A new consumer is made whenever a reader must change its offset.

        After an error in a partition, a consumer refuses to seek there.
        """
        while not self._may_end.is_set():
            with closing(consumer_of(self._bootstrap_servers, self.next_offsets[name])) as consumer:
                goes_on = True
                while goes_on and not self._may_end.is_set():
                    for message in consumer.consume(RECORDS_PER_CALL, READ_SECONDS):
                        goes_on = self.take(name, message) and goes_on

    def take(self, name: str, message: Message) -> bool:
        """Enter a record or an error that a reader received; return whether its consumer can continue.

        A former leader that does not know of its successor may report a log end below the offset that the reader has
        reached at the successor. The reader continues at its offset; the check at the end finds missing records.
        """
        error = message.error()
        if error is None:
            at, offset, value = entry_of(message)
            self.ledger.read(at, offset, value)
            self.next_offsets[name][at] = offset + 1
            return True
        topic, partition = message.topic(), message.partition()
        self.last_errors[name] = f"{topic}-{partition}: {error.str()}"
        if error.code() in CUT_ERRORS and topic is not None and partition is not None:
            next_offset = self.ledger.told_of_cut(At(topic, partition), f"{name}: {self.last_errors[name]}")
            self.next_offsets[name][At(topic, partition)] = next_offset
            return False
        return True

    def until_all_is_read(self, timeout_seconds: float) -> list[str]:
        """Wait until each reader has all records acknowledged until now; return the readers that are still behind."""
        ends = self.ledger.offsets_to_find()
        deadline = time.monotonic() + timeout_seconds
        while behind := self._behind(ends):
            if time.monotonic() > deadline:
                return behind
            time.sleep(READ_SECONDS)
        return []

    def _behind(self, ends: Mapping[At, int]) -> list[str]:
        return [
            f"{name} has read {at} up to {offset} of {end}; its last error: {self.last_errors[name]}"
            for name, offsets in self.next_offsets.items()
            for at, end in ends.items()
            if (offset := offsets[at]) < end
        ]

    def _watch_high_watermarks(self) -> None:
        """Request the ends of all partitions again and again, and enter them."""
        client = AdminClient({**CONNECTED, "bootstrap.servers": self._bootstrap_servers})
        asked = {TopicPartition(*at): OffsetSpec.latest() for at in self._partitions}  # type: ignore[no-untyped-call]
        while not self._may_end.wait(READ_SECONDS):
            for of, answer in client.list_offsets(asked, request_timeout=LIST_SECONDS).items():
                with suppress(KafkaException):  # no leader, or it is not ready or not reachable
                    found = answer.result()
                    if found.leader_epoch is not None:
                        self.ledger.see_high_watermark(At(of.topic, of.partition), found.leader_epoch, found.offset)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.ledger.break_rule(f"a client ended: {error!r}")
            raise


def read_back(bootstrap_servers: str, ends: Mapping[At, int], timeout_seconds: float) -> dict[At, dict[int, str]]:
    """Return the records of partitions from their beginnings to these ends, as far as they arrive in time."""
    found: dict[At, dict[int, str]] = {at: {} for at in ends}
    left = {at for at, end in ends.items() if end > 0}
    deadline = time.monotonic() + timeout_seconds
    with closing(consumer_of(bootstrap_servers, dict.fromkeys(ends, OFFSET_BEGINNING))) as consumer:
        while left and time.monotonic() < deadline:
            for message in consumer.consume(RECORDS_PER_CALL, READ_SECONDS):
                if message.error() is None:
                    at, offset, value = entry_of(message)
                    found[at][offset] = value
            reached = {TopicPartition(*at): at for at in left}
            for position in consumer.position(list(reached)):
                at = At(position.topic, position.partition)
                if position.offset >= ends[at]:
                    left.discard(at)
    return found


def consumer_of(bootstrap_servers: str, offsets: Mapping[At, int]) -> Consumer:
    """Return a consumer at these offsets."""
    consumer = Consumer(
        {
            **SETTINGS,
            "bootstrap.servers": bootstrap_servers,
            "group.id": "chaos",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([TopicPartition(*at, offset) for at, offset in offsets.items()])
    return consumer


def entry_of(message: Message) -> tuple[At, int, str]:
    """Return the partition, the offset and the key of a record."""
    topic, partition, offset, key = message.topic(), message.partition(), message.offset(), message.key()
    if topic is None or partition is None or offset is None or key is None:
        raise ValueError("a record has no partition, no offset or no key")
    return At(topic, partition), offset, key.decode()
