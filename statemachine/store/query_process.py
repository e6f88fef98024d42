"""A node's side of the process that runs its clients' SQL statements: started for the first statement, kept for the
next.

In the node's own process, a statement could take all memory, and SQLite checks the clock only between steps, some of
which one statement can make take minutes.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Final, cast

import structlog

from kraftbase.errors import ApiError, ErrorCode
from kraftpb.v1.admin_pb2 import QueryResponse
from statemachine.store.background import last_line, start_module
from statemachine.store.query_messages import (
    Statement,
    decode_pieces,
    receive_outcome,
    send_abandoned,
    send_statement,
)
from statemachine.store.query_worker import GRACE_SECONDS
from statemachine.store.sql import took_too_long
from statemachine.words.limits import STATEMENT_START_SECONDS_MAX

MODULE: Final = "statemachine.store.query_server"
ERROR_OUTPUT_BYTES_MAX: Final = 64 * 1024
"""The capacity of a pipe."""

logger = structlog.get_logger(__name__)


class StatementRun:
    """A statement that is run at most once. Its caller may abandon it at any time."""

    def __init__(self, statement: Statement) -> None:
        self.statement = statement
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._is_abandoned = False

    def refuse_if_abandoned(self) -> None:
        """Raise ApiError(REQUEST_TIMED_OUT) if the statement is abandoned."""
        if self._is_abandoned:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "the query was ended because its caller left")

    def begin(self, connection: socket.socket) -> None:
        """Send the statement to its process. Raises ApiError(REQUEST_TIMED_OUT) instead if it is abandoned."""
        with self._lock:
            self.refuse_if_abandoned()
            send_statement(connection, self.statement)
            self._connection = connection

    def finish(self) -> None:
        """The process no longer runs the statement: from now on it may run others."""
        with self._lock:
            self._connection = None

    def abandon(self) -> None:
        """Abandon the statement: it ends, or does not begin. From any thread, also when it has ended."""
        with self._lock:
            self._is_abandoned = True
            if self._connection is not None:
                with suppress(OSError):  # the process has ended
                    send_abandoned(self._connection)


class QueryProcess:
    """A process that is ready for statements on one database. One thread at a time."""

    def __init__(self, database: Path) -> None:
        """Start the process, and wait until it is ready.

        Raises ApiError: REQUEST_TIMED_OUT if the start takes too long, UNKNOWN_SERVER_ERROR if the process cannot start
        or ends.
        """
        self._is_ended = False
        with ExitStack() as unless_started:
            try:
                self._connection, its_connection = map(unless_started.enter_context, socket.socketpair())
                self._process = start_module(MODULE, (str(database),), connection=its_connection, niceness=0)
            except OSError as error:
                raise ApiError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"no process for queries can be started: {error}; try again later, or ask another node",
                ) from None
            unless_started.pop_all()
            its_connection.close()
        self._stderr = cast(IO[bytes], self._process.stderr)
        os.set_blocking(self._stderr.fileno(), False)  # read after an error; may be empty
        try:
            receive_outcome(self._connection, STATEMENT_START_SECONDS_MAX)
        except TimeoutError:
            self.end()
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"the process for queries did not start in {STATEMENT_START_SECONDS_MAX:g} s: this node's machine is"
                " too busy; try again later, or ask another node",
            ) from None
        except (EOFError, OSError):
            raise self._ended() from None

    @property
    def is_running(self) -> bool:
        """Whether it can run a statement: it was not ended, and has not ended by itself."""
        # Its id stays its own until `end` waits for it.
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return not self._is_ended and os.waitid(os.P_PID, self._process.pid, flags) is None

    def run(self, run: StatementRun) -> list[QueryResponse]:
        """Return the answer, in pieces; an error of the statement is in the first. Blocks until then.

        Raises ApiError: INVALID_REQUEST if its time has expired, REQUEST_TIMED_OUT if it is abandoned,
        UNKNOWN_SERVER_ERROR if the process that runs it ends otherwise. The process may not be running afterwards.
        """
        timeout_seconds = run.statement.timeout_seconds
        try:
            self._connection.settimeout(timeout_seconds + GRACE_SECONDS)
            run.begin(self._connection)
            try:
                exit_code, answer = receive_outcome(self._connection, timeout_seconds + GRACE_SECONDS)
            finally:
                run.finish()
        except TimeoutError:
            self.end()
            raise took_too_long(timeout_seconds) from None
        except (EOFError, OSError):
            raise self._ended() from None
        run.refuse_if_abandoned()
        if exit_code == -signal.SIGXCPU:
            raise took_too_long(timeout_seconds)
        if exit_code != 0:
            raise _error(exit_code, self._error_output())
        return list(decode_pieces(answer))

    def end(self) -> None:
        """End the process, and the statement that it runs. Nothing happens if it was ended."""
        if not self._is_ended:
            self._end()

    def _ended(self) -> ApiError:
        """The error to raise when the process has closed its end, and so ends by itself."""
        return _error(*self._end())

    def _end(self) -> tuple[int, bytes]:
        self._is_ended = True
        os.killpg(self._process.pid, signal.SIGKILL)  # the process may have ended, its child may not
        exit_code = self._process.wait()
        error_output = self._error_output()
        self._stderr.close()
        self._connection.close()
        return exit_code, error_output

    def _error_output(self) -> bytes:
        with suppress(BlockingIOError):
            return os.read(self._stderr.fileno(), ERROR_OUTPUT_BYTES_MAX)
        return b""


def _error(exit_code: int, error_output: bytes) -> ApiError:
    logger.error("process of a query ended", code=exit_code, complaint=last_line(error_output))
    return ApiError(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"the query's process ended with {exit_code}; see this node's log, and ask for less",
    )
