"""Checks of the header of a batch before it is appended: of the one batch in a Produce, or of those that a leader sent.

The records of a produced batch are checked in `kraftlog.storage.produced_records`, also before the append, as in Kafka
(DB-84). A batch keeps the codec of its producer (DB-85).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.notation import Buffer
from kraftlog.kafka.record_batch import LENGTH_END, MAGIC, Compression
from kraftlog.kafka.records import RECORD_BYTES_MIN
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.formats.batch_header import (
    BATCH_BYTES_MIN,
    BatchHeader,
    has_right_crc,
    read_headers,
    unpack_header,
)
from kraftlog.storage.producer_states import Origin, ProducerBatch
from kraftlog.storage.segment import BatchPlace

ZSTD: Final = int(Compression.ZSTD)
"""The last codec that Kafka has; an enumeration's attribute costs a call."""

_MAGIC_AT: Final = 16
_OFFSET_MAX: Final = 2**63 - 1


class Appended(NamedTuple):
    """The result of an append."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    """The timestamp that the broker gave the batch; -1 if the batch keeps its producer's timestamps."""
    log_start_offset: int
    is_duplicate: bool = False
    """Whether the batch was in the log already, at these offsets."""

    @property
    def end_offset(self) -> int:
        """The offset after the append's last record."""
        return self.last_offset + 1


def check_produced(
    data: Buffer, config: PartitionLogConfig, origin: Origin,
    duplicate_of: Callable[[BatchHeader], ProducerBatch | None],
) -> tuple[BatchHeader, ProducerBatch | None]:  # fmt: skip
    """Return the header of the one batch in a request (DB-84), and the batch in the log that it duplicates, or None.

    A duplicate is not checked against the present size limits and timestamp type: it passed them when it was stored.
    A producer that got an error for it would send its records again under other sequences, or report to its user that
    they are not in the log (DB-71).

    Raises ApiError before anything is written: INVALID_RECORD for no whole batch, several batches, the formats before
    magic 2, or a header that contradicts itself or that a client may not write; CORRUPT_MESSAGE for an impossible
    length or magic, or a wrong checksum; MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE or INVALID_TIMESTAMP. The records
    are not read here.
    """
    size = len(data)
    if size > _MAGIC_AT and data[_MAGIC_AT] in (0, 1):
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"the records have magic {data[_MAGIC_AT]}, of Kafka before 0.11; only batches of magic 2 are accepted: use"
            " a newer client",
        )
    if size < BATCH_BYTES_MIN:
        raise ApiError(ErrorCode.INVALID_RECORD, f"the records have {size} bytes, fewer than any batch has")
    header = unpack_header(data)
    if header.magic != MAGIC:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"the records' magic is {header.magic}, which no format has")
    if LENGTH_END + header.batch_length != size:
        _check_size(header, size)
    known = duplicate_of(header) if header.producer_id >= 0 and not header.is_control else None
    if known is None:
        _check_limits(size, config)
    if not has_right_crc(header, data):
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"the batch's CRC {header.crc:#010x} does not match its bytes")
    _check_header(header, size, origin)
    if header.has_append_time and known is None:
        raise ApiError(
            ErrorCode.INVALID_TIMESTAMP,
            "the batch has the timestamp type LogAppendTime, which only a broker may set",
        )
    return header, known


def _check_limits(size: int, config: PartitionLogConfig) -> None:
    if size > config.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {size} bytes, more than the topic's max.message.bytes of {config.max_message_bytes}",
        )
    if size > config.segment_bytes:
        raise ApiError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batch has {size} bytes, more than the topic's segment.bytes of {config.segment_bytes}",
        )


def _check_size(header: BatchHeader, size: int) -> None:
    """Raise the ApiError for a request whose size is not that of its one batch."""
    if header.size_bytes < BATCH_BYTES_MIN:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE, f"the batch's length is {header.batch_length}, less than a header has"
        )
    if header.size_bytes > size:
        raise ApiError(
            ErrorCode.INVALID_RECORD, f"the batch has {header.size_bytes} bytes, and only {size} of them were sent"
        )
    raise ApiError(
        ErrorCode.INVALID_RECORD,
        f"{size - header.size_bytes} bytes follow the batch; a request has one batch for a partition",
    )


def _check_header(header: BatchHeader, size: int, origin: Origin) -> None:
    reason = ""
    count, compression = header.record_count, header.compression
    is_of_client = origin is Origin.CLIENT
    if header.base_offset != 0:
        reason = f"its base offset is {header.base_offset}; a client writes 0"
    elif header.last_offset_delta < 0:
        reason = f"its last offset delta is {header.last_offset_delta}, so it has no records"
    elif count != header.last_offset_delta + 1:
        reason = f"it has {count} records, and its last offset delta is {header.last_offset_delta}"
    elif compression > ZSTD:
        reason = f"its compression {compression} is not one of Kafka's"
    elif not compression and count > (size - BATCH_BYTES_MIN) // RECORD_BYTES_MIN:
        reason = f"{count} records do not fit in its {size} bytes"
    elif is_of_client and header.is_control:
        reason = "it is a control batch, which only a broker may write"
    elif header.producer_id >= 0 and is_of_client and header.base_sequence < 0:
        reason = f"it has the producer id {header.producer_id} and no sequence"
    elif header.producer_id < 0 and header.is_transactional:
        reason = "it is transactional and has no producer id"
    if reason:
        raise ApiError(ErrorCode.INVALID_RECORD, f"the batch is not valid: {reason}")


def check_replicated(data: Buffer, end_offset: int, epochs: range) -> list[BatchPlace]:
    """Return the places of the batches that a leader has sent, for a log that ends at `end_offset`.

    `epochs` are the leader epochs that the batches may have: from the log's latest epoch to the leader's. They ascend
    from batch to batch. A last batch that the response's size limit has cut off is left out. Raises
    ApiError(CORRUPT_MESSAGE).
    """
    found: list[BatchPlace] = []
    try:
        for position, header in read_headers(data):
            if not end_offset <= header.base_offset <= header.last_offset < _OFFSET_MAX:
                raise MalformedBytes(
                    f"batch at offset {header.base_offset}",
                    f"it has offsets {header.base_offset} to {header.last_offset}; they must ascend from"
                    f" {end_offset} or above",
                )
            if header.leader_epoch not in epochs:
                raise MalformedBytes(
                    f"batch at offset {header.base_offset}",
                    f"its leader epoch is {header.leader_epoch}; it must be from {epochs.start} to {epochs.stop - 1}",
                )
            epochs = range(header.leader_epoch, epochs.stop)
            if not has_right_crc(header, data, position):
                raise MalformedBytes(f"batch at offset {header.base_offset}", "its CRC does not match its bytes")
            end_offset = header.last_offset + 1
            found.append(BatchPlace(position, header))
    except MalformedBytes as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    return found


def fitting(places: Sequence[BatchPlace], start: int, segment_bytes: int) -> int:
    """Return the end index of the batches from `start` that fit into one segment; at least one batch."""
    end, byte_count = start, 0
    while end < len(places):
        byte_count += places[end].header.size_bytes
        if end > start and byte_count > segment_bytes:
            break
        end += 1
    return end
