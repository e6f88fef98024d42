"""Reads that complete when a test says so, and a log's reader that answers with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.replicas.partitions.later_read import LaterRead, LaterRecords, LaterResult
from kraftlog.replicas.partitions.partition import Partition
from kraftlog.storage.log_host import LogSlice
from kraftlog.storage.log_reader import LogReader

FAILED = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the store is away")


class Later:
    """A `LaterRead`."""

    def __init__(self, *, byte_count: int = 50, max_wait_ms: float = 500, at_start: LaterResult | None = None) -> None:
        """`at_start` is its result if it has it already."""
        self.byte_count = byte_count
        self.max_wait_ms = max_wait_ms
        self.is_cancelled = False
        self._at_start = at_start
        self._on_done: Callable[[LaterResult], None] | None = None

    @property
    def is_started(self) -> bool:
        return self._on_done is not None

    def start(self, on_done: Callable[[LaterResult], None]) -> None:
        assert self._on_done is None, "begun once"
        self._on_done = on_done
        if self._at_start is not None:
            on_done(self._at_start)

    def cancel(self) -> None:
        assert self.is_started
        assert not self.is_cancelled, "cancelled once"
        self.is_cancelled = True

    def finish(self, result: LaterResult | bytes) -> None:
        """It has its result, also if it was cancelled: another thread was about to say so."""
        assert self._on_done is not None
        self._on_done(LaterRecords(result) if isinstance(result, bytes) else result)


class TieredReader:
    """The reader of a log below whose `local_start` records come later."""

    def __init__(self, local: LogReader, local_start: int, make: Callable[[], Later]) -> None:
        self._local = local
        self._local_start = local_start
        self._make = make
        self.reads: list[Later] = []
        """Those that were begun."""
        self.slices_read = 0

    def locate(
        self, offset: int, max_bytes: int, end_offset: int, *, min_one_batch: bool = True
    ) -> LogSlice | LaterRead | None:
        if offset >= self._local_start:
            return self._local.locate(offset, max_bytes, end_offset, min_one_batch=min_one_batch)
        read = self._make()
        if not min_one_batch and read.byte_count > max_bytes:
            return None
        self.reads = [one for one in self.reads if one.is_started]
        self.reads.append(read)
        return read

    def read_slice(self, found: LogSlice) -> bytes:
        self.slices_read += 1
        return self._local.read_slice(found)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._local, name)


def with_later_reads(partition: Partition, local_start: int = 1_000, make: Callable[[], Later] = Later) -> TieredReader:
    """Have the records of a partition come later."""
    log: Any = partition.online_log()
    log.reader = TieredReader(log.reader, local_start, make)
    reader: TieredReader = log.reader
    return reader
