"""A partition consumed from its first record to its last, as fast as the broker sends it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, Message, TopicPartition

from kraftlog.bench.broker.loads.load import STALL_SECONDS, Load, failed
from kraftlog.bench.process_usage import disk_bytes_read

RECORDS_PER_CALL: Final = 10_000
CALL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Consume(Load):
    """Consumes partition 0, with the library's defaults."""

    def run(self) -> dict[str, float]:
        """Return the bytes per second until the last record was returned. Raises ApiError if one did not arrive."""
        consumer = Consumer({**self.client_settings, "group.id": "bench", "enable.auto.commit": False})
        try:
            partition = TopicPartition(self.topic, 0)
            start, end = consumer.get_watermark_offsets(partition, STALL_SECONDS)
            used, read = self.processor_seconds(), self._disk_bytes_read()
            started = time.perf_counter()
            consumer.assign([TopicPartition(self.topic, 0, start)])
            self._consume(consumer, end - start)
            seconds = time.perf_counter() - started
            used = self.processor_seconds() - used
            read = self._disk_bytes_read() - read
        finally:
            consumer.close()
        consumed = (end - start) * self.record_bytes
        return {
            "megabytes_per_second": round(consumed / 1e6 / seconds, 2),
            "processor_seconds_per_gigabyte": round(used / (consumed / 1e9), 4),
            "read_from_disk_percent": round(100 * read / consumed, 1),
        }

    def _disk_bytes_read(self) -> int:
        return sum(map(disk_bytes_read, self.broker_pids))

    def _consume(self, consumer: Consumer, count: int) -> None:
        heard = time.monotonic()
        while count > 0:
            messages = consumer.consume(RECORDS_PER_CALL, CALL_SECONDS)
            if sum(map(len, messages)) != len(messages) * self.record_bytes:
                _refuse(messages)
            count -= len(messages)
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > STALL_SECONDS:
                raise failed(f"{count} records did not arrive within {STALL_SECONDS:g} s")


def _refuse(messages: list[Message]) -> None:
    """Raise ApiError with the first error among the messages."""
    errors = [error.str() for message in messages if (error := message.error()) is not None]
    raise failed(f"the partition cannot be read further: {errors[0] if errors else 'values have an unknown size'}")
