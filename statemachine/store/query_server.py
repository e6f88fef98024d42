"""Runs a node's SQL statements, each in a child of its own.

`python -m statemachine.store.query_server DATABASE` has a socket as its standard input: see
`statemachine.store.query_messages`. It is kept for the next statement: its children have everything imported, so a
statement begins within milliseconds. It has one thread and no connection to the database, so a child can be forked; it
runs no statement itself, so no statement affects the next.
"""

from __future__ import annotations

import gc
import os
import resource
import select
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from socket import socket
from typing import NoReturn

from statemachine.store.priority import STATEMENT_NICENESS, stand_back
from statemachine.store.query_messages import (
    PART_BYTES_MAX,
    Statement,
    encode_pieces,
    receive_statement,
    send_end,
    send_part,
)
from statemachine.store.query_worker import answer, bound_process


def serve(connection: socket, database: Path) -> None:
    """Report that this process is ready, then run statements until the node closes its end."""
    send_end(connection, 0)
    while (statement := receive_statement(connection)) is not None:
        send_end(connection, _run(connection, database, statement))


def _run(connection: socket, database: Path, statement: Statement) -> int:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        connection.close()  # the node must see the end of the parent, whatever a child does
        _answer(database, statement, writing)
    os.close(writing)
    try:
        if not _pass_on(reading, connection):
            os.kill(child, signal.SIGKILL)
    finally:
        os.close(reading)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _pass_on(reading: int, connection: socket) -> bool:
    """Send the child's output until it has ended. Return False if the answer is abandoned before that."""
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    poll.register(connection, select.POLLIN)
    while True:
        ready = [descriptor for descriptor, _ in poll.poll()]
        if connection.fileno() in ready:  # the statement is abandoned, or the node has ended
            return False
        part = os.read(reading, PART_BYTES_MAX)
        if not part:
            return True
        send_part(connection, part)


def _answer(database: Path, statement: Statement, writing: int) -> NoReturn:
    """The child."""
    exit_code = 1
    try:
        bound_process(statement.timeout_seconds)
        pieces = answer(database, statement.sql, statement.timeout_seconds)
        with open(writing, "wb") as output:
            output.write(encode_pieces(pieces))
        exit_code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(exit_code)


def main(arguments: list[str]) -> None:
    """Lower the priority: until here it was the node's, for a fast start, which takes a fifth of a second."""
    stand_back(os.getpid(), STATEMENT_NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a statement that is killed may have a gigabyte
    gc.freeze()  # a collection in a child would copy the pages of everything
    with suppress(BrokenPipeError, ConnectionResetError):  # the node has ended
        serve(socket(fileno=sys.stdin.fileno()), Path(arguments[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
