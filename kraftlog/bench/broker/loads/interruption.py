"""Records produced at a fixed rate to many partitions, while a broker gets SIGKILL, SIGTERM or SIGSTOP."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from kraftlog.bench.broker.loads.load import STALL_SECONDS, Load, failed

MILLISECONDS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption(Load):
    """The load sends the signal itself, when every partition has had its warm-up. The producer is idempotent."""

    partitions: int
    records_per_second: int
    """The rate of each partition."""
    warm_up_seconds: float
    victim_pid: int
    signal_number: int
    seconds: float
    """How long records are sent after the signal, at least: until every partition accepts records again."""

    def run(self) -> dict[str, float]:
        """Return when every partition accepts records again, the slowest record, and the errors. Raises ApiError."""
        producer = Producer({**self.client_settings, "acks": "all", "linger.ms": 0, "enable.idempotence": True})
        seen = Seen(self.partitions)
        value = self.value()

        def send_until(is_over: Callable[[], bool]) -> None:
            due = time.perf_counter()
            while not is_over():
                now = time.perf_counter()
                for partition in range(self.partitions):
                    answered = functools.partial(seen.answered, partition, now)
                    producer.produce(self.topic, value, partition=partition, on_delivery=answered)
                due = max(due + 1 / self.records_per_second, time.perf_counter())
                while (left := due - time.perf_counter()) > 0:
                    producer.poll(left)

        started = time.perf_counter()
        send_until(lambda: time.perf_counter() - started >= self.warm_up_seconds and seen.all_answered)
        seen.began_at = time.perf_counter()
        os.kill(self.victim_pid, self.signal_number)
        send_until(lambda: time.perf_counter() - seen.began_at >= self.seconds and seen.are_all_back)
        waiting = producer.flush(STALL_SECONDS)
        if waiting:
            raise failed(f"{waiting} records are not acknowledged after {STALL_SECONDS:g} s")
        return seen.figures()


class Seen:
    """The answers that the client got for its records."""

    def __init__(self, partitions: int) -> None:
        self.began_at = float("inf")
        """When the signal was sent."""
        self._partitions = partitions
        self._warm: set[int] = set()
        self._back_at: dict[int, float] = {}
        """When each partition acknowledged the first record that was produced after the signal."""
        self._slowest_seconds = 0.0
        """The longest time of a record that was acknowledged after the signal."""
        self._errors = 0
        self._heard_at = time.perf_counter()

    @property
    def all_answered(self) -> bool:
        """Whether every partition has acknowledged a record. Raises ApiError if no answer has come for long."""
        self._check_heard()
        return len(self._warm) == self._partitions

    @property
    def are_all_back(self) -> bool:
        """Whether every partition has acknowledged a record that was produced after the signal. Raises ApiError."""
        self._check_heard()
        return len(self._back_at) == self._partitions

    def answered(self, partition: int, sent_at: float, error: KafkaError | None, _: Message) -> None:
        """Note that a record was acknowledged or has failed."""
        now = self._heard_at = time.perf_counter()
        if error is not None:
            self._errors += 1
            return
        self._warm.add(partition)
        if now >= self.began_at:
            self._slowest_seconds = max(self._slowest_seconds, now - sent_at)
        if sent_at >= self.began_at:
            self._back_at.setdefault(partition, now)

    def figures(self) -> dict[str, float]:
        """Return the figures at the end."""
        return {
            "all_again_seconds": round(max(self._back_at.values()) - self.began_at, 3),
            "slowest_ms": round(self._slowest_seconds * MILLISECONDS, 1),
            "errors": self._errors,
        }

    def _check_heard(self) -> None:
        if time.perf_counter() - self._heard_at > STALL_SECONDS:
            raise failed(f"no record was acknowledged for {STALL_SECONDS:g} s")
