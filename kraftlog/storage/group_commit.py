"""Acknowledges appends when they are durable: one flush for all that wait in a log directory (group commit).

While a flush is under way, appends gather; the next one covers all of them. Each log with such appends is flushed, one
after the other, since each has a file of its own. Where a flush runs, on the loop or in a thread, decides `Flusher`;
one of many logs runs in the thread. A flush begins and ends on the loop, so it is of `FLUSHED_LOGS_MAX` logs at most,
and the others are flushed next, those first that have waited longest (DB-97).

Who waits is called back. What goes wrong in a callback is a mistake of this program: it is logged, and neither taken
for a failure of the disk nor in the way of the others who wait.
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
"""How many logs one flush has at most."""

_TRUNCATED: Final = "the log was truncated before the append was durable"


class _Waiting(NamedTuple):
    log: PartitionLog
    end_offset: int
    on_durable: OnDurable


def _tell(told: Iterable[tuple[_Waiting, ApiError | None]]) -> None:
    """Call everybody back. An error of a callback is logged; what ends the process is raised when all are told."""
    ending: BaseException | None = None
    for one, answer in told:
        try:
            one.on_durable(answer)
        except Exception:
            topic, partition_id = one.log.partition
            logger.exception(
                "who waits for an append to be durable has failed: it may not be answered",
                topic=topic, partition=partition_id, end_offset=one.end_offset, is_durable=answer is None,
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
        """Flush one after the other. Raises FlushFailed, StorageError.

        The directory that the logs are in is synced once, however many of them are new.
        """
        parents = {flush.parent: flush for _, flush in self.pending if flush.parent is not None}
        for _, flush in self.pending:
            flush.run_but_for_parent()
        for flush in parents.values():
            flush.sync_parent()


class GroupCommit:
    """The appends of one directory that wait to be durable.

    `on_failure` is called with a StorageError or FlushFailed of a flush; after all but OutOfSpace the directory is not
    used any more. `on_segments_flushed` is called with the logs that were new, or have gone on in another segment, when
    that is durable, and before those who wait are called back.
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
        """How long flushes took, in milliseconds, as `Flusher` measures it."""

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

    def forget(self, log: PartitionLog, error: ApiError) -> None:
        """The log is deleted: nothing of it becomes durable, and who waits for that gets `error`."""
        gone = [one for one in self._waiting if one.log is log]
        self._waiting = [one for one in self._waiting if one.log is not log]
        _tell((one, error) for one in gone)

    def fail_all(self, error: ApiError) -> None:
        """The directory is offline: nothing that waits becomes durable."""
        waiting, self._waiting = self._waiting, []
        _tell((one, error) for one in waiting)

    # --- for the Flusher ----------------------------------------------------------------------------------------------

    def _has_many_logs(self) -> bool:
        return len(self._waiting) > SLICE_PARTITIONS < len({id(one.log) for one in self._waiting})

    def flush(self) -> None:
        """Flush logs that are waited for, at once."""
        flushes = self.start_flush()
        flushes.run()
        self.finish_flush(flushes)

    def start_flush(self) -> LogFlushes:
        """Begin to flush the logs that have been waited for longest."""
        self._started = LogFlushes([])
        waited_for = {id(one.log): one.log for one in self._waiting}.values()
        for log in islice((log for log in waited_for if not log.durability.is_flushed), FLUSHED_LOGS_MAX):
            self._started.pending.append((log, log.durability.start_flush()))
        return self._started

    def finish_flush(self, pending: LogFlushes) -> None:
        """Note that they are flushed."""
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
            _tell(self._answers(waiting))
        finally:
            self._is_requested = bool(self._waiting)
            if self._is_requested:
                self._flusher.request()

    def _answers(self, waiting: list[_Waiting]) -> Iterator[tuple[_Waiting, ApiError | None]]:
        """What is known for each; who must wait longer does."""
        for one in waiting:
            if one.log.recovery_point >= one.end_offset:
                yield one, None
            elif one.log.log_end_offset < one.end_offset:
                yield one, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, _TRUNCATED)
            else:
                self._waiting.append(one)

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
