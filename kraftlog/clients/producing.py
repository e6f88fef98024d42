"""Writes records to a topic through confluent-kafka, and counts the outcomes. Two threads share a producer. The
command's own thread reads lines and sends records; a second one handles delivery reports. A signal raises its exception
only in the first, so no delivery is lost before it is counted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, BinaryIO, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ConfigurationError, ErrorCode
from kraftlog.clients.broker_errors import api_error, error_name
from kraftlog.clients.client_settings import POLL_SECONDS, client_settings
from kraftlog.clients.input_lines import LINE_BYTES_MAX, lines
from kraftlog.clients.records import ContentDigest, InvalidLine, Record

QUEUE_KIB_MAX: Final = 2 * LINE_BYTES_MAX // 1024
QUEUE_RECORDS_MAX: Final = 100_000
"""How much may wait to be acknowledged; then reading waits."""

PROGRESS_LINES: Final = 100
"""How often progress is reported."""

RECORD_BYTES_MAX: Final = LINE_BYTES_MAX + 64 * 1024
DELIVERY_TIMEOUT_SECONDS: Final = 120.0
"""Kafka's `delivery.timeout.ms`."""

_PURGED: Final = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)


@dataclass(frozen=True, slots=True)
class ProduceOptions:
    """How records are written. Kafka's names and meanings."""

    acks: str = "all"
    compression: str = "none"
    is_idempotent: bool = True
    linger_ms: int = 5
    batch_bytes: int = 1_000_000
    delivery_timeout_seconds: float = DELIVERY_TIMEOUT_SECONDS


@dataclass(slots=True)
class Deliveries:
    """The outcomes of the records. With acks=0, sent records count as written."""

    written: int = 0
    bytes_written: int = 0
    failed: int = 0
    abandoned: int = 0
    """Records that were not waited for: some of them may have been written."""
    digest: ContentDigest = field(default_factory=ContentDigest)
    """The digest of the written records, if it is wanted."""


class RecordProducer:
    """Writes to one topic. The caller must call `finish` or `abandon` at the end."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        topic: str,
        options: ProduceOptions,
        on_error: Callable[[str], None],
        *,
        has_digest: bool = False,
    ) -> None:
        self.deliveries = Deliveries()
        self.topic = topic
        self._on_error = on_error
        self.has_digest = has_digest
        self._producer = _producer(endpoints, options)
        self._lock = threading.Lock()
        self._was_served = threading.Condition()
        self._is_finishing = False
        self._error: BaseException | None = None
        self._has_ended = threading.Event()
        threading.Thread(target=copy_context().run, args=(self._serve,), name="deliveries", daemon=True).start()

    def send(self, record: Record, name: str) -> None:
        """Send a record; wait while the queue is full. `name` is its name in the message of a failed delivery. Raises
        ApiError if the producer cannot continue, as after a batch that was lost between others.
        """
        arguments: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
        if record.timestamp_ms is not None:
            arguments["timestamp"] = record.timestamp_ms
        delivered = partial(self._delivered, record if self.has_digest else None, name)
        while True:
            try:
                self._producer.produce(
                    self.topic,
                    record.value,
                    record.key,
                    on_delivery=delivered,
                    headers=list(record.headers) or None,
                    **arguments,
                )
            except BufferError:
                self._wait_until_served()
            except KafkaException as error:
                self._refused(error.args[0], name, record.partition)
                return
            else:
                return

    def finish(self, seconds: float | None = None) -> bool:
        """Wait at most this long until each record is written or has failed; return whether all have."""
        self._is_finishing = True
        is_done = self._has_ended.wait(seconds)  # a join that a signal interrupts marks the thread as ended
        if self._error is not None:
            raise self._error
        return is_done

    def abandon(self) -> None:
        """Stop waiting: records neither written nor failed count as abandoned."""
        self._producer.purge()
        self.finish()

    @property
    def waiting(self) -> int:
        """How many records are neither written nor failed."""
        return len(self._producer)

    def _serve(self) -> None:
        """The work of the second thread."""
        try:
            while not self._is_finishing or self._producer.flush(POLL_SECONDS):
                self._producer.poll(POLL_SECONDS)
                with self._was_served:
                    self._was_served.notify_all()
        except BaseException as error:
            self._error = error
        finally:
            self._has_ended.set()

    def _wait_until_served(self) -> None:
        if self._error is not None:
            raise self._error
        with self._was_served:
            self._was_served.wait(POLL_SECONDS)

    def _delivered(self, record: Record | None, name: str, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed(error, name, message.partition())
            return
        with self._lock:
            self.deliveries.written += 1
            self.deliveries.bytes_written += len(message.key() or b"") + len(message.value() or b"")
            if record is not None:
                self.deliveries.digest.add(record)

    def _failed(self, error: KafkaError, name: str, partition_id: int | None) -> None:
        with self._lock:
            if error.code() in _PURGED:
                self.deliveries.abandoned += 1
                return
            self.deliveries.failed += 1
        where = "" if partition_id is None or partition_id < 0 else f", partition {partition_id}"
        self._on_error(f"{error_name(error)}: {name} was not written to {self.topic}{where}: {error.str()}")

    def _refused(self, error: KafkaError, name: str, partition_id: int | None) -> None:
        """The producer did not accept the record."""
        if error.fatal() or error.code() == KafkaError._FATAL:
            raise api_error(error, f"{name} and the following records were not written to {self.topic}")
        self._failed(error, name, partition_id)


def write_lines(
    producer: RecordProducer,
    stream: BinaryIO,
    parse: Callable[[bytes], Record],
    partition: int | None,
    progress: Callable[[int], None],
) -> None:
    """Send the record of each line, to `partition` if one is given. `progress` is called with the bytes read. Raises
    ApiError(INVALID_RECORD), with the line number, for a line that is not a record.
    """
    bytes_read, lines_read = 0, 0
    try:
        for line in lines(stream):
            record = parse(line)
            lines_read += 1
            producer.send(record if partition is None else replace(record, partition=partition), f"line {lines_read}")
            bytes_read += len(line) + 1
            if lines_read % PROGRESS_LINES == 0:
                progress(bytes_read)
    except InvalidLine as error:
        raise ApiError(
            ErrorCode.INVALID_RECORD, f"line {lines_read + 1} is not a record: {error}; later lines were not read"
        ) from None


def _producer(endpoints: Sequence[Endpoint], options: ProduceOptions) -> Producer:
    settings = {
        **client_settings(endpoints),
        "acks": options.acks,
        "compression.type": options.compression,
        "enable.idempotence": options.is_idempotent,
        "linger.ms": options.linger_ms,
        "batch.size": options.batch_bytes,
        "message.max.bytes": RECORD_BYTES_MAX,
        "queue.buffering.max.kbytes": QUEUE_KIB_MAX,
        "queue.buffering.max.messages": QUEUE_RECORDS_MAX,
        "delivery.timeout.ms": round(options.delivery_timeout_seconds * 1_000),
        "partitioner": "murmur2_random",  # keys go where Java's clients put them
        "sticky.partitioning.linger.ms": 0,  # else records without keys stay with one partition for a while
    }
    try:
        return Producer(settings)
    except KafkaException as error:
        raise ConfigurationError(f"the producer refuses its settings: {error.args[0].str()}") from None
