"""A client's SQL statement in its own process, which ends when its time has expired or its caller leaves.

In the node's process it could take all memory, and SQLite reads the clock only between steps, some of which one
statement can make take minutes.
"""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Final

import structlog

from kraftbase.errors import ApiError, ErrorCode
from kraftpb.v1.admin_pb2 import QueryResponse
from statemachine.store.background import start_module
from statemachine.store.query_worker import GRACE_SECONDS, decode_pieces
from statemachine.store.sql import took_too_long

MODULE: Final = "statemachine.store.query_worker"

logger = structlog.get_logger(__name__)


class QueryProcess:
    """One statement, run at most once."""

    def __init__(self, database: Path, sql: str, timeout_seconds: float) -> None:
        self._database = database
        self._sql = sql
        self._timeout_seconds = timeout_seconds
        self._lock = threading.Lock()
        self._process: Popen[bytes] | None = None
        self._is_abandoned = False

    def run(self) -> list[QueryResponse]:
        """The answer, in pieces; an error of the statement's is in the first. Blocks for that long, in any thread.

        Raises ApiError: INVALID_REQUEST if its time has expired, REQUEST_TIMED_OUT if it is abandoned,
        UNKNOWN_SERVER_ERROR if its process ends otherwise.
        """
        with self._lock:
            if self._is_abandoned:
                raise _abandoned()
            process = self._process = start_module(MODULE, (str(self._database), str(self._timeout_seconds)))
        try:
            said, complaints = process.communicate(self._sql.encode(), timeout=self._timeout_seconds + GRACE_SECONDS)
        except TimeoutExpired:
            process.kill()
            process.communicate()
            raise took_too_long(self._timeout_seconds) from None
        if self._is_abandoned:
            raise _abandoned()
        if process.returncode == -signal.SIGXCPU:
            raise took_too_long(self._timeout_seconds)
        if process.returncode != 0:
            raise _ended(process.returncode, complaints)
        return list(decode_pieces(said))

    def abandon(self) -> None:
        """No caller wants the answer any more: it ends, or does not begin. From any thread, also when it has ended."""
        with self._lock:
            self._is_abandoned = True
            if self._process is not None:
                self._process.kill()


def _abandoned() -> ApiError:
    return ApiError(ErrorCode.REQUEST_TIMED_OUT, "the query was ended because its caller left")


def _ended(code: int, complaints: bytes) -> ApiError:
    lines = complaints.decode(errors="replace").strip().splitlines()
    logger.error("the process of a query ended", code=code, complaint=lines[-1] if lines else "")
    return ApiError(
        ErrorCode.UNKNOWN_SERVER_ERROR, f"the query's process ended with {code}; see this node's log, and ask for less"
    )
