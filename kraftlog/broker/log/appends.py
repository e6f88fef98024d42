"""What a client may append: one batch in each request, whose header is checked, and never its records.

Kafka opens every record of a produce request. Here a batch's count of records, offsets and timestamps are those of its
header: a client that lies there, under its own checksum, lies to its readers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.broker.log.config import PartitionLogConfig
from kraftlog.broker.log.formats.batch_header import (
    BATCH_BYTES_MIN,
    BatchHeader,
    has_right_crc,
    read_header,
    read_headers,
)
from kraftlog.broker.log.producer_states import Origin
from kraftlog.broker.log.segment import BatchPlace
from kraftlog.kafka.errors import MalformedBytes, UnknownFormat
from kraftlog.kafka.notation import Buffer
from kraftlog.kafka.record_batch import Compression
from kraftlog.kafka.records import RECORD_BYTES_MIN

_MAGIC_AT: Final = 16


class Appended(NamedTuple):
    """The result of an append."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    """The time that the batch was given; -1 if it keeps its own."""
    log_start_offset: int
    is_duplicate: bool = False
    """It is in the log already, at these offsets."""

    @property
    def end_offset(self) -> int:
        """What must be flushed, and below the high watermark, before the append is acknowledged."""
        return self.last_offset + 1


def check_produced(data: Buffer, config: PartitionLogConfig, origin: Origin, now_ms: int) -> BatchHeader:
    """The header of the one batch in the records of a request. Raises ApiError, then nothing is to be written.

    CORRUPT_MESSAGE for bytes that are no batch or have another checksum, UNSUPPORTED_FOR_MESSAGE_FORMAT for another
    magic than 2, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP, and INVALID_RECORD for a header that
    contradicts itself or is not for a client to write.
    """
    size = len(data)
    if size < BATCH_BYTES_MIN:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{size} bytes of records are fewer than a batch has")
    if data[_MAGIC_AT] in (0, 1):
        raise ApiError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"the records have magic {data[_MAGIC_AT]}, of Kafka before 0.11; only batches of magic 2 are taken: use"
            " a newer client",
        )
    try:
        header = read_header(data)
    except UnknownFormat as error:
        raise ApiError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, str(error)) from None
    except MalformedBytes as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    if header.size_bytes > size:
        raise ApiError(
            ErrorCode.CORRUPT_MESSAGE, f"a batch of {header.size_bytes} bytes is not in the {size} that came"
        )
    if header.size_bytes < size:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"{size - header.size_bytes} bytes follow the batch; a request has one for a partition",
        )
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
    if not has_right_crc(header, data):
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"the batch's CRC {header.crc:#010x} is not that of its bytes")
    _check_header(header, origin)
    _check_timestamps(header, config, now_ms)
    return header


def _check_header(header: BatchHeader, origin: Origin) -> None:
    reason = ""
    if header.base_offset != 0:
        reason = f"its base offset is {header.base_offset}; a client writes 0"
    elif header.record_count != header.last_offset_delta + 1:
        reason = f"it has {header.record_count} records, and its last offset delta is {header.last_offset_delta}"
    elif header.compression > Compression.ZSTD:
        reason = f"its compression {header.compression} is none that Kafka has"
    elif not header.compression and header.record_count > (header.size_bytes - BATCH_BYTES_MIN) // RECORD_BYTES_MIN:
        reason = f"{header.record_count} records are not in its {header.size_bytes} bytes"
    elif header.is_control and origin is Origin.CLIENT:
        reason = "it is a control batch, which clients do not write"
    elif header.producer_id >= 0 and origin is Origin.CLIENT and not header.is_control and header.base_sequence < 0:
        reason = f"it has the producer id {header.producer_id} and no sequence"
    elif header.producer_id < 0 and header.is_transactional:
        reason = "it is of a transaction and has no producer id"
    if reason:
        raise ApiError(ErrorCode.INVALID_RECORD, f"the batch is not valid: {reason}")


def _check_timestamps(header: BatchHeader, config: PartitionLogConfig, now_ms: int) -> None:
    """The first record's timestamp stands for the oldest one."""
    if config.has_log_append_time or header.is_control:
        return
    ahead_ms = header.max_timestamp_ms - now_ms
    if header.max_timestamp_ms >= 0 and ahead_ms > config.timestamp_after_max_ms:
        raise ApiError(
            ErrorCode.INVALID_TIMESTAMP,
            f"a timestamp is {ahead_ms} ms ahead of this broker's clock, more than message.timestamp.after.max.ms"
            f" {config.timestamp_after_max_ms}",
        )
    behind_ms = now_ms - header.base_timestamp_ms
    if header.base_timestamp_ms >= 0 and behind_ms > config.timestamp_before_max_ms:
        raise ApiError(
            ErrorCode.INVALID_TIMESTAMP,
            f"a timestamp is {behind_ms} ms behind this broker's clock, more than message.timestamp.before.max.ms"
            f" {config.timestamp_before_max_ms}",
        )


def check_replicated(data: Buffer, end_offset: int) -> list[BatchPlace]:
    """The batches that a leader has sent, for a log that ends at `end_offset`. Raises ApiError(CORRUPT_MESSAGE).

    The last one may be cut off by the size of the answer; it is not among them.
    """
    found: list[BatchPlace] = []
    try:
        for position, header in read_headers(data):
            if header.base_offset < end_offset:
                raise MalformedBytes(
                    f"batch at offset {header.base_offset}", f"it must not begin before offset {end_offset}"
                )
            if not has_right_crc(header, data, position):
                raise MalformedBytes(f"batch at offset {header.base_offset}", "its CRC is not that of its bytes")
            end_offset = header.last_offset + 1
            found.append(BatchPlace(position, header))
    except MalformedBytes as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    return found


def fitting(places: Sequence[BatchPlace], start: int, segment_bytes: int) -> int:
    """The end of the batches from `start` on that go into one segment: all, or as many as a segment may have."""
    end, byte_count = start, 0
    while end < len(places):
        byte_count += places[end].header.size_bytes
        if end > start and byte_count > segment_bytes:
            break
        end += 1
    return end
