"""Inflating the records of batches, as Kafka's clients compress them, and as nobody should."""

from __future__ import annotations

import gzip
import random
import struct
import tracemalloc
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest
from aiokafka import codec as aiokafka_codec
from backports import zstd

from kraftlog.kafka.codecs import PIECE_BYTES, InflatedTooLarge, held_bytes, inflate
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.record_batch import Compression

ENOUGH = 1 << 30
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def xerial(data: bytes, block_bytes: int = 32 * 1024) -> bytes:
    """As Java's clients write it."""
    blocks = [
        bytes(cramjam.snappy.compress_raw(data[at : at + block_bytes])) for at in range(0, len(data), block_bytes)
    ]
    return XERIAL + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def raw_snappy(data: bytes) -> bytes:
    """As librdkafka writes it."""
    return bytes(cramjam.snappy.compress_raw(data))


def lz4_frame(data: bytes, **options: object) -> bytes:
    return bytes(lz4.frame.compress(data, **({"block_linked": False} | options)))


def zstd_with_window(data: bytes, window_log: int) -> bytes:
    """A frame that does not say how large its content is, as a client writes that compresses record by record."""
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: window_log})
    return bytes(compressor.compress(data) + compressor.flush())


ENCODERS: dict[str, tuple[Compression, Callable[[bytes], bytes]]] = {
    "gzip": (Compression.GZIP, gzip.compress),
    "gzip of aiokafka": (Compression.GZIP, aiokafka_codec.gzip_encode),
    "xerial": (Compression.SNAPPY, xerial),
    "xerial of aiokafka": (Compression.SNAPPY, aiokafka_codec.snappy_encode),
    "raw snappy": (Compression.SNAPPY, raw_snappy),
    "lz4": (Compression.LZ4, lz4_frame),
    "lz4 of aiokafka": (Compression.LZ4, aiokafka_codec.lz4_encode),
    "lz4 with checksums": (
        Compression.LZ4,
        lambda data: lz4_frame(data, block_checksum=True, content_checksum=True, block_size=7),
    ),
    "zstd": (Compression.ZSTD, zstd.compress),
    "zstd of aiokafka": (Compression.ZSTD, aiokafka_codec.zstd_encode),
}
CONTENTS = {
    "one byte": b"x",
    "a piece": bytes(PIECE_BYTES),
    "a piece and one byte": bytes(PIECE_BYTES + 1),
    "what compresses well": b"\0" * 3_000_000,
    "what does not": random.Random(1).randbytes(200_000),
    "text": bytes(random.Random(2).choices(b"abcdef", k=300_000)),
}


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("name", ENCODERS)
def test_what_clients_compress_is_inflated_in_small_pieces(name: str, content: str) -> None:
    codec, encode = ENCODERS[name]
    data = CONTENTS[content]
    pieces = list(inflate(codec, memoryview(encode(data)), len(data)))
    assert b"".join(pieces) == data
    assert all(0 < len(piece) <= PIECE_BYTES for piece in pieces)


@pytest.mark.parametrize("name", ENCODERS)
def test_no_more_is_inflated_than_is_allowed(name: str) -> None:
    codec, encode = ENCODERS[name]
    data = CONTENTS["what compresses well"]
    given = 0
    with pytest.raises(InflatedTooLarge, match="more than 1000000 bytes"):
        for piece in inflate(codec, encode(data), 1_000_000):
            given += len(piece)
    assert given <= 1_000_000


@pytest.mark.parametrize("name", ENCODERS)
def test_bytes_that_end_too_early_are_refused(name: str) -> None:
    """Of raw blocks of snappy, and of xerial's framing between two blocks, the end shows in the records only."""
    codec, encode = ENCODERS[name]
    data = CONTENTS["text"]
    whole = encode(data)
    for end in range(1, len(whole), len(whole) // 40):
        try:
            found = b"".join(inflate(codec, whole[:end], ENOUGH))
        except MalformedBytes:
            continue
        assert codec is Compression.SNAPPY
        assert data.startswith(found)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_garbage_is_refused(codec: Compression) -> None:
    chance = random.Random(3)
    for _ in range(300):
        garbage = chance.randbytes(chance.randrange(1, 200))
        with pytest.raises(MalformedBytes, match=f"compressed with {codec.name.lower()}: they cannot be inflated"):
            list(inflate(codec, garbage, ENOUGH))


@pytest.mark.parametrize(
    "garbage", [b"garbage", XERIAL + b"garb", XERIAL + struct.pack(">i", 7) + b"garbage", XERIAL + b"abc"]
)
def test_garbage_of_snappy_is_refused(garbage: bytes) -> None:
    with pytest.raises(MalformedBytes, match="compressed with snappy: they cannot be inflated"):
        list(inflate(Compression.SNAPPY, garbage, ENOUGH))


@pytest.mark.parametrize("name", ENCODERS)
def test_a_bit_that_has_changed_raises_nothing_else(name: str) -> None:
    codec, encode = ENCODERS[name]
    whole = encode(CONTENTS["text"][:3_000])
    chance = random.Random(4)
    for _ in range(300):
        changed = bytearray(whole)
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        try:
            size = sum(len(piece) for piece in inflate(codec, changed, 100_000))
        except MalformedBytes:
            continue
        assert size <= 100_000


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Compression.GZIP, gzip.compress(b"one") + gzip.compress(b"two")),
        (Compression.SNAPPY, xerial(b"one") + xerial(b"two")),
        (Compression.ZSTD, zstd.compress(b"one") + zstd.compress(b"two")),
    ],
    ids=["gzip", "snappy", "zstd"],
)
def test_what_was_joined_is_inflated_as_kafka_does(codec: Compression, data: bytes) -> None:
    assert b"".join(inflate(codec, data, ENOUGH)) == b"onetwo"


@pytest.mark.parametrize(
    ("codec", "data"),
    [(Compression.GZIP, gzip.compress(b"one")), (Compression.LZ4, lz4_frame(b"one"))],
    ids=["gzip", "lz4"],
)
def test_bytes_behind_the_end_are_ignored_as_by_kafka(codec: Compression, data: bytes) -> None:
    assert b"".join(inflate(codec, data + b"rest", ENOUGH)) == b"one"


def test_bytes_behind_a_frame_of_zstd_are_refused_as_by_kafka() -> None:
    with pytest.raises(MalformedBytes, match="zstd"):
        list(inflate(Compression.ZSTD, zstd.compress(b"one") + b"rest", ENOUGH))


def test_linked_blocks_of_lz4_are_refused_as_by_kafka() -> None:
    with pytest.raises(MalformedBytes, match="must be independent"):
        list(inflate(Compression.LZ4, lz4_frame(bytes(100_000), block_linked=True), ENOUGH))


@pytest.mark.parametrize(("window_log", "is_taken"), [(27, True), (28, False)])
def test_a_window_of_zstd_above_128_mib_is_refused(window_log: int, is_taken: bool) -> None:
    data = zstd_with_window(b"ab" * 100_000, window_log)
    if is_taken:
        assert sum(len(piece) for piece in inflate(Compression.ZSTD, data, ENOUGH)) == 200_000
    else:
        with pytest.raises(MalformedBytes, match="too much memory"):
            list(inflate(Compression.ZSTD, data, ENOUGH))


@pytest.mark.parametrize(("first", "second", "is_taken"), [(20, 23, True), (20, 24, False), (25, 25, True)])
def test_frames_behind_the_first_one_have_windows_of_8_mib_or_its_window(
    first: int, second: int, is_taken: bool
) -> None:
    data = zstd_with_window(b"one", first) + zstd_with_window(b"two", second)
    if is_taken:
        assert b"".join(inflate(Compression.ZSTD, data, ENOUGH)) == b"onetwo"
    else:
        with pytest.raises(MalformedBytes, match="too much memory"):
            list(inflate(Compression.ZSTD, data, ENOUGH))


KIB = 1024
MIB = 1024 * KIB
OTHERS = 256 * KIB
ZSTD_WITH_SIZE = b"\x28\xb5\x2f\xfd\xa0"
HELD = {
    "nothing": (Compression.NONE, bytes(MIB), PIECE_BYTES),
    "gzip": (Compression.GZIP, gzip.compress(bytes(MIB)), OTHERS),
    "xerial": (Compression.SNAPPY, xerial(bytes(MIB)), OTHERS + 32 * KIB),
    "raw snappy": (Compression.SNAPPY, raw_snappy(bytes(5 * MIB)), OTHERS + 5 * MIB),
    "snappy up to what cannot be inflated": (Compression.SNAPPY, xerial(bytes(MIB)) + b"\0\0\0\5", OTHERS + 32 * KIB),
    "no snappy": (Compression.SNAPPY, b"\xff" * 100, OTHERS),
    "lz4": (Compression.LZ4, lz4_frame(bytes(MIB), block_size=4), OTHERS + 2 * 64 * KIB),
    "lz4, large blocks": (Compression.LZ4, lz4_frame(bytes(5 * MIB), block_size=7), OTHERS + 2 * 4 * MIB),
    "no lz4": (Compression.LZ4, b"", OTHERS),
    "zstd": (Compression.ZSTD, zstd_with_window(bytes(MIB), 21), OTHERS + 8 * MIB),
    "zstd, a large window": (Compression.ZSTD, zstd_with_window(bytes(MIB), 25), OTHERS + 32 * MIB),
    "zstd, a content of 1 byte": (Compression.ZSTD, zstd.compress(b"x"), OTHERS + 8 * MIB),
    "zstd, a content of 20 MiB": (Compression.ZSTD, ZSTD_WITH_SIZE + struct.pack("<I", 20 * MIB), OTHERS + 20 * MIB),
    "zstd, a content of 200 MiB": (Compression.ZSTD, ZSTD_WITH_SIZE + struct.pack("<I", 200 * MIB), OTHERS + 128 * MIB),
    "zstd, no window there": (Compression.ZSTD, b"\x28\xb5\x2f\xfd", OTHERS + 128 * MIB),
    "no zstd": (Compression.ZSTD, b"", OTHERS + 128 * MIB),
}  # fmt: skip


@pytest.mark.parametrize("name", HELD)
def test_what_inflating_holds_is_known_before_it_begins(name: str) -> None:
    codec, data, expected = HELD[name]
    assert held_bytes(codec, memoryview(data)) == expected


def test_a_block_of_snappy_that_lies_about_its_size_takes_no_memory() -> None:
    with pytest.raises(MalformedBytes, match="which is impossible"):
        list(inflate(Compression.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"x" * 100, ENOUGH))


@pytest.mark.parametrize("name", ["gzip", "lz4", "zstd", "xerial"])
def test_a_bomb_takes_the_memory_of_a_few_pieces(name: str) -> None:
    codec, encode = ENCODERS[name]
    bomb = encode(bytes(20_000_000))
    tracemalloc.start()
    try:
        total = sum(len(piece) for piece in inflate(codec, bomb, ENOUGH))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert total == 20_000_000
    assert peak < 10 * PIECE_BYTES + 4 * len(bomb)
