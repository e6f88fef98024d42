"""Reads and writes every message of the tables, in every version, flexible (FM-21) or not.

    data = encode(FetchRequest(max_wait_ms=500), 17)
    request = decode(FetchRequest, 17, data)

The functions for a version are compiled on its first use, in some milliseconds, and kept. A value with many elements
takes long to read or write. `decode_from` and `write` therefore raise ManyElements for a value with more elements than
the caller allows, and the caller continues with the generator that does the same in slices.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator
from typing import Final, NoReturn, TypeVar

from kraftlog.kafka.errors import MalformedBytes, ManyElements, TooManyElements, UnwritableValue
from kraftlog.kafka.generated_code import Function
from kraftlog.kafka.notation import Buffer, Message
from kraftlog.kafka.read_compiler import compile_reader
from kraftlog.kafka.write_compiler import compile_writer

M = TypeVar("M", bound=Message)

ANY_NUMBER: Final = 2**62
"""No bound on the number of elements."""

_Functions = dict[tuple[type[Message], int], Function]

_readers: Final[_Functions] = {}
_writers: Final[_Functions] = {}
_readers_in_slices: Final[_Functions] = {}
_writers_in_slices: Final[_Functions] = {}


def decode(message: type[M], version: int, data: Buffer) -> M:
    """Return the value that all of `data` encodes. Fields of type records are views of `data`, all others are copies.

    Raises MalformedBytes, with the path of the field, or UnwritableValue if the message has no such version.
    """
    value, end = decode_from(message, version, data, 0)
    if end != len(data):
        raise MalformedBytes(message.__name__, f"{len(data) - end} extra bytes after version {version}")
    return value


def decode_from(message: type[M], version: int, data: Buffer, at: int, elements_max: int = ANY_NUMBER) -> tuple[M, int]:
    """Return the value at a position of `data`, and the position after it. Raises as `decode`, and ManyElements."""
    function = _readers.get((message, version)) or _made(_readers, compile_reader, message, version)
    try:
        return function.call(data, at, elements_max)  # type: ignore[no-any-return]
    except (IndexError, struct.error, ValueError) as raised:
        _refuse(function, version, data, raised)


def decode_in_slices(
    message: type[M], version: int, data: Buffer, at: int, elements_max: int
) -> Generator[None, None, tuple[M, int]]:
    """As `decode_from`, in slices; raises TooManyElements for more than `elements_max`."""
    functions = _readers_in_slices
    function = functions.get((message, version)) or _made(functions, compile_reader, message, version, in_slices=True)
    try:
        return (yield from function.call(data, at, elements_max))  # type: ignore[no-any-return]
    except ManyElements:
        reason = f"has more than {elements_max} elements, the bound for {len(data)} bytes of this API"
        raise TooManyElements(message.__name__, reason) from None
    except (IndexError, struct.error, ValueError) as raised:
        _refuse(function, version, data, raised)


def _refuse(function: Function, version: int, data: Buffer, raised: Exception) -> NoReturn:
    """Raise MalformedBytes, with the path of the field, for an error that a compiled reader raised."""
    path = function.path(raised.__traceback__)
    if isinstance(raised, ValueError):
        raise MalformedBytes(path, str(raised)) from None
    raise MalformedBytes(path, f"the {len(data)} bytes end here, in version {version}") from None


def encode(value: Message, version: int) -> bytes:
    """Return the bytes of a value. Raises UnwritableValue, with the path of the field."""
    return b"".join(encode_pieces(value, version))


def encode_pieces(value: Message, version: int) -> list[Buffer]:
    """Return the bytes of a value in pieces, in order. A field of type records is a piece: a memoryview, not a copy."""
    pieces: list[Buffer] = []
    write(value, version, pieces)
    return pieces


def write(value: Message, version: int, pieces: list[Buffer], elements_max: int = ANY_NUMBER) -> None:
    """As `encode_pieces`, but append the pieces to a list. Raises ManyElements, too."""
    message = type(value)
    function = _writers.get((message, version)) or _made(_writers, compile_writer, message, version)
    try:
        function.call(value, pieces.append, elements_max)
    except (TypeError, AttributeError, ValueError, struct.error) as raised:
        raise UnwritableValue(function.path(raised.__traceback__), str(raised)) from raised


def write_in_slices(value: Message, version: int, pieces: list[Buffer]) -> Iterator[None]:
    """As `write`, in slices. Between two slices the caller may take pieces out of the list."""
    message, functions = type(value), _writers_in_slices
    function = functions.get((message, version)) or _made(functions, compile_writer, message, version, in_slices=True)
    try:
        yield from function.call(value, pieces.append, ANY_NUMBER)
    except (TypeError, AttributeError, ValueError, struct.error) as raised:
        raise UnwritableValue(function.path(raised.__traceback__), str(raised)) from raised


def _made(
    functions: _Functions, compile_one: Callable[..., Function], message: type[Message], version: int, **how: bool
) -> Function:
    if version not in message.VERSIONS:
        raise UnwritableValue(message.__name__, f"has no version {version}; it has {message.VERSIONS}")
    function = functions[message, version] = compile_one(message, version, **how)
    return function
