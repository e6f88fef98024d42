"""The queue of SQL statements of a node's clients.

While a statement runs, SQLite keeps all that is written to the write-ahead log. Statements without a pause would leave
no moment for that log to start over. So while the log is large, the next statement does not begin until it has started
over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from kraftpb.v1.admin_pb2 import QueryResponse
from statemachine.store.query_lane import Lane
from statemachine.store.query_messages import Statement
from statemachine.store.query_process import QueryProcess, StatementRun
from statemachine.store.write_ahead_log import WARN_BYTES, WriteAheadLog

IDLE_SECONDS_MAX: Final = 300.0
"""How long the process for statements is kept for the next one: long enough for a client that polls every minute."""

PAUSE_SECONDS_MAX: Final = 4.0
"""How long a statement waits for the write-ahead log to start over, which is tried every second. If another reader
prevents that, the statement runs, up to WARN_BYTES; above that size it is refused.
"""

LOOK_SECONDS: Final = 0.02


class StatementLane(Lane):
    """A thread that runs statements on one database, one after the other, in a process that it keeps for a while."""

    def __init__(self, path: Path, write_ahead_log: Callable[[], WriteAheadLog]) -> None:
        """`write_ahead_log` returns the log of the database that is at the path now."""
        super().__init__("kraftlog-statement")
        self._path = path
        self._write_ahead_log = write_ahead_log
        self._process: QueryProcess | None = None
        """The thread's."""
        self._runs: set[StatementRun] = set()
        """The statements that run or wait for their turn."""
        self._idle_timer: asyncio.TimerHandle | None = None
        self._is_shut_down = False

    def shut_down(self) -> None:
        """End all statements, and the process."""
        self._is_shut_down = True
        self._stop_timer()
        for run in self._runs:
            run.abandon()
        super().shut_down()
        self._end_process()

    async def run_statement(self, statement: Statement) -> list[QueryResponse]:
        """See `QueryProcess.run`. The statement ends when this call is cancelled.

        Also raises THROTTLING_QUOTA_EXCEEDED if too many wait, or another reader has let the write-ahead log grow.
        """
        run = StatementRun(statement)
        self._runs.add(run)
        self._stop_timer()
        try:
            return await self.run(lambda: self._run(run))
        finally:
            self._runs.discard(run)
            run.abandon()  # nothing cancels what runs in a thread
            if not self._runs and not self._is_shut_down:
                self._idle_timer = asyncio.get_running_loop().call_later(
                    IDLE_SECONDS_MAX, self._thread.submit, self._end_process
                )

    def _stop_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    # --- in the thread ------------------------------------------------------------------------------------------------

    def _run(self, run: StatementRun) -> list[QueryResponse]:
        run.refuse_if_abandoned()
        self._pause(run)
        if self._process is not None and not self._process.is_running:
            self._end_process()
        if self._process is None:
            self._process = QueryProcess(self._path)
        return self._process.run(run)

    def _pause(self, run: StatementRun) -> None:
        until = time.monotonic() + PAUSE_SECONDS_MAX
        while self._write_ahead_log().is_large and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
            run.refuse_if_abandoned()
        size_bytes = self._write_ahead_log().size_bytes
        if size_bytes >= WARN_BYTES:
            raise ApiError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"the write-ahead log of this node's database has {size_bytes >> 20} MiB and did not start over in"
                f" {PAUSE_SECONDS_MAX:g} s: the disk is slow, or {self._write_ahead_log().holders()} reads it in one"
                " long transaction; a statement would keep it longer. Try again later, or ask another node",
            )

    def _end_process(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None
