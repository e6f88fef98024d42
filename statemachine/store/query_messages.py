"""What a node and its process for SQL statements send each other, over a pair of sockets.

The node sends a statement, and a message that abandons it when its answer is no longer wanted. The process sends the
parts of the answer, and then the exit code of the process that ran the statement.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from kraftpb.v1.admin_pb2 import QueryResponse

PART_BYTES_MAX: Final = 64 * 1024

_STATEMENT: Final = b"S"
_ABANDONED: Final = b"A"
_STATEMENT_HEAD: Final = Struct("!dI")
"""Its limit in seconds, and its length in bytes."""
_PART_HEAD: Final = Struct("!Ii")
"""The length of a part; 0: the answer has ended, and the exit code is valid."""
_LENGTH_BYTES: Final = 4


class Statement(NamedTuple):
    """A statement to run."""

    sql: str
    timeout_seconds: float


class Outcome(NamedTuple):
    """The result of a statement."""

    exit_code: int
    """Minus the signal's number if a signal ended the process that ran the statement."""
    answer: bytes
    """Complete only if the exit code is 0."""


# --- to the process ---------------------------------------------------------------------------------------------------


def send_statement(connection: socket.socket, statement: Statement) -> None:
    """Send the statement to run. No other message may be sent at the same time."""
    sql = statement.sql.encode()
    connection.sendall(_STATEMENT + _STATEMENT_HEAD.pack(statement.timeout_seconds, len(sql)) + sql)


def send_abandoned(connection: socket.socket) -> None:
    """End the statement that was sent last; nothing happens if it has ended. No other message may be sent now."""
    connection.sendall(_ABANDONED)


def receive_statement(connection: socket.socket) -> Statement | None:
    """The next statement, None if the node has closed its end. Blocks."""
    while (kind := connection.recv(1)) == _ABANDONED:
        pass  # the last statement had ended when the message was sent
    head = connection.recv(_STATEMENT_HEAD.size, socket.MSG_WAITALL)
    if kind != _STATEMENT or len(head) < _STATEMENT_HEAD.size:
        return None
    timeout_seconds, length = _STATEMENT_HEAD.unpack(head)
    sql = connection.recv(length, socket.MSG_WAITALL) if length else b""
    return Statement(sql.decode(), timeout_seconds) if len(sql) == length else None


# --- from the process -------------------------------------------------------------------------------------------------


def send_part(connection: socket.socket, part: bytes) -> None:
    """A part of the answer, not empty."""
    connection.sendall(_PART_HEAD.pack(len(part), 0) + part)


def send_end(connection: socket.socket, exit_code: int) -> None:
    """The end of the answer."""
    connection.sendall(_PART_HEAD.pack(0, exit_code))


def receive_outcome(connection: socket.socket, seconds: float) -> Outcome:
    """All parts up to the end. Raises TimeoutError, EOFError if the other end is closed, OSError."""
    deadline = time.monotonic() + seconds
    answer = bytearray()
    while True:
        length, exit_code = _PART_HEAD.unpack(_receive(connection, _PART_HEAD.size, deadline))
        if not length:
            return Outcome(exit_code, bytes(answer))
        answer += _receive(connection, length, deadline)


def _receive(connection: socket.socket, length: int, deadline: float) -> bytes:
    found = bytearray()
    while len(found) < length:
        remaining_seconds = deadline - time.monotonic()
        if remaining_seconds <= 0:
            raise TimeoutError
        connection.settimeout(remaining_seconds)
        piece = connection.recv(length - len(found))
        if not piece:
            raise EOFError
        found += piece
    return bytes(found)


# --- the answer -------------------------------------------------------------------------------------------------------


def encode_pieces(pieces: Iterable[QueryResponse]) -> bytes:
    """An answer as bytes: messages, each after its length."""
    encoded = (piece.SerializeToString() for piece in pieces)
    return b"".join(len(piece).to_bytes(_LENGTH_BYTES, "big") + piece for piece in encoded)


def decode_pieces(data: bytes) -> Iterator[QueryResponse]:
    """The messages in such bytes."""
    start = 0
    while start < len(data):
        end = start + _LENGTH_BYTES + int.from_bytes(data[start : start + _LENGTH_BYTES], "big")
        yield QueryResponse.FromString(data[start + _LENGTH_BYTES : end])
        start = end
