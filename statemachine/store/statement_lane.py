"""Where a node's clients' SQL statements wait for their turn."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from kraftpb.v1.admin_pb2 import QueryResponse
from statemachine.store.query_lane import Lane
from statemachine.store.query_messages import Statement
from statemachine.store.query_process import QueryProcess, StatementRun

IDLE_SECONDS_MAX: Final = 300.0
"""How long the process for statements is kept for the next one: someone who asks, or looks every minute, finds it."""


class StatementLane(Lane):
    """A thread that runs statements on one database, one after the other, in a process that it keeps for a while."""

    def __init__(self, path: Path) -> None:
        super().__init__("kraftlog-statement")
        self._path = path
        self._process: QueryProcess | None = None
        """The thread's."""
        self._runs: set[StatementRun] = set()
        """Those that run or wait for their turn."""
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
        """See `QueryProcess.run`. It ends when this is cancelled. Raises THROTTLING_QUOTA_EXCEEDED if too many wait."""
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
        if self._process is not None and not self._process.is_running:
            self._end_process()
        if self._process is None:
            self._process = QueryProcess(self._path)
        return self._process.run(run)

    def _end_process(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None
