"""Validates the records of a produced batch, as a stock broker does; they are inflated once, in portions.

The checks of each record, as in Kafka's `LogValidator`: it can be decoded; it has a key, if the topic is compacted; its
timestamp is near enough to the broker's clock. The offset deltas must be consecutive from 0. The pass also determines
the largest timestamp, since the one in the header is only the client's claim.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.sentinels import NO_TIMESTAMP
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.notation import Buffer
from kraftlog.kafka.record_batch import Compression
from kraftlog.kafka.record_heads import RecordHeads
from kraftlog.kafka.record_scan import ScanBudget
from kraftlog.storage.batch_records import BatchRecords, InflationMemory
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.formats.batch_header import BATCH_BYTES_MIN, BatchHeader

EXPANSION_MAX: Final = 1_000
"""Records that inflate to more than this many times max.message.bytes are refused."""
RECORD_ERRORS_MAX: Final = 1_000
"""The most records that a response names; Kafka names all."""
_TIMESTAMP_END: Final = 2**63


class RecordError(NamedTuple):
    """An invalid record of a batch (KIP-467)."""

    batch_index: int
    """The index of the record in its batch."""
    message: str


class RecordsRefused(ApiError):
    """INVALID_RECORD or INVALID_TIMESTAMP, with the records that are the reason."""

    def __init__(self, code: ErrorCode, message: str, record_errors: tuple[RecordError, ...]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class NotReadYet(Exception):
    """The records of a batch are too many for one turn. Call `records.read` in later turns."""

    def __init__(self, records: ProducedRecords) -> None:
        super().__init__("the records are not all read yet")
        self.records = records


def timestamp_limits(header: BatchHeader, config: PartitionLogConfig, now_ms: int) -> tuple[int, int]:
    """Return the lowest and the highest timestamp that a record may have, in milliseconds."""
    lowest_ms, highest_ms = -_TIMESTAMP_END, _TIMESTAMP_END - 1
    if not config.has_log_append_time and not header.is_control:
        lowest_ms = max(lowest_ms, now_ms - config.timestamp_before_max_ms)
        highest_ms = min(highest_ms, now_ms + config.timestamp_after_max_ms)
    return lowest_ms, highest_ms


class ProducedRecords:
    """Reads and checks the records of one batch, whose header and CRC were checked."""

    def __init__(
        self, data: Buffer, header: BatchHeader, config: PartitionLogConfig, now_ms: int, memory: InflationMemory
    ) -> None:
        """`data` begins with the batch, and must not change until all records are read.

        Call `close` unless `read` has returned True or raised.
        """
        self.max_timestamp_ms = NO_TIMESTAMP
        """The largest timestamp of the records read so far; -1 if none has one."""
        self._base_timestamp_ms = header.base_timestamp_ms
        self._is_compacted = config.is_compacted
        self._now_ms = now_ms
        self._oldest_ms, self._newest_ms = timestamp_limits(header, config, now_ms)
        view = memoryview(data)[BATCH_BYTES_MIN : header.size_bytes]
        self._records = BatchRecords(
            Compression(header.compression), view, header.record_count, EXPANSION_MAX * config.max_message_bytes, memory
        )
        self._errors: list[RecordError] = []
        self._error_count = 0
        self._has_timestamp_error = False

    def read(self, budget: ScanBudget | None = None) -> bool:
        """Continue reading; return whether all records are read. Without a budget only a lack of memory returns False.

        Raises ApiError(INVALID_RECORD) for records that cannot be decoded, and RecordsRefused once all records are read
        and some are invalid.
        """
        try:
            for heads in self._records.portions():
                self._check(heads)
                if budget is not None:
                    budget.spend(heads.work)
                    if budget.is_spent:
                        self._records.end_turn()
                        return False
        except MalformedBytes as error:
            raise ApiError(ErrorCode.INVALID_RECORD, f"the batch's records cannot be read: {error}") from None
        if not self._records.is_read:
            return False
        if self._error_count:
            self._refuse()
        return True

    @property
    def waits(self) -> bool:
        """Whether the records wait for memory."""
        return self._records.waits

    def close(self) -> None:
        """Stop reading, and release the memory."""
        self._records.close()

    def _check(self, heads: RecordHeads) -> None:
        if not heads.offset_deltas:
            return
        oldest_delta, newest_delta, row = heads.summary()
        if row >= 0:
            index = heads.first_index + row
            raise MalformedBytes(f"records[{index}]", f"its offset delta is {heads.offset_deltas[row]}, not {index}")
        oldest_ms, newest_ms = self._base_timestamp_ms + oldest_delta, self._base_timestamp_ms + newest_delta
        self.max_timestamp_ms = max(self.max_timestamp_ms, newest_ms)
        is_without_key = self._is_compacted and 1 in heads.without_key
        if is_without_key or newest_ms > self._newest_ms or oldest_ms < self._oldest_ms:
            self._find_errors(heads)

    def _find_errors(self, heads: RecordHeads) -> None:
        rows = zip(heads.timestamp_deltas, heads.without_key, strict=True)
        for index, (delta, is_without_key) in enumerate(rows, heads.first_index):
            timestamp_ms = self._base_timestamp_ms + delta
            if is_without_key and self._is_compacted:
                self._add(index, lambda: "has no key, and the topic's cleanup.policy has compact")
            elif timestamp_ms != NO_TIMESTAMP and not self._oldest_ms <= timestamp_ms <= self._newest_ms:
                self._has_timestamp_error = True
                self._add(index, lambda: self._timestamp_message(timestamp_ms))  # noqa: B023 - it is called at once

    def _add(self, index: int, message: Callable[[], str]) -> None:
        self._error_count += 1
        if len(self._errors) < RECORD_ERRORS_MAX:
            self._errors.append(RecordError(index, message()))

    def _timestamp_message(self, timestamp_ms: int) -> str:
        ahead_ms = timestamp_ms - self._now_ms
        side, key = ("ahead of", "after") if ahead_ms > 0 else ("behind", "before")
        limit_ms = self._newest_ms - self._now_ms if ahead_ms > 0 else self._now_ms - self._oldest_ms
        return (
            f"has the timestamp {timestamp_ms}, {abs(ahead_ms)} ms {side} this broker's clock, more than"
            f" message.timestamp.{key}.max.ms {limit_ms}"
        )

    def _refuse(self) -> None:
        first = self._errors[0]
        code = ErrorCode.INVALID_TIMESTAMP if self._has_timestamp_error else ErrorCode.INVALID_RECORD
        raise RecordsRefused(
            code,
            f"{self._error_count} of the batch's records are refused; record {first.batch_index}"
            f" of the batch {first.message}",
            tuple(self._errors),
        )
