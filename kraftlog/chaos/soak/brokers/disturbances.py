"""What comes and goes beside the producers and readers: topics, and connections on which little or nothing happens."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from itertools import count
from random import Random
from typing import Any, Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kraftlog.chaos.brokers.clients import CONNECTED, SETTINGS
from kraftlog.clients.large_requests import metadata
from kraftlog.clients.raw_client import ConnectionClosed, RawClient, frame_of

TOPIC_SECONDS: Final = 5.0
"""How often a topic is created, and the oldest one deleted."""
PASSING_TOPICS: Final = 4
PASSING_PARTITIONS: Final = 4
PASSING_RECORDS: Final = 40
PASSING_VALUE: Final = bytes(1_000)
REQUEST_SECONDS: Final = 10.0

IDLE_CONNECTIONS: Final = 40
IDLE_SECONDS: Final = (2.0, 8.0)
ANSWER_SECONDS: Final = 5.0
UNKNOWN_TOPICS: Final = 3


class PassingTopics:
    """A thread that creates a topic every few seconds, produces a little to it, and deletes the oldest."""

    def __init__(self, bootstrap_servers: str) -> None:
        """Nothing runs yet."""
        self.counts: Counter[str] = Counter()
        self._bootstrap_servers = bootstrap_servers
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="passing topics")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Wait until all topics are deleted, or it was tried."""
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        connected: dict[str, Any] = {"bootstrap.servers": self._bootstrap_servers}
        admin = AdminClient({**CONNECTED, **connected})
        producer = Producer({**SETTINGS, **connected, "message.timeout.ms": 5_000})
        names: deque[str] = deque()
        for number in count(1):
            if self._is_over.wait(TOPIC_SECONDS):
                break
            names.append(f"passing-{number}")
            self._try("created", lambda: admin.create_topics([_new_topic(names[-1])]))
            with suppress(KafkaException, BufferError):
                for record in range(PASSING_RECORDS):
                    producer.produce(names[-1], PASSING_VALUE, partition=record % PASSING_PARTITIONS)
            producer.flush(REQUEST_SECONDS)
            if len(names) > PASSING_TOPICS:
                oldest = names.popleft()
                if not self._try("deleted", lambda: admin.delete_topics([oldest], request_timeout=REQUEST_SECONDS)):  # noqa: B023
                    names.append(oldest)
        for name in names:
            self._try("deleted", lambda: admin.delete_topics([name], request_timeout=REQUEST_SECONDS))  # noqa: B023

    def _try(self, verb: str, ask: Callable[[], dict[str, Any]]) -> bool:
        """Whether it was done, or had been done already."""
        try:
            for answer in ask().values():
                answer.result()
        except KafkaException:
            self.counts[f"not {verb}"] += 1
            return False
        self.counts[verb] += 1
        return True


def _new_topic(name: str) -> NewTopic:
    return NewTopic(name, PASSING_PARTITIONS, 3)


class IdleConnections:
    """A thread that holds many connections for some seconds: half never send, half send one request.

    Half of them end with a reset.
    """

    def __init__(self, bootstrap_servers: str, random: Random) -> None:
        """Nothing runs yet."""
        self.counts: Counter[str] = Counter()
        self._servers = bootstrap_servers.split(",")
        self._random = random
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="idle connections")
        self._frame = frame_of(metadata(UNKNOWN_TOPICS))

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Wait until all are closed."""
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
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
