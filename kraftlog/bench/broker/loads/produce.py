"""Records produced as fast as the brokers accept them, with acks=all."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

from kraftlog.bench.broker.loads.load import STALL_SECONDS, Load, failed

RECORDS_PER_CALL: Final = 1_000
QUEUE_KIB: Final = 64 * 1024
FULL_SECONDS: Final = 0.002
"""How long the client waits when the library's queue is full: much less than the queue lasts."""
LINGER_MS: Final = 50
"""Longer than a batch takes to fill, so that batches are full."""
RECORD_OVERHEAD_BYTES_MAX: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Produce(Load):
    """Produces `total_bytes` of values, in batches of `batch_bytes`, to each partition in turn."""

    batch_bytes: int
    total_bytes: int
    partitions: int = 1
    record_bytes_min: int | None = None
    """If set, the sizes of values vary from this one to `record_bytes`."""

    def run(self) -> dict[str, float]:
        """Return the bytes per second until the last acknowledgment. Raises ApiError if a record was not written."""
        errors: list[str] = []

        def note(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                errors.append(error.str())

        producer = Producer(self._settings())
        messages = self._messages()
        for partition in range(self.partitions):
            _send(producer, self.topic, partition, messages[:1], note)  # connects, and learns who leads
        _finish(producer, errors)
        mean_bytes = sum(len(message["value"]) for message in messages) / len(messages)
        count = max(1, int(self.total_bytes / mean_bytes))
        used, started = self.processor_seconds(), time.perf_counter()
        left = count
        for partition in itertools.cycle(range(self.partitions)):
            if not left or errors:
                break
            left -= _send(producer, self.topic, partition, messages[:left], note)
        _finish(producer, errors)
        seconds = time.perf_counter() - started
        used = self.processor_seconds() - used
        produced = count * mean_bytes
        return {
            "megabytes_per_second": round(produced / 1e6 / seconds, 2),
            "processor_seconds_per_gigabyte": round(used / (produced / 1e9), 4),
        }

    def _messages(self) -> list[dict[str, Any]]:
        """Return the messages of one call, which is repeated."""
        value = self.value()
        least = self.record_bytes if self.record_bytes_min is None else self.record_bytes_min
        span = self.record_bytes - least + 1
        return [{"value": value[: least + 7 * number % span]} for number in range(RECORDS_PER_CALL)]

    def _settings(self) -> dict[str, Any]:
        return {
            **self.client_settings,
            "acks": "all",
            "linger.ms": LINGER_MS,
            "batch.size": self.batch_bytes,
            "batch.num.messages": 1_000_000,
            "message.max.bytes": max(self.batch_bytes, self.record_bytes + RECORD_OVERHEAD_BYTES_MAX),
            "queue.buffering.max.kbytes": QUEUE_KIB,
            "delivery.report.only.error": True,
        }


def _send(producer: Producer, topic: str, partition: int, messages: list[dict[str, Any]], note: Any) -> int:
    """Return how many messages the library accepted. Wait a moment if its queue is full."""
    taken = int(producer.produce_batch(topic, messages, partition=partition, on_delivery=note))
    if taken < len(messages):
        producer.poll(FULL_SECONDS)
    return taken


def _finish(producer: Producer, errors: list[str]) -> None:
    waiting = producer.flush(STALL_SECONDS)
    if errors:
        raise failed(f"{len(errors)} records were not written, the first: {errors[0]}")
    if waiting:
        raise failed(f"{waiting} records are not acknowledged after {STALL_SECONDS:g} s")
