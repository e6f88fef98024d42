"""Disturbances beside the producers and readers: topics that are created and deleted, and idle connections."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from itertools import count
from random import Random
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kraftlog.chaos.brokers.clients import CONNECTED, SETTINGS
from kraftlog.clients.large_requests import metadata
from kraftlog.clients.raw_client import ConnectionClosed, RawClient, frame_of

TOPIC_SECONDS: Final = 5.0
"""How often a topic is created, and the oldest one deleted."""
PASSING_TOPICS: Final = 4
PASSING_PARTITIONS: Final = 4
REPLICAS: Final = 3
DONE_ALREADY: Final = (KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.UNKNOWN_TOPIC_OR_PART)
PASSING_RECORDS: Final = 40
PASSING_VALUE: Final = bytes(1_000)
REQUEST_SECONDS: Final = 10.0

IDLE_CONNECTIONS: Final = 40
IDLE_SECONDS: Final = (2.0, 8.0)
ANSWER_SECONDS: Final = 5.0
UNKNOWN_TOPICS: Final = 3


class Disturbance(ABC):
    """A thread that works until it is stopped."""

    def __init__(self, name: str) -> None:
        """Starts nothing."""
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        """The error with which the thread ended before it was stopped, if it did."""
        self._name = name
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=name)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait until it has ended."""
        self._is_over.set()
        self._thread.join()

    @abstractmethod
    def work(self) -> None:
        """Work until `stop`."""

    def _guarded(self) -> None:
        try:
            self.work()
        except Exception as error:
            self.violations.append(f"{self._name} ended: {error!r}")
            raise


class PassingTopics(Disturbance):
    """Creates a topic every few seconds, produces some records to it, and deletes the oldest; finally deletes all."""

    def __init__(self, bootstrap_servers: str) -> None:
        """Starts nothing."""
        super().__init__("passing topics")
        self._connected: dict[str, Any] = {"bootstrap.servers": bootstrap_servers}
        self._admin = AdminClient({**CONNECTED, **self._connected})

    def work(self) -> None:
        """Work until `stop`."""
        producer = Producer({**SETTINGS, **self._connected, "message.timeout.ms": 5_000})
        names: deque[str] = deque()
        for number in count(1):
            if self._is_over.wait(TOPIC_SECONDS):
                break
            name = f"passing-{number}"
            names.append(name)
            self._create(name)
            with suppress(KafkaException, BufferError):
                for record in range(PASSING_RECORDS):
                    producer.produce(name, PASSING_VALUE, partition=record % PASSING_PARTITIONS)
            producer.flush(REQUEST_SECONDS)
            for _ in range(len(names) - PASSING_TOPICS):
                if not self._delete(oldest := names.popleft()):
                    names.append(oldest)
        for name in names:
            self._delete(name)

    def _create(self, name: str) -> bool:
        topic = NewTopic(name, PASSING_PARTITIONS, REPLICAS)
        return self._is_done("created", self._admin.create_topics([topic], request_timeout=REQUEST_SECONDS))

    def _delete(self, name: str) -> bool:
        return self._is_done("deleted", self._admin.delete_topics([name], request_timeout=REQUEST_SECONDS))

    def _is_done(self, verb: str, answers: Mapping[str, Future[None]]) -> bool:
        """Whether the request was carried out, or an earlier one whose answer was lost."""
        try:
            for answer in answers.values():
                answer.result()
        except KafkaException as failure:
            self.counts[f"not {verb}"] += 1
            return failure.args[0].code() in DONE_ALREADY
        self.counts[verb] += 1
        return True


class IdleConnections(Disturbance):
    """Holds many connections for some seconds: half never send, half send one request; half end with a reset."""

    def __init__(self, bootstrap_servers: str, random: Random) -> None:
        """Starts nothing."""
        super().__init__("idle connections")
        self._servers = bootstrap_servers.split(",")
        self._random = random
        self._frame = frame_of(metadata(UNKNOWN_TOPICS))

    def work(self) -> None:
        """Work until `stop`."""
        while not self._is_over.is_set():
            with ExitStack() as held:
                for number in range(IDLE_CONNECTIONS):
                    with suppress(OSError, ConnectionClosed):  # a broker that does not run
                        self._connect(held, self._servers[number % len(self._servers)], speaks=number % 2 == 0)
                self._is_over.wait(self._random.uniform(*IDLE_SECONDS))

    def _connect(self, held: ExitStack, server: str, *, speaks: bool) -> None:
        client = held.enter_context(RawClient(server, ANSWER_SECONDS))
        self.counts["connections"] += 1
        if self._random.random() < 0.5:
            client.reset_at_close()
        if speaks:
            client.send(self._frame)
            client.skip_answer()
