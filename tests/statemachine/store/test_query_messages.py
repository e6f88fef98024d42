"""Messages between a node and its process for SQL statements arrive unchanged, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from socket import socket, socketpair

import pytest

from kraftpb.v1.admin_pb2 import QueryResponse
from statemachine.store.query_messages import (
    Outcome,
    Statement,
    decode_pieces,
    encode_pieces,
    receive_outcome,
    receive_statement,
    send_abandoned,
    send_end,
    send_part,
    send_statement,
)

SECONDS = 60.0


@pytest.fixture
def ends() -> Iterator[tuple[socket, socket]]:
    one, other = socketpair()
    with one, other:
        yield one, other


@pytest.mark.parametrize("sql", ["SELECT 1", "", "SELECT 'é', '\0'"])
def test_a_statement_arrives_as_it_was(ends: tuple[socket, socket], sql: str) -> None:
    send_statement(ends[0], Statement(sql, 2.5))
    assert receive_statement(ends[1]) == Statement(sql, 2.5)


def test_what_is_abandoned_and_has_ended_is_skipped(ends: tuple[socket, socket]) -> None:
    send_abandoned(ends[0])
    send_statement(ends[0], Statement("SELECT 1", 2.5))
    assert receive_statement(ends[1]) == Statement("SELECT 1", 2.5)


@pytest.mark.parametrize(
    "sent", [b"", b"A", b"S", b"S" + bytes(8), b"S" + bytes(11) + b"\5" + b"four", b"?" + bytes(12)]
)
def test_what_breaks_off_or_is_none_is_no_statement(ends: tuple[socket, socket], sent: bytes) -> None:
    ends[0].sendall(sent)
    ends[0].close()
    assert receive_statement(ends[1]) is None


def test_an_answer_arrives_in_parts(ends: tuple[socket, socket]) -> None:
    for part in (b"one", b"two"):
        send_part(ends[0], part)
    send_end(ends[0], -9)
    send_end(ends[0], 0)
    assert receive_outcome(ends[1], SECONDS) == Outcome(-9, b"onetwo")
    assert receive_outcome(ends[1], SECONDS) == Outcome(0, b"")


def test_an_answer_that_breaks_off_is_none(ends: tuple[socket, socket]) -> None:
    send_part(ends[0], b"one")
    ends[0].close()
    with pytest.raises(EOFError):
        receive_outcome(ends[1], SECONDS)


@pytest.mark.parametrize("seconds", [0.0, 0.01])
def test_an_answer_that_does_not_end_in_time_is_none(ends: tuple[socket, socket], seconds: float) -> None:
    send_part(ends[0], b"one")
    with pytest.raises(TimeoutError):
        receive_outcome(ends[1], seconds)


def test_pieces_arrive_as_they_were() -> None:
    pieces = [QueryResponse(columns=["a"]), QueryResponse(), QueryResponse(error_code=42, error_message="é" * 300)]
    assert list(decode_pieces(encode_pieces(pieces))) == pieces
    assert list(decode_pieces(b"")) == []
