"""One record at a time: acknowledged by the leader, and received by a consumer that waits for it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from kraftlog.bench.broker.loads.load import STALL_SECONDS, Load, failed, times_ms

POLL_SECONDS: Final = 0.5
ARRIVALS_MAX: Final = 100
"""A bound; only one arrival is awaited at a time."""

Arrivals = queue.Queue[tuple[float, str | None]]
"""When the consumer returned a record, with an error if there was one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneRecord(Load):
    """Produces each record after the previous one was acknowledged and consumed. The first ones are not counted."""

    records: int
    warm_up_records: int

    def run(self) -> dict[str, float]:
        """Return the times from produced to acknowledged, and to consumed. Raises ApiError."""
        producer = Producer({**self.client_settings, "acks": "all", "linger.ms": 0})
        acknowledged, consumed = [], []
        used = 0.0
        with self._arrivals() as arrivals:
            for number in range(self.warm_up_records + self.records):
                if number == self.warm_up_records:
                    used = self.processor_seconds()
                times = _send_one(producer, self.topic, self.value(), arrivals)
                if number >= self.warm_up_records:
                    acknowledged.append(times[0])
                    consumed.append(times[1])
        used = self.processor_seconds() - used
        return {
            **times_ms("acknowledged", acknowledged),
            **times_ms("end_to_end", consumed),
            "processor_microseconds_per_record": round(used * 1e6 / self.records, 1),
        }

    @contextmanager
    def _arrivals(self) -> Iterator[Arrivals]:
        """Run a consumer at the end of the partition, in a thread, within the block."""
        arrivals: Arrivals = queue.Queue(ARRIVALS_MAX)
        consumer = Consumer({**self.client_settings, "group.id": "bench", "enable.auto.commit": False})
        _, end = consumer.get_watermark_offsets(TopicPartition(self.topic, 0), STALL_SECONDS)
        consumer.assign([TopicPartition(self.topic, 0, end)])
        has_ended = threading.Event()

        def follow() -> None:
            while not has_ended.is_set():
                message = consumer.poll(POLL_SECONDS)
                if message is not None:
                    error = message.error()
                    arrivals.put((time.perf_counter(), None if error is None else error.str()))

        thread = threading.Thread(target=follow, name="consumer", daemon=True)
        thread.start()
        try:
            yield arrivals
        finally:
            has_ended.set()
            thread.join()
            consumer.close()


def _send_one(producer: Producer, topic: str, value: bytes, arrivals: Arrivals) -> tuple[float, float]:
    """Produce one record; return the seconds until it was acknowledged, and until it was consumed."""
    answers: list[tuple[float, KafkaError | None]] = []

    def answered(error: KafkaError | None, _: Message) -> None:
        answers.append((time.perf_counter(), error))

    sent = time.perf_counter()
    producer.produce(topic, value, partition=0, on_delivery=answered)
    while not answers:
        if time.perf_counter() - sent > STALL_SECONDS:
            raise failed(f"a record is not acknowledged after {STALL_SECONDS:g} s")
        producer.poll(POLL_SECONDS)
    answered_at, error = answers[0]
    if error is not None:
        raise failed(f"a record was not written: {error.str()}")
    try:
        arrived, problem = arrivals.get(timeout=STALL_SECONDS)
    except queue.Empty:
        raise failed(f"an acknowledged record did not reach the consumer within {STALL_SECONDS:g} s") from None
    if problem is not None:
        raise failed(f"the partition cannot be read further: {problem}")
    return answered_at - sent, arrived - sent
