"""Batches that no producer sends by right: under a CRC that is right, with records that are not."""

from __future__ import annotations

import gzip
import struct
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import lz4.frame
from aiokafka import codec as aiokafka_codec
from backports import zstd

from kraftbase.errors import ErrorCode
from kraftlog.kafka.record_batch import HEADER_BYTES, Compression, encode_batch
from kraftlog.kafka.records import Record
from tests.kraftlog.kafka.test_record_scan import record
from tests.kraftlog.storage.builders import with_field

PLAIN, COMPACTED = "plain", "compacted"

CODECS: dict[Compression, Callable[[bytes], bytes]] = {
    Compression.NONE: bytes,
    Compression.GZIP: gzip.compress,
    Compression.SNAPPY: aiokafka_codec.snappy_encode,
    Compression.LZ4: lambda data: bytes(lz4.frame.compress(data, block_linked=False)),
    Compression.ZSTD: zstd.compress,
}


def with_body(body: bytes, count: int, codec: Compression = Compression.NONE, base_ms: int | None = None) -> bytes:
    """A batch whose header has `count` records, and these bytes in the place of its records."""
    now_ms = int(time.time() * 1_000) if base_ms is None else base_ms
    header = encode_batch([Record(0, now_ms, None, None)], base_offset=0, partition_leader_epoch=-1)[:HEADER_BYTES]
    changed = bytearray(header + body)
    struct.pack_into(">i", changed, 8, len(changed) - 12)
    struct.pack_into(">h", changed, 21, int(codec))
    struct.pack_into(">i", changed, 23, count - 1)
    return with_field(bytes(changed), 57, ">i", count)


def compressed(
    records: Sequence[bytes], codec: Compression, count: int | None = None, base_ms: int | None = None
) -> bytes:
    """A batch with these records, compressed."""
    return with_body(CODECS[codec](b"".join(records)), len(records) if count is None else count, codec, base_ms)


class Malformed(NamedTuple):
    """A batch, and what it is answered."""

    data: bytes
    code: ErrorCode
    topic: str = PLAIN
    record_errors: tuple[int, ...] = ()
    stock: ErrorCode | None = None
    """What a stock broker answers, if that is another code: docs/rules/DB.md, DB-84, has the reasons."""


def rec(offset: int, *, timestamp: int = 0, key: bytes | None = None, headers: int = 0) -> bytes:
    """A record that can be read."""
    return record(b"\0", timestamp, offset, *((-1,) if key is None else (len(key), key)), 1, b"v", headers)


BAD, GOOD = ErrorCode.INVALID_RECORD, ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR
LATE = ErrorCode.INVALID_TIMESTAMP
DAY_MS = 24 * 3_600_000


def malformed_batches() -> dict[str, Malformed]:
    """By name; in none of them is a producer id."""
    cases: dict[str, Malformed] = {}
    for codec in Compression:
        name = codec.name.lower()
        cases |= {
            f"{name}: nothing wrong": Malformed(compressed([rec(0), rec(1)], codec), GOOD),
            f"{name}: count of headers -1": Malformed(compressed([rec(0, headers=-1)], codec), BAD),
            f"{name}: a record longer than its batch": Malformed(
                compressed([record(b"\0", 0, 0, -1, 1, b"v", 0, length=60)], codec), BAD, stock=GOOD if codec else None
            ),
            f"{name}: a key longer than its record": Malformed(
                compressed([record(b"\0", 0, 0, 9, b"k", 1, b"v", 0)], codec), BAD
            ),
            f"{name}: a record shorter than its length": Malformed(
                compressed([record(b"\0", 0, 0, -1, 1, b"v", 0, b"xx")], codec), BAD
            ),
            f"{name}: fewer records than the count": Malformed(compressed([rec(0)], codec, 2), BAD),
            f"{name}: more records than the count": Malformed(compressed([rec(0), rec(1), rec(2)], codec, 2), BAD),
            f"{name}: offsets that are equal": Malformed(
                compressed([rec(0), rec(0), rec(0)], codec), BAD, stock=UNKNOWN if codec else GOOD
            ),
            f"{name}: an offset below 0": Malformed(
                compressed([rec(-1)], codec), BAD, stock=UNKNOWN if codec else GOOD
            ),
            f"{name}: no key for a compacted topic": Malformed(
                compressed([rec(0, key=b"k"), rec(1), rec(2, key=b"k"), rec(3)], codec), BAD, COMPACTED, (1, 3)
            ),
            f"{name}: keys for a compacted topic": Malformed(compressed([rec(0, key=b"k")], codec), GOOD, COMPACTED),
            f"{name}: timestamps ahead": Malformed(
                compressed([rec(0), rec(1, timestamp=DAY_MS), rec(2)], codec), LATE, PLAIN, (1,)
            ),
            f"{name}: a timestamp ahead and a key too few": Malformed(
                compressed([rec(0), rec(1, timestamp=DAY_MS, key=b"k")], codec), LATE, COMPACTED, (0, 1)
            ),
            f"{name}: a name of a header that is not UTF-8": Malformed(
                compressed([record(b"\0", 0, 0, -1, 1, b"v", 1, 2, b"\xff\xfe", -1)], codec), GOOD
            ),
            f"{name}: nothing": Malformed(compressed([], codec, 1), BAD),
            f"{name}: garbage": Malformed(
                with_body(b"\x07garbage" * 3, 1, codec), BAD, stock=UNKNOWN if codec else None
            ),
        }
        if codec:
            cases[f"{name}: cut off"] = Malformed(
                with_body(CODECS[codec](b"".join(map(rec, range(50))))[:-3], 50, codec), BAD, stock=UNKNOWN
            )
            cases[f"{name}: not compressed"] = Malformed(with_body(rec(0), 1, codec), BAD, stock=UNKNOWN)
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 28})
    far = compressor.compress(rec(0)) + compressor.flush()
    cases["zstd: a window of 256 MiB"] = Malformed(with_body(far, 1, Compression.ZSTD), BAD, stock=UNKNOWN)
    bomb = record(b"\0", 0, 0, -1, 1_100_000_000) + bytes(1_000)
    cases["zstd: a record of 1.1 GB that is not there"] = Malformed(compressed([bomb], Compression.ZSTD), BAD)
    return cases
