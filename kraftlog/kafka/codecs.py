"""Inflates the records of a batch, piece by piece: gzip, snappy, lz4 and zstd, each as a stock Kafka reads it.

- gzip: one member or several; bytes behind the last one that begin no member are ignored.
- snappy: the framing of xerial's library, which Java's clients write, or one raw block, which librdkafka writes.
- lz4: one frame with independent blocks; bytes behind it are ignored.
- zstd: one frame or several, with windows of at most 128 MiB.

Nothing here holds more than one piece of what is inflated, the codec's window, and of snappy one block, so a few bytes
that a client sends take little memory however much they inflate to.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Generator, Iterator
from typing import Final, Protocol

import cramjam
from backports import zstd
from lz4.frame import LZ4FrameDecompressor

from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.notation import Buffer
from kraftlog.kafka.record_batch import Compression

PIECE_BYTES: Final = 64 * 1024
"""No piece is larger."""
INPUT_BYTES: Final = 32 * 1024
"""How much of what is compressed a codec gets at a time, since some of them copy what they have not used yet."""

ZSTD_WINDOW_LOG_MAX: Final = 27
"""A frame with a larger window than 2^27 bytes is refused. Kafka's own library has the same limit."""

_GZIP_WINDOW_BITS: Final = 31
_GZIP_MAGIC: Final = b"\x1f\x8b\x08"

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_BLOCK_LENGTH: Final = struct.Struct(">i")
_SNAPPY_EXPANSION_MAX: Final = 22
"""Three bytes copy 64, and no element of a block does more."""

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_FLAGS_AT: Final = 4
_LZ4_FLAGS_READ: Final = 0b1110_0011
_LZ4_FLAGS_TAKEN: Final = 0b0110_0000
"""Version 1, independent blocks, no dictionary, and nothing reserved."""


class InflatedTooLarge(MalformedBytes):
    """The records inflate to more bytes than are allowed."""


def inflate(codec: Compression, data: Buffer, bytes_max: int) -> Iterator[bytes]:
    """The pieces of what is compressed in `data`, none of them empty or larger than `PIECE_BYTES`.

    Raises MalformedBytes where the bytes are not what the codec writes, or end too early, and InflatedTooLarge before
    it gives more than `bytes_max`.
    """
    left = bytes_max
    try:
        for piece in _INFLATE[codec](bytes(data)) if codec else split(data):
            left -= len(piece)
            if left < 0:
                raise InflatedTooLarge(_name(codec), f"they inflate to more than {bytes_max} bytes")
            yield piece
    except (
        EOFError,
        MemoryError,
        RuntimeError,
        ValueError,
        zlib.error,
        zstd.ZstdError,
        cramjam.DecompressionError,
    ) as error:
        raise MalformedBytes(_name(codec), f"they cannot be inflated: {error}") from None


def split(data: Buffer) -> Iterator[bytes]:
    """Bytes that are not compressed in pieces of `PIECE_BYTES`."""
    for at in range(0, len(data), PIECE_BYTES):
        yield bytes(data[at : at + PIECE_BYTES])


class _Decompressor(Protocol):
    """One member or frame, as in Python's `compression` modules."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes | None: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Gzip:
    """A member of gzip. zlib hands back what it has not used."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        self._is_full = False

    @property
    def eof(self) -> bool:
        return self._member.eof

    @property
    def needs_input(self) -> bool:
        return not self._is_full and not self._member.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._member.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        piece = self._member.decompress(self._member.unconsumed_tail + data, max_length)
        self._is_full = len(piece) == max_length  # the member may have more of it, with no byte of the input left
        return piece


def _frame(decompressor: _Decompressor, data: bytes, at: int) -> Generator[bytes, None, int]:
    """The pieces of one frame; returns where it ends. Raises EOFError if the bytes end within it."""
    while not decompressor.eof:
        taken = b""
        if decompressor.needs_input:
            taken = data[at : at + INPUT_BYTES]
            at += len(taken)
            if not taken:
                raise EOFError("the bytes end too early")
        piece = decompressor.decompress(taken, PIECE_BYTES)
        if piece:
            yield piece
    return at - len(decompressor.unused_data or b"")


def _inflate_gzip(data: bytes) -> Iterator[bytes]:
    at = yield from _frame(_Gzip(), data, 0)
    while data.startswith(_GZIP_MAGIC, at):
        at = yield from _frame(_Gzip(), data, at)


def _inflate_zstd(data: bytes) -> Iterator[bytes]:
    options = {int(zstd.DecompressionParameter.window_log_max): ZSTD_WINDOW_LOG_MAX}
    at = 0
    while at < len(data):
        at = yield from _frame(zstd.ZstdDecompressor(options=options), data, at)


def _inflate_lz4(data: bytes) -> Iterator[bytes]:
    if not data.startswith(_LZ4_MAGIC) or len(data) <= _LZ4_FLAGS_AT:
        raise ValueError("no frame begins there")
    flags = data[_LZ4_FLAGS_AT]
    if flags & _LZ4_FLAGS_READ != _LZ4_FLAGS_TAKEN:
        raise ValueError(f"the frame's flags are {flags:#010b}; its blocks must be independent, without a dictionary")
    yield from _frame(LZ4FrameDecompressor(), data, 0)


def _inflate_snappy(data: bytes) -> Iterator[bytes]:
    if not data.startswith(_XERIAL_MAGIC) or len(data) < _XERIAL_HEADER_BYTES:
        yield from split(_snappy_block(data))
        return
    at = 0
    while at < len(data):
        if data.startswith(_XERIAL_MAGIC, at):  # also that of a second stream behind the first one
            at += _XERIAL_HEADER_BYTES
            continue
        start = at + _BLOCK_LENGTH.size
        if start > len(data):
            raise EOFError("the bytes end too early")
        (length,) = _BLOCK_LENGTH.unpack_from(data, at)
        at = start + length
        if length < 0 or at > len(data):
            raise EOFError(f"a block of {length} bytes is not in the {len(data) - start} that are left")
        yield from split(_snappy_block(data[start:at]))


def _snappy_block(data: bytes) -> bytes:
    size = cramjam.snappy.decompress_raw_len(data)
    if size > _SNAPPY_EXPANSION_MAX * len(data):
        raise ValueError(f"a block of {len(data)} bytes says that it inflates to {size}, which none does")
    return bytes(cramjam.snappy.decompress_raw(data))


_INFLATE: Final = {
    Compression.GZIP: _inflate_gzip,
    Compression.SNAPPY: _inflate_snappy,
    Compression.LZ4: _inflate_lz4,
    Compression.ZSTD: _inflate_zstd,
}


def _name(codec: Compression) -> str:
    return f"records compressed with {codec.name.lower()}"
