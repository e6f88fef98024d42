"""Reads partitions of a topic through confluent-kafka, each from one position to another, without a group."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftlog.admin.client.time_limit import allowed_call_seconds
from kraftlog.clients.broker_errors import api_error
from kraftlog.clients.client_settings import POLL_SECONDS, client_settings
from kraftlog.clients.positions import Position, PositionKind
from kraftlog.clients.records import Record
from kraftlog.commands.user_messages import show_to_user

GROUP_ID: Final = "kraftlog-consume"
"""The library requires a group. It is never used: nothing is subscribed to, and nothing is committed."""

BATCH_RECORDS_MAX: Final = 1_000
PREFETCHED_KIB_MAX: Final = 64 * 1024
LOOKUP_TIMEOUT_SECONDS: Final = 10.0
NO_TIMESTAMP: Final = 0
NO_SUCH_OFFSET: Final = -1
"""The result of a lookup by time if no record is that late."""


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """The range to read of a partition: from `start` to before `end`, which may be beyond the log end offset."""

    partition: int
    start: int
    end: int | None = None
    """None: there is no end, or the first record at `end_timestamp_ms` or later is it."""
    end_timestamp_ms: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be read."""
        return self.end is not None and self.start >= self.end

    def ends_before(self, offset: int, timestamp_ms: int | None) -> bool:
        """Whether a record of that offset and time is at or after the end."""
        if self.end is not None:
            return offset >= self.end
        return self.end_timestamp_ms is not None and timestamp_ms is not None and timestamp_ms >= self.end_timestamp_ms


class RecordConsumer:
    """Reads one topic. The caller must call `close` at the end."""

    def __init__(self, endpoints: Sequence[Endpoint], topic: str, *, is_committed_only: bool) -> None:
        """With `is_committed_only`, records of transactions are read when these are committed (read_committed)."""
        self._topic = topic
        self._waited_for: set[int] = set()
        """The errors that the user has been shown."""
        self._consumer = Consumer(
            {
                **client_settings(endpoints),
                "group.id": GROUP_ID,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed" if is_committed_only else "read_uncommitted",
                "queued.max.messages.kbytes": PREFETCHED_KIB_MAX,
                "check.crcs": True,
            }
        )

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()

    def ranges(self, partitions: Sequence[int], begin: Position, end: Position | None) -> list[PartitionRange]:
        """The ranges between two positions of each partition; without `end`, everything from the first on.

        Raises ApiError: OFFSET_OUT_OF_RANGE, and what a broker answers.
        """
        late = self._offsets_for_time(partitions, begin)
        later = {} if end is None else self._offsets_for_time(partitions, end)
        return [self._range(partition, begin, end, late, later) for partition in partitions]

    def batches(self, ranges: Sequence[PartitionRange], seconds: float) -> Iterator[list[Record]]:
        """The records in the ranges, some at a time; an empty list while there is nothing new. Raises ApiError:
        REQUEST_TIMED_OUT if reading takes longer than `seconds`, and a broker's error.
        """
        open_ranges = {of.partition: of for of in ranges if not of.is_empty}
        self._consumer.assign([TopicPartition(self._topic, of.partition, of.start) for of in open_ranges.values()])
        deadline = time.monotonic() + seconds
        while open_ranges:
            yield [record for message in self._next() if (record := self._taken(message, open_ranges)) is not None]
            if time.monotonic() > deadline:
                raise ApiError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"not read to the end within {seconds:g} s; the records read are above; raise --timeout",
                )

    def _next(self) -> list[Message]:
        """The records that have arrived; waits only for the first."""
        first = self._consumer.poll(POLL_SECONDS)
        return [] if first is None else [first, *self._consumer.consume(BATCH_RECORDS_MAX - 1, 0)]

    def _taken(self, message: Message, open_ranges: dict[int, PartitionRange]) -> Record | None:
        """The record, unless it is not wanted. A partition that is read to its end is removed."""
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            self._raise_or_wait(error, message)
            return None
        partition, offset = message.partition() or 0, message.offset() or 0
        wanted = open_ranges.get(partition)
        if wanted is None:
            return None  # it was in flight when the partition's end was reached
        if error is not None:
            # The last offsets may be those of markers of transactions, which are never handed out.
            self._close_if(wanted.end is not None and offset >= wanted.end, partition, open_ranges)
            return None
        record = _record(message, self._topic)
        if wanted.ends_before(offset, record.timestamp_ms):
            self._close_if(True, partition, open_ranges)
            return None
        self._close_if(offset + 1 == wanted.end, partition, open_ranges)
        return record

    def _close_if(self, is_read: bool, partition: int, open_ranges: dict[int, PartitionRange]) -> None:
        if is_read:
            del open_ranges[partition]
            self._consumer.pause([TopicPartition(self._topic, partition)])

    def _raise_or_wait(self, error: KafkaError, message: Message) -> None:
        where = f"partition {message.partition()} of {self._topic!r}"
        if error.retriable():
            if error.code() not in self._waited_for:  # once for all partitions: its text may differ each time
                self._waited_for.add(error.code())
                show_to_user(f"waiting for {where}: {error.str()}")
            return
        raise api_error(error, f"cannot continue to read {where}")

    # --- positions ----------------------------------------------------------------------------------------------------

    def _range(
        self, partition: int, begin: Position, end: Position | None, late: dict[int, int], later: dict[int, int]
    ) -> PartitionRange:
        lowest, highest = self._bounds(partition)
        start = self._offset(begin, partition, lowest, highest, late)
        if not lowest <= start <= highest:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"partition {partition} of {self._topic!r} has offsets {lowest} to {highest}, not {start}; begin there,"
                " or choose partitions with --partition",
            )
        if end is None:
            return PartitionRange(partition, start)
        if end.kind is PositionKind.TIME and later[partition] == NO_SUCH_OFFSET:
            if end.number > time.time() * 1_000:
                return PartitionRange(partition, start, end_timestamp_ms=end.number)
            return PartitionRange(partition, start, highest)
        return PartitionRange(partition, start, self._offset(end, partition, lowest, highest, later))

    @staticmethod
    def _offset(position: Position, partition: int, lowest: int, highest: int, by_time: dict[int, int]) -> int:
        match position.kind:
            case PositionKind.BEGINNING:
                return lowest
            case PositionKind.END:
                return highest
            case PositionKind.OFFSET:
                return position.number
            case PositionKind.TIME:
                found = by_time[partition]
                return highest if found == NO_SUCH_OFFSET else found

    def _bounds(self, partition: int) -> tuple[int, int]:
        """The first offset and the end offset; with read_committed, the last stable offset."""
        try:
            return self._consumer.get_watermark_offsets(TopicPartition(self._topic, partition), _lookup_seconds())
        except KafkaException as error:
            raise self._unknown(partition, error) from None

    def _offsets_for_time(self, partitions: Sequence[int], position: Position) -> dict[int, int]:
        """The first offset at a time or later, by partition; nothing for another kind of position."""
        if position.kind is not PositionKind.TIME:
            return {}
        wanted = [TopicPartition(self._topic, partition, position.number) for partition in partitions]
        try:
            found = self._consumer.offsets_for_times(wanted, _lookup_seconds())
        except KafkaException as error:
            raise self._unknown(partitions[0], error) from None
        for of in found:
            if of.error is not None:
                raise self._unknown(of.partition, KafkaException(of.error))
        return {of.partition: of.offset if of.offset >= 0 else NO_SUCH_OFFSET for of in found}

    def _unknown(self, partition: int, error: KafkaException) -> ApiError:
        return api_error(error.args[0], f"the offsets of partition {partition} of {self._topic!r} cannot be looked up")


def _record(message: Message, topic: str) -> Record:
    kind, timestamp_ms = message.timestamp()
    try:
        headers = cast(list[tuple[str, bytes | None]], message.headers() or [])
    except UnicodeDecodeError:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"offset {message.offset()} of partition {message.partition()} of {topic!r} has a header whose name is not"
            " UTF-8; read the others from the next offset on",
        ) from None
    return Record(
        value=message.value(),
        key=message.key(),
        headers=tuple(headers),
        timestamp_ms=None if kind == NO_TIMESTAMP else timestamp_ms,
        partition=message.partition(),
        offset=message.offset(),
    )


def _lookup_seconds() -> float:
    return allowed_call_seconds(LOOKUP_TIMEOUT_SECONDS)
