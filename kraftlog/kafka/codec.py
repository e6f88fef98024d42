"""Reads and writes every message of the tables, in every version.

    data = encode(FetchRequest(max_wait_ms=500), 17)
    request = decode(FetchRequest, 17, data)

The functions for a version are made on its first use, in some milliseconds, and kept.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, TypeVar

from kraftlog.kafka.errors import MalformedBytes, UnwritableValue
from kraftlog.kafka.generated_code import Function
from kraftlog.kafka.notation import Buffer, Message
from kraftlog.kafka.read_compiler import compile_reader
from kraftlog.kafka.write_compiler import compile_writer

M = TypeVar("M", bound=Message)

_readers: Final[dict[tuple[type[Message], int], Function]] = {}
_writers: Final[dict[tuple[type[Message], int], Function]] = {}


def decode(message: type[M], version: int, data: Buffer) -> M:
    """The value whose bytes are `data`, all of them. Fields of type records are views of `data`, nothing else is.

    Raises MalformedBytes, with the path of the field, or UnwritableValue if the message has no such version.
    """
    value, end = decode_from(message, version, data, 0)
    if end != len(data):
        raise MalformedBytes(message.__name__, f"{len(data) - end} bytes follow version {version} of it")
    return value


def decode_from(message: type[M], version: int, data: Buffer, at: int) -> tuple[M, int]:
    """The value at a position of `data`, and the position after it. Raises as `decode`."""
    function = _readers.get((message, version)) or _made(_readers, compile_reader, message, version)
    try:
        return function.call(data, at)  # type: ignore[no-any-return]
    except (IndexError, struct.error) as raised:
        path = function.path(raised.__traceback__)
        raise MalformedBytes(path, f"the {len(data)} bytes end here, in version {version}") from None
    except ValueError as raised:
        raise MalformedBytes(function.path(raised.__traceback__), str(raised)) from None


def encode(value: Message, version: int) -> bytes:
    """The bytes of a value. Raises UnwritableValue, with the path of the field."""
    return b"".join(encode_pieces(value, version))


def encode_pieces(value: Message, version: int) -> list[Buffer]:
    """The bytes of a value in pieces, in order. Fields of type records are memoryviews in it, not copied."""
    pieces: list[Buffer] = []
    write(value, version, pieces)
    return pieces


def write(value: Message, version: int, pieces: list[Buffer]) -> None:
    """As `encode_pieces`, behind what is in a list already."""
    message = type(value)
    function = _writers.get((message, version)) or _made(_writers, compile_writer, message, version)
    try:
        function.call(value, pieces.append)
    except (TypeError, AttributeError, ValueError, struct.error) as raised:
        raise UnwritableValue(function.path(raised.__traceback__), str(raised)) from raised


def _made(
    functions: dict[tuple[type[Message], int], Function],
    compile_one: Callable[[type[Message], int], Function],
    message: type[Message],
    version: int,
) -> Function:
    if version not in message.VERSIONS:
        raise UnwritableValue(message.__name__, f"has no version {version}; there are {message.VERSIONS}")
    function = functions[message, version] = compile_one(message, version)
    return function
