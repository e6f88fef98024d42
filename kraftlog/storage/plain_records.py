"""Validates the records of a small uncompressed batch in one pass, with a third of the work of `ProducedRecords`.

Most batches of clients without compression are small. A batch with anything unusual is left to `ProducedRecords`.
"""

from __future__ import annotations

from array import array
from typing import Final

from kraftbase.sentinels import NO_TIMESTAMP
from kraftlog.kafka import record_reader
from kraftlog.kafka.codecs import PIECE_BYTES
from kraftlog.kafka.notation import Buffer
from kraftlog.kafka.record_heads import LOOKED_BYTES_A_RECORD
from kraftlog.kafka.record_scan import ScanBudget
from kraftlog.kafka.records import RECORD_BYTES_MIN
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.formats.batch_header import BATCH_BYTES_MIN, BatchHeader
from kraftlog.storage.produced_records import timestamp_limits

PLAIN_BYTES_MAX: Final = BATCH_BYTES_MIN + PIECE_BYTES
"""Larger batches are read in portions."""
_ROWS: Final = PIECE_BYTES // RECORD_BYTES_MIN


class PlainRecords:
    """Buffers for the columns of one batch's records, reused for each batch. For one thread."""

    def __init__(self) -> None:
        self._timestamps = array("q", bytes(8 * _ROWS))
        self._offsets = array("q", bytes(8 * _ROWS))
        self._without_key = bytearray(_ROWS)

    def newest_ms(
        self, data: Buffer, header: BatchHeader, config: PartitionLogConfig, now_ms: int, budget: ScanBudget | None
    ) -> int | None:
        """Return the largest timestamp of a batch's records; -1 if none has one. The header and the CRC were checked.

        Return None if `ProducedRecords` must read the records: they are compressed or too many, the budget is spent, or
        one of them is invalid.
        """
        count, loop, size_bytes = header.record_count, record_reader.loop, len(data)
        if (
            header.compression
            or size_bytes > PLAIN_BYTES_MAX
            or not 0 < count <= _ROWS
            or not loop.is_compiled
            or (budget is not None and budget.is_spent)
        ):
            return None
        if config.is_compacted:
            self._without_key[:count] = bytes(count)
        stop, row, skipped = loop.read_heads(
            data, BATCH_BYTES_MIN, 0, count, self._timestamps, self._offsets, self._without_key
        )
        if stop < size_bytes or row < count:
            return None
        oldest_delta, newest_delta, misplaced_row = loop.summarize(self._timestamps, self._offsets, 0, count, 0)
        lowest_ms, highest_ms = timestamp_limits(header, config, now_ms)
        newest_ms = header.base_timestamp_ms + newest_delta
        if misplaced_row >= 0 or newest_ms > highest_ms or header.base_timestamp_ms + oldest_delta < lowest_ms:
            return None
        if config.is_compacted and self._without_key.find(1, 0, count) >= 0:
            return None
        if budget is not None:
            budget.spend(max(count, (size_bytes - BATCH_BYTES_MIN - skipped) // LOOKED_BYTES_A_RECORD))
        return max(NO_TIMESTAMP, newest_ms)
