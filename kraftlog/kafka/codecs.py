"""Inflates the records of a batch, piece by piece: gzip, snappy, lz4 and zstd, each as a stock Kafka reads it.

- gzip: one member or several; bytes after the last one that begin no member are ignored.
- snappy: the framing of xerial's library, which Java's clients write, or one raw block, which librdkafka writes.
- lz4: one frame with independent blocks; bytes after it are ignored.
- zstd: one frame or several, with windows of at most 128 MiB.

Inflating holds at most one inflated piece, the codec's window, and for snappy one inflated block. `held_bytes` returns
this bound. Only zstd's windows and snappy's blocks can exceed a few megabytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Final, Protocol

import cramjam
from backports import zstd
from lz4.frame import LZ4FrameDecompressor

from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.notation import Buffer
from kraftlog.kafka.record_batch import Compression

PIECE_BYTES: Final = 64 * 1024
"""The size of the largest piece."""
INPUT_BYTES: Final = 32 * 1024
"""How many compressed bytes a codec gets at a time; some codecs copy the input that they have not used yet."""
_BUFFERS_BYTES: Final = 256 * 1024
"""What any codec holds: some input, a piece, its tables, and zlib's window."""

ZSTD_WINDOW_LOG_MAX: Final = 27
"""A frame with a larger window than 2^27 bytes is refused. Kafka's own library has the same limit."""
ZSTD_LATER_WINDOW_LOG_MAX: Final = 23
"""Later frames may have windows of 2^23 bytes, or of the first one's size if larger. No client writes several."""
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_SINGLE_SEGMENT: Final = 0x20
_ZSTD_SIZE_BYTES: Final = (1, 2, 4, 8)
_ZSTD_SIZE_BASE: Final = 256
"""Added to a content size that takes two bytes (RFC 8878)."""
_ZSTD_DICTIONARY_BYTES: Final = (0, 1, 2, 4)

_GZIP_WINDOW_BITS: Final = 31
_GZIP_MAGIC: Final = b"\x1f\x8b\x08"

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES: Final = 16
_BLOCK_LENGTH: Final = struct.Struct(">i")
_SNAPPY_EXPANSION_MAX: Final = 22
"""The largest ratio of inflated to compressed bytes: an element of three bytes copies 64, and no other exceeds that."""

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_FLAGS_AT: Final = 4
_LZ4_BLOCK_BYTES: Final = (0, 0, 0, 0, 2**16, 2**18, 2**20, 2**22)
_LZ4_FLAGS_READ: Final = 0b1110_0011
_LZ4_FLAGS_TAKEN: Final = 0b0110_0000
"""Version 1, independent blocks, no dictionary, and nothing reserved."""


class InflatedTooLarge(MalformedBytes):
    """The records inflate to more bytes than are allowed."""


def inflate(codec: Compression, data: Buffer, bytes_max: int) -> Iterator[Buffer]:
    """Yield the inflated bytes of `data` in pieces, none of them empty or larger than `PIECE_BYTES`.

    Without compression the pieces are slices of `data`, and views if `data` is a view.

    Raises MalformedBytes if the bytes are not in the codec's format or end too early, and InflatedTooLarge instead of
    yielding more than `bytes_max` bytes.
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


def split(data: Buffer) -> Iterator[Buffer]:
    """Yield uncompressed bytes in pieces of `PIECE_BYTES`; the pieces of a view are views."""
    for at in range(0, len(data), PIECE_BYTES):
        yield data[at : at + PIECE_BYTES]


def held_bytes(codec: Compression, data: Buffer) -> int:
    """Return how many bytes `inflate` holds at most, apart from `data` itself."""
    match codec:
        case Compression.NONE:
            return PIECE_BYTES
        case Compression.SNAPPY:
            return _BUFFERS_BYTES + _largest_snappy_block(bytes(data))
        case Compression.LZ4:
            return _BUFFERS_BYTES + 2 * _lz4_block_bytes(data)
        case Compression.ZSTD:
            return _BUFFERS_BYTES + max(_zstd_window_bytes(data), (1 << ZSTD_LATER_WINDOW_LOG_MAX))
        case _:
            return _BUFFERS_BYTES


class _Decompressor(Protocol):
    """Inflates one member or frame; the interface of Python's `compression` modules."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes | None: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Gzip:
    """Inflates one member of gzip. zlib returns the input that it has not used."""

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
    """Yield the pieces of one frame; return the position of its end. Raises EOFError if the bytes end within it."""
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
    at, window_log_max = 0, ZSTD_WINDOW_LOG_MAX
    while at < len(data):
        options = {int(zstd.DecompressionParameter.window_log_max): window_log_max}
        at = yield from _frame(zstd.ZstdDecompressor(options=options), data, at)
        window_log_max = max((_zstd_window_bytes(data) - 1).bit_length(), ZSTD_LATER_WINDOW_LOG_MAX)


def _zstd_window_bytes(data: Buffer) -> int:
    """The window of the first frame, or the largest accepted one if that is smaller; RFC 8878, section 3.1.1.1."""
    largest = 1 << ZSTD_WINDOW_LOG_MAX
    head = bytes(data[: len(_ZSTD_MAGIC) + 14])
    if not head.startswith(_ZSTD_MAGIC) or len(head) < len(_ZSTD_MAGIC) + 2:
        return largest
    descriptor, at = head[len(_ZSTD_MAGIC)], len(_ZSTD_MAGIC) + 1
    if not descriptor & _ZSTD_SINGLE_SEGMENT:
        exponent, mantissa = divmod(head[at], 8)
        return min((1 << 10 + exponent) * (8 + mantissa) // 8, largest)
    at += _ZSTD_DICTIONARY_BYTES[descriptor & 3]
    size_bytes = _ZSTD_SIZE_BYTES[descriptor >> 6]
    size = int.from_bytes(head[at : at + size_bytes], "little")
    return min(size + (_ZSTD_SIZE_BASE if size_bytes == _ZSTD_SIZE_BYTES[1] else 0), largest)


def _inflate_lz4(data: bytes) -> Iterator[bytes]:
    if not data.startswith(_LZ4_MAGIC) or len(data) <= _LZ4_FLAGS_AT:
        raise ValueError("they do not begin with a frame")
    flags = data[_LZ4_FLAGS_AT]
    if flags & _LZ4_FLAGS_READ != _LZ4_FLAGS_TAKEN:
        raise ValueError(f"the frame's flags are {flags:#010b}; its blocks must be independent, without a dictionary")
    yield from _frame(LZ4FrameDecompressor(), data, 0)


def _lz4_block_bytes(data: Buffer) -> int:
    """The largest size of a block, according to the frame's header."""
    if len(data) <= _LZ4_FLAGS_AT + 1:
        return 0
    return _LZ4_BLOCK_BYTES[data[_LZ4_FLAGS_AT + 1] >> 4 & 7]


def _inflate_snappy(data: bytes) -> Iterator[Buffer]:
    for block in _snappy_blocks(data):
        _snappy_size(block)
        yield from split(memoryview(cramjam.snappy.decompress_raw(block)))


def _snappy_blocks(data: bytes) -> Iterator[bytes]:
    """Yield the compressed blocks. Raises EOFError if the bytes end within one."""
    if not data.startswith(_XERIAL_MAGIC) or len(data) < _XERIAL_HEADER_BYTES:
        yield data
        return
    at = 0
    while at < len(data):
        if data.startswith(_XERIAL_MAGIC, at):  # of this stream, or of another one after it
            at += _XERIAL_HEADER_BYTES
            continue
        start = at + _BLOCK_LENGTH.size
        if start > len(data):
            raise EOFError("the bytes end too early")
        (length,) = _BLOCK_LENGTH.unpack_from(data, at)
        at = start + length
        if length < 0 or at > len(data):
            raise EOFError(f"a block of {length} bytes does not fit in the {len(data) - start} that are left")
        yield data[start:at]


def _snappy_size(block: bytes) -> int:
    """Return how many bytes a block inflates to, as it declares.

    Raises ValueError if a block of its size cannot inflate to that, and cramjam's DecompressionError.
    """
    size = int(cramjam.snappy.decompress_raw_len(block))
    if size > _SNAPPY_EXPANSION_MAX * len(block):
        raise ValueError(f"a block of {len(block)} bytes declares that it inflates to {size}, which is impossible")
    return size


def _largest_snappy_block(data: bytes) -> int:
    """Return the inflated size of the largest block. The first block that cannot be inflated ends the search."""
    largest = 0
    with suppress(EOFError, ValueError, cramjam.DecompressionError):
        for block in _snappy_blocks(data):
            largest = max(largest, _snappy_size(block))
    return largest


_INFLATE: Final = {
    Compression.GZIP: _inflate_gzip,
    Compression.SNAPPY: _inflate_snappy,
    Compression.LZ4: _inflate_lz4,
    Compression.ZSTD: _inflate_zstd,
}


def _name(codec: Compression) -> str:
    return f"records compressed with {codec.name.lower()}"
