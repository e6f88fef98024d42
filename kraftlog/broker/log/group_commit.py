"""Acknowledges appends when they are durable: one flush for all that wait in a log directory (group commit).

While a flush is under way, appends gather; the next one covers all of them. Each log with such appends is flushed, one
after the other, since each has a file of its own. Where a flush runs, on the loop or in a thread, decides `Flusher`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kraftbase.errors import ApiError, ErrorCode, FlushFailed, OutOfSpace, StorageError
from kraftlog.broker.log.flushes import PendingFlush
from kraftlog.broker.log.partition_log import PartitionLog
from raft.shell.flusher import Flusher
from raft.shell.runtime import Runtime

OnDurable = Callable[[ApiError | None], None]
"""Called once: with None when the append is durable, else with what to answer."""


class _Waiting(NamedTuple):
    log: PartitionLog
    end_offset: int
    on_durable: OnDurable


class LogFlushes:
    """A flush of several logs."""

    def __init__(self, pending: list[tuple[PartitionLog, PendingFlush]]) -> None:
        self.pending = pending

    def run(self) -> None:
        """Flush one after the other. Raises FlushFailed, StorageError."""
        for _, flush in self.pending:
            flush.run()


class GroupCommit:
    """The appends of one directory that wait to be durable.

    `on_failure` is called with a StorageError or FlushFailed after which the directory is not used any more.
    """

    def __init__(self, runtime: Runtime, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        self._waiting: list[_Waiting] = []
        self._started: LogFlushes | None = None
        self._is_requested = False
        self._flusher: Flusher[LogFlushes, None] = Flusher(self, runtime, self._on_flushed, self._on_error)
        self.flush_count = 0
        """How many flushes there were."""

    @property
    def is_idle(self) -> bool:
        """Whether no flush is under way or waited for."""
        return not self._is_requested

    def wait(self, log: PartitionLog, end_offset: int, on_durable: OnDurable) -> None:
        """Call back when the log is durable up to `end_offset`; at once if it is."""
        if log.recovery_point >= end_offset:
            on_durable(None)
            return
        self._waiting.append(_Waiting(log, end_offset, on_durable))
        if not self._is_requested:
            self._is_requested = True
            self._flusher.request()

    def forget(self, log: PartitionLog) -> None:
        """The log is deleted: nothing of it becomes durable."""
        gone = [one for one in self._waiting if one.log is log]
        self._waiting = [one for one in self._waiting if one.log is not log]
        error = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition was deleted: ask for the metadata again")
        for one in gone:
            one.on_durable(error)

    def fail_all(self, error: ApiError) -> None:
        """The directory is offline: nothing that waits becomes durable."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.on_durable(error)

    # --- for the Flusher ----------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Flush all logs that are waited for."""
        flushes = self.start_flush()
        flushes.run()
        self.finish_flush(flushes)

    def start_flush(self) -> LogFlushes:
        """Begin to flush all logs that are waited for."""
        self._started = LogFlushes([])
        for log in {id(one.log): one.log for one in self._waiting}.values():
            if not log.is_flushed:
                self._started.pending.append((log, log.start_flush()))
        return self._started

    def finish_flush(self, pending: LogFlushes) -> None:
        """Note that they are flushed."""
        self._started = None
        self.flush_count += 1
        for log, flush in pending.pending:
            log.finish_flush(flush)

    def _on_flushed(self, _: None) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if one.log.recovery_point >= one.end_offset:
                one.on_durable(None)
            elif one.log.log_end_offset < one.end_offset:
                one.on_durable(
                    ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the log was truncated before the append was durable")
                )
            else:
                self._waiting.append(one)
        self._is_requested = bool(self._waiting)
        if self._is_requested:
            self._flusher.request()

    def _on_error(self, error: BaseException) -> None:
        started, self._started = self._started, None
        for log, flush in started.pending if started is not None else ():
            if log.pending_flush is flush:
                log.abandon_flush(flush)
        self._is_requested = False
        if not isinstance(error, OutOfSpace):
            self._on_failure(error)
        self.fail_all(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        if not isinstance(error, StorageError | FlushFailed):
            raise error
