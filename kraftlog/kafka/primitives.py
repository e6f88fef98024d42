"""What messages are made of: integers, varints, and tuples of integers and uuids, in Kafka's big-endian order."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct as Packing
from typing import Any, Final

from kraftlog.kafka.notation import Buffer

FORMATS: Final = {
    "int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q", "float64": "d", "bool": "?", "uuid": "16s",
}  # fmt: skip
"""The kinds of fixed size, as `struct` writes them."""

SIZES: Final = {kind: Packing(f">{form}").size for kind, form in FORMATS.items()}

VARINT_BYTES_MAX: Final = 5
VARLONG_BYTES_MAX: Final = 10

ONE_BYTE: Final = tuple(bytes((value,)) for value in range(128))
"""The varints of one byte."""


def read_varint(data: Buffer, at: int) -> tuple[int, int]:
    """Return the unsigned varint of at most 32 bits at `at`, and the position after it.

    Raises IndexError if the bytes end within it, ValueError if it is too large.
    """
    value = data[at]
    if value < 128:
        return value, at + 1
    byte = data[at + 1]
    if byte < 128:  # two bytes, as for the size of most batches
        return value & 127 | byte << 7, at + 2
    value, shift, at = value & 127 | (byte & 127) << 7, 14, at + 2
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >> 32:
                raise ValueError("a varint has more than 32 bits")
            return value, at
        shift += 7
        if shift == 7 * VARINT_BYTES_MAX:
            raise ValueError(f"a varint has more than {VARINT_BYTES_MAX} bytes")


def read_signed_varlong(data: Buffer, at: int) -> tuple[int, int]:
    """Return the zigzag varint of at most 64 bits at `at`, and the position after it. Raises as `read_varint`."""
    byte = data[at]
    at += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), at
    value, shift = byte & 127, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >> 64:
                raise ValueError("a varint has more than 64 bits")
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift == 7 * VARLONG_BYTES_MAX:
            raise ValueError(f"a varint has more than {VARLONG_BYTES_MAX} bytes")


def varint(value: int) -> bytes:
    """Return a value, which must not be negative, as an unsigned varint."""
    if value < 128:
        return ONE_BYTE[value]
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)


def signed_varlong(value: int) -> bytes:
    """Return a value as a zigzag varint. Raises ValueError if it has more than 64 bits."""
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{value} has more than 64 bits")
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


ELEMENTS_PER_STEP: Final = 64
"""A generator that reads or writes a message in slices yields after this many array elements."""

SMALL: Final = 16
"""Arrays with fewer elements use the prepared functions of `UNPACK` and `PACK`."""

UNPACK: Final = {
    form: tuple(Packing(">" + form * count).unpack_from for count in range(SMALL)) for form in FORMATS.values()
}
"""By format and count: a function from bytes and a position to a tuple."""

PACK: Final = {form: tuple(Packing(">" + form * count).pack for count in range(SMALL)) for form in FORMATS.values()}

PACK_COMPACT: Final = {
    form: tuple(Packing(">B" + form * count).pack for count in range(SMALL)) for form in FORMATS.values()
}
"""As `PACK`, after the byte that is the length of a compact array, plus 1."""


def unpack_many(form: str, count: int, data: Buffer, at: int) -> tuple[Any, ...]:
    """Return a tuple of the `count` values from `at` on. The caller has checked that `data` has all of them."""
    if form == "16s":
        return tuple([bytes(data[start : start + 16]) for start in range(at, at + 16 * count, 16)])
    return Packing(f">{count}{form}").unpack_from(data, at)


def pack_many(form: str, values: Sequence[Any]) -> bytes:
    """The reverse of `unpack_many`. Raises `struct.error` for a value that is out of range."""
    return b"".join(values) if form == "16s" else Packing(f">{len(values)}{form}").pack(*values)
