"""The contents of the partitions: the batches that are produced, and the records that readers must find.

They are the same in every run: sizes, offsets and timestamps depend only on the partition and the position in it, so
that a damage can be repeated exactly. Segments roll by `segment.ms`, since the smallest `segment.bytes` is a megabyte.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from kraftlog.chaos.brokers.ledger import At
from kraftlog.kafka.control_records import EndTxnMarker
from kraftlog.kafka.record_batch import CONTROL, HEADER, HEADER_BYTES, LENGTH_END, RecordBatch, crc32c_of, encode_batch
from kraftlog.kafka.record_values import ControlType, encode_control_record
from kraftlog.kafka.records import Record, read_records

PLAIN: Final = ("one", "three")
TRANSACTIONS: Final = ("one-transactions", "three-transactions")
FIRST_BROKER: Final = 101
BROKER_IDS: Final = (101, 102, 103)
PARTITIONS: Final = (
    At("one", 0),
    At("one", 1),
    At("three", 0),
    At("three", 1),
    *(At(name, 0) for name in TRANSACTIONS),
)
TOPIC_CONFIGS: Final = {
    "segment.ms": "60000",
    "index.interval.bytes": "512",
    "retention.ms": "-1",
    "min.insync.replicas": "1",
}
FIRST_TIMESTAMP_MS: Final = 1_700_000_000_000
BATCH_MS: Final = 10_000
"""The time from one batch to the next: a segment has seven batches."""
RECORD_MS: Final = 1_000
PEAK_MS: Final = 25_000
"""By how much the largest timestamp is above the timestamp that its position would have."""
_TRANSACTIONAL: Final = 0x10
_GZIP: Final = 1
_WORDS: Final = b"offset epoch voter observer segment replica leader follower snapshot watermark ".split()
_CRC_AT: Final = 17
_CHECKED_AT: Final = 21
_ATTRIBUTES_AT: Final = 21
_TXN_PRODUCER: Final = 900_000
"""Above the producer ids that the controller allocates in a short run."""


class Entry(NamedTuple):
    """A record as readers get it."""

    offset: int
    timestamp_ms: int
    value: bytes


@dataclass(slots=True)
class Contents:
    """The expected contents of a partition."""

    at: At
    records: list[Entry] = field(default_factory=list)
    """All records by offset; those below the log start have been deleted."""
    log_start_offset: int = 0
    log_end_offset: int = 0
    last_stable_offset: int | None = None
    """Where a transaction that never ended begins; None if there is none."""
    aborted: set[int] = field(default_factory=set)
    """Offsets of records in transactions that were aborted."""
    unclear: set[int] = field(default_factory=set)
    """Offsets of records in compressed batches: a lookup by time may answer another record of the batch."""
    batch_count: int = 0
    producer_id: int = -1
    next_sequence: int = 0
    last_idempotent: tuple[int, bytes] | None = None
    """The offset and the bytes of the last batch of the producer."""

    def copy(self) -> Contents:
        """Return an independent copy."""
        return Contents(
            self.at, list(self.records), self.log_start_offset, self.log_end_offset, self.last_stable_offset,
            set(self.aborted), set(self.unclear), self.batch_count, self.producer_id, self.next_sequence,
            self.last_idempotent,
        )  # fmt: skip

    @property
    def readable(self) -> list[Entry]:
        """The records that a reader of all records finds."""
        return [entry for entry in self.records if entry.offset >= self.log_start_offset]

    @property
    def committed(self) -> list[Entry]:
        """The records that a reader of committed records finds."""
        end = self.log_end_offset if self.last_stable_offset is None else self.last_stable_offset
        return [entry for entry in self.readable if entry.offset < end and entry.offset not in self.aborted]

    @property
    def largest(self) -> Entry:
        """The first record with the largest timestamp."""
        return max(self.readable, key=lambda entry: (entry.timestamp_ms, -entry.offset))

    def lookups(self) -> dict[int, tuple[int, int]]:
        """Return ListOffsets' answers: by timestamp, the timestamp and offset of the first record that is not earlier.

        The timestamps are those of records that are later than all records before them.
        """
        found, latest_ms = {}, -1
        for entry in self.readable:
            if entry.timestamp_ms > latest_ms:
                latest_ms = entry.timestamp_ms
                if entry.offset not in self.unclear:
                    found[latest_ms] = (latest_ms, entry.offset)
        return found

    def stored(self, base_offset: int, batch: bytes) -> None:
        """Enter a batch that is in the log at this base offset."""
        header = HEADER.unpack_from(batch)
        records = records_of(RecordBatch._make((*header, memoryview(batch))))
        self.batch_count += 1
        self.log_end_offset = base_offset + header[6] + 1
        self.records += [Entry(base_offset + of.offset - header[0], of.timestamp_ms, of.value or b"") for of in records]
        if header[5] & 7:
            self.unclear.update(range(base_offset, self.log_end_offset))
        if self.producer_id >= 0 and header[9] == self.producer_id:
            self.next_sequence += len(records)
            self.last_idempotent = (base_offset, batch)


def replicas_of(topic: str) -> tuple[int, ...]:
    """Return the brokers of a topic's partitions."""
    return BROKER_IDS if topic.startswith("three") else BROKER_IDS[:1]


def batches(contents: Contents, count: int, *, has_peak: bool = False) -> Iterator[bytes]:
    """Yield the next batches of a partition. Every third has the idempotent producer, every fifth is compressed."""
    sequence = contents.next_sequence
    for number in range(contents.batch_count, contents.batch_count + count):
        random = Random(f"{contents.at} {number}")
        at_ms = FIRST_TIMESTAMP_MS + number * BATCH_MS
        records = [
            Record(index, at_ms + index * RECORD_MS, f"{number}.{index}".encode(), _value(random))
            for index in range(random.randint(3, 6))
        ]
        if has_peak and number == contents.batch_count + count - 3:
            records[1] = records[1]._replace(timestamp_ms=records[1].timestamp_ms + PEAK_MS)
        if number % 3 == 0:
            yield encode_batch(
                records, base_offset=0, partition_leader_epoch=-1, producer_id=contents.producer_id, producer_epoch=0,
                base_sequence=sequence,
            )  # fmt: skip
            sequence += len(records)
        else:
            batch = encode_batch(records, base_offset=0, partition_leader_epoch=-1)
            yield compressed(batch) if number % 5 == 1 and not has_peak else batch


def transactions(contents: Contents) -> list[list[bytes]]:
    """Return the first segments of a partition with transactions: committed, aborted, and an open one at the end."""
    segments = []
    second = (False, True, False) if contents.at.topic.startswith("one") else (True, False, False, True)
    outcomes: tuple[tuple[bool | None, ...], ...] = ((True, False, True), second, (False, False, None))
    for commits in outcomes:
        segment: list[bytes] = []
        for commit in commits:
            producer = _TXN_PRODUCER + contents.batch_count
            first = contents.log_end_offset
            segment += [_transactional(contents, producer, number) for number in range(2)]
            if commit is None:
                contents.last_stable_offset = first
            else:
                if not commit:
                    contents.aborted.update(range(first, contents.log_end_offset))
                segment.append(_marker(contents, producer, is_commit=commit))
        segments.append(segment)
    return segments


def _transactional(contents: Contents, producer: int, number: int) -> bytes:
    random = Random(f"{contents.at} {contents.batch_count}")
    base, at_ms = contents.log_end_offset, FIRST_TIMESTAMP_MS + contents.batch_count * BATCH_MS
    records = [
        Record(base + index, at_ms + index * RECORD_MS, str(base + index).encode(), _value(random))
        for index in range(4)
    ]
    batch = encode_batch(
        records, base_offset=base, partition_leader_epoch=0, attributes=_TRANSACTIONAL, producer_id=producer,
        producer_epoch=0, base_sequence=4 * number,
    )  # fmt: skip
    contents.stored(base, batch)
    return batch


def _marker(contents: Contents, producer: int, *, is_commit: bool) -> bytes:
    base, at_ms = contents.log_end_offset, FIRST_TIMESTAMP_MS + contents.batch_count * BATCH_MS
    kind = ControlType.COMMIT if is_commit else ControlType.ABORT
    key, value = encode_control_record(kind, EndTxnMarker(coordinator_epoch=0), 0)
    batch = encode_batch(
        [Record(base, at_ms, key, value)], base_offset=base, partition_leader_epoch=0,
        attributes=_TRANSACTIONAL | CONTROL, producer_id=producer, producer_epoch=0,
    )  # fmt: skip
    contents.batch_count += 1
    contents.log_end_offset = base + 1
    return batch


def _value(random: Random) -> bytes:
    return b" ".join(random.choices(_WORDS, k=random.randint(8, 20)))


def compressed(batch: bytes) -> bytes:
    """Return the same batch compressed with gzip; deterministic."""
    packer = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    body = packer.compress(batch[HEADER_BYTES:]) + packer.flush()
    header = bytearray(batch[:HEADER_BYTES])
    struct.pack_into(">i", header, 8, HEADER_BYTES - LENGTH_END + len(body))
    struct.pack_into(">h", header, _ATTRIBUTES_AT, struct.unpack_from(">h", header, _ATTRIBUTES_AT)[0] | _GZIP)
    struct.pack_into(">I", header, _CRC_AT, crc32c_of(bytes(header[_CHECKED_AT:]) + body))
    return bytes(header) + body


def records_of(batch: RecordBatch) -> tuple[Record, ...]:
    """Return the records, also if compressed with gzip. Raises MalformedBytes, UnknownFormat, zlib.error."""
    if not batch.compression:
        return batch.records()
    body = zlib.decompress(bytes(batch.data[HEADER_BYTES:]), zlib.MAX_WBITS | 16)
    return read_records(
        body, 0, batch.record_count, batch.base_offset, batch.last_offset_delta, batch.base_timestamp_ms, None
    )


def entries_of(batch: RecordBatch) -> Iterable[Entry]:
    """Yield the records of a batch as a reader gets them."""
    return (Entry(of.offset, of.timestamp_ms, of.value or b"") for of in records_of(batch))
