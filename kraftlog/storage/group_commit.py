"""Acknowledges appends when they are durable: one flush for all that wait in a log directory (group commit).

While a flush is in progress, appends gather; the next flush covers all of them. It flushes the logs with such appends
one after the other, since each log has its own file. `Flusher` decides whether a flush runs on the loop or in a thread;
a flush of many logs runs in the thread. Since a flush begins and ends on the loop, it covers at most `FLUSHED_LOGS_MAX`
logs. The next flush covers the others, first those that have waited longest (DB-97).

A callback is called for each waiting append. An exception of a callback is a fault of this program: it is logged, is
not taken for a failure of the disk, and does not keep the other callbacks from being called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

import structlog

from kraftbase.errors import ApiError, ErrorCode, FlushFailed, StorageError
from kraftbase.flusher import Flusher
from kraftbase.runtime import Runtime
from kraftlog.storage.flushes import PendingFlush
from kraftlog.storage.log_host import OnDurable
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.slices import SLICE_PARTITIONS
from kraftlog.telemetry.registry import Histogram

logger = structlog.get_logger(__name__)

FLUSHED_LOGS_MAX: Final = 32
"""The most logs that one flush covers."""

_TRUNCATED: Final = "the log was truncated before the append was durable"


class _Waiting(NamedTuple):
    log: PartitionLog
    end_offset: int
    on_durable: OnDurable


def _call_back(answered: Iterable[tuple[_Waiting, ApiError | None]]) -> None:
    """Call all callbacks. An Exception of one is logged; another BaseException is raised after the last callback."""
    ending: BaseException | None = None
    for waiter, answer in answered:
        try:
            waiter.on_durable(answer)
        except Exception:
            topic, partition_id = waiter.log.partition
            logger.exception(
                "a callback for a durable append failed: its client may get no answer",
                topic=topic, partition=partition_id, end_offset=waiter.end_offset, is_durable=answer is None,
            )  # fmt: skip
        except BaseException as error:
            ending = ending or error
    if ending is not None:
        raise ending


class LogFlushes:
    """A flush of several logs."""

    def __init__(self, pending: list[tuple[PartitionLog, PendingFlush]]) -> None:
        self.pending = pending

    def run(self) -> None:
        """Flush the logs one after the other. Raises FlushFailed, StorageError.

        The log directory is synced once, however many of the logs are new.
        """
        parents = {flush.parent: flush for _, flush in self.pending if flush.parent is not None}
        for _, flush in self.pending:
            flush.run_but_for_parent()
        for flush in parents.values():
            flush.sync_parent()


class GroupCommit:
    """The appends of one directory that wait to be durable.

    `on_failure` is called with the StorageError or FlushFailed of a flush; after any but OutOfSpace the directory is no
    longer used. `on_segments_flushed` is called after a flush with the logs that were new or had rolled, before the
    callbacks of waiting appends.
    """

    def __init__(
        self, runtime: Runtime, on_failure: Callable[[BaseException], object],
        on_segments_flushed: Callable[[Sequence[PartitionLog]], None],
    ) -> None:  # fmt: skip
        self._on_failure = on_failure
        self._on_segments_flushed = on_segments_flushed
        self._waiting: list[_Waiting] = []
        self._started: LogFlushes | None = None
        self._is_requested = False
        self._flusher: Flusher[LogFlushes, None] = Flusher(
            self, runtime, self._on_flushed, self._on_error, self._has_many_logs
        )  # fmt: skip
        self.flush_times = Histogram()
        """The durations of flushes in milliseconds, as `Flusher` measures them."""

    @property
    def is_idle(self) -> bool:
        """Whether no flush is in progress or requested."""
        return not self._is_requested

    def wait(self, log: PartitionLog, end_offset: int, on_durable: OnDurable) -> None:
        """Call `on_durable` when the log is durable up to `end_offset`, at once if it is already."""
        if log.recovery_point >= end_offset:
            on_durable(None)
            return
        self._waiting.append(_Waiting(log, end_offset, on_durable))
        if not self._is_requested:
            self._is_requested = True
            self._flusher.request()

    def fail(self, log: PartitionLog, error: ApiError) -> None:
        """Call the callbacks of a deleted log with `error`."""
        gone = [waiter for waiter in self._waiting if waiter.log is log]
        self._waiting = [waiter for waiter in self._waiting if waiter.log is not log]
        _call_back((waiter, error) for waiter in gone)

    def fail_all(self, error: ApiError) -> None:
        """Call all callbacks with `error`: the directory is offline."""
        waiting, self._waiting = self._waiting, []
        _call_back((one, error) for one in waiting)

    # --- for the Flusher ----------------------------------------------------------------------------------------------

    def _has_many_logs(self) -> bool:
        return len(self._waiting) > SLICE_PARTITIONS < len({id(waiter.log) for waiter in self._waiting})

    def flush(self) -> None:
        """Flush the logs with waiting appends, on the caller's thread."""
        flushes = self.start_flush()
        flushes.run()
        self.finish_flush(flushes)

    def start_flush(self) -> LogFlushes:
        """Begin to flush the logs whose appends have waited longest."""
        self._started = LogFlushes([])
        waited_for = {id(waiter.log): waiter.log for waiter in self._waiting}.values()
        for log in islice((log for log in waited_for if not log.durability.is_flushed), FLUSHED_LOGS_MAX):
            self._started.pending.append((log, log.durability.start_flush()))
        return self._started

    def finish_flush(self, pending: LogFlushes) -> None:
        """Note the end of a flush."""
        changed = []
        for log, flush in pending.pending:
            before = (log.durability.durable_base_offset, log.durability.is_new)
            log.durability.finish_flush(flush)
            if (log.durability.durable_base_offset, log.durability.is_new) != before:
                changed.append(log)
        self._started = None
        if changed:
            self._on_segments_flushed(changed)

    def _on_flushed(self, _: None) -> None:
        self.flush_times.observe(self._flusher.last_flush_ms)
        waiting, self._waiting = self._waiting, []
        try:
            _call_back(self._answers(waiting))
        finally:
            self._is_requested = bool(self._waiting)
            if self._is_requested:
                self._flusher.request()

    def _answers(self, waiting: list[_Waiting]) -> Iterator[tuple[_Waiting, ApiError | None]]:
        """Yield the waiting appends whose outcome is known; the others continue to wait."""
        for waiter in waiting:
            if waiter.log.recovery_point >= waiter.end_offset:
                yield waiter, None
            elif waiter.log.log_end_offset < waiter.end_offset:
                yield waiter, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, _TRUNCATED)
            else:
                self._waiting.append(waiter)

    def _on_error(self, error: BaseException) -> None:
        if self._started is None:
            raise error  # of a callback: the flush itself has ended well
        started, self._started = self._started, None
        for log, flush in started.pending:
            if log.durability.pending is flush:
                log.durability.abandon_flush(flush)
        self._is_requested = False
        self._on_failure(error)
        self.fail_all(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        if not isinstance(error, StorageError | FlushFailed):
            raise error
