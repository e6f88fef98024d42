"""A Fetch that waits for records: parked until `min_bytes` are available, or its time is over (DB-66).

A parked Fetch checks only positions: no records are read until it is answered. A follower's Fetch counts as progress on
arrival, since its offsets show what the follower has. When enough bytes are available, the Fetch is answered in the
next turn of the loop: the producer gets its answer first, and everything that arrived in the same turn is appended.

If records of a partition come later (`LaterRead`), the Fetch waits for them instead of for more bytes
(`OutstandingReads`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kraftbase.runtime import Runtime, Timer
from kraftlog.network.requests import Slices, Steps
from kraftlog.replicas.partitions.later_read import LaterRead
from kraftlog.replicas.partitions.outstanding_reads import OutstandingReads
from kraftlog.replicas.partitions.partition import Partition
from kraftlog.replicas.partitions.reading import Located, Read, Reader, ReadFrom, count_follower, locate, read
from kraftlog.storage.log_host import LogSlice
from kraftlog.telemetry.observer import BrokerObserver, FetchEnd

FEW_PARTITIONS: Final = 256
"""A request for more partitions than this is processed in slices."""

OnRead = Callable[[list[Read]], None]
"""Called once, with a result for each partition, in their order."""


class DelayedFetch:
    """One Fetch request. For one thread."""

    def __init__(
        self,
        wanted: Sequence[ReadFrom],
        reader: Reader,
        bytes_max: int,
        min_bytes: int,
        on_read: OnRead,
        slices: Slices,
        observer: BrokerObserver,
        *,
        is_in_slices: bool = False,
    ) -> None:
        """`wanted` has each partition once. With `is_in_slices`, for many partitions, they are read in `slices`."""
        self._slices = slices
        self._observer = observer
        self._why = FetchEnd.TIME_OR_CLIENT
        self._is_in_slices = is_in_slices
        self._wanted = wanted
        self._reader = reader
        self._bytes_max = bytes_max
        self._min_bytes = min_bytes
        self._on_read = on_read
        self._timer: Timer | None = None
        self._runtime: Runtime | None = None
        self._is_due = False
        """Whether the answer is scheduled for the next turn of the loop."""
        self._is_done = False
        """Whether the wait for bytes has ended, or never began."""
        self._has_later = False
        """Whether some located records come later."""
        self._outstanding: OutstandingReads | None = None
        self._waiting: dict[Partition, ReadFrom] = {}
        self._available: dict[Partition, int] = {}
        """During the wait: the available bytes of each partition."""
        self._without: dict[Partition, Located] = {}
        """The partitions that had no records and have not changed since: the answer need not locate them again."""
        self._available_bytes = 0

    @property
    def is_waiting(self) -> bool:
        """Whether the Fetch is still unanswered."""
        return not self._is_done or (self._outstanding is not None and self._outstanding.is_waiting)

    def begin(self, runtime: Runtime, max_wait_ms: int) -> None:
        """Answer now, or when enough bytes are available, or after `max_wait_ms`, or when later records have come."""
        located = self._locate(max(1, self._slices.answer_room_bytes))
        if self._reader.is_follower:
            located = [
                count_follower(wanted, self._reader, found) for wanted, found in zip(self._wanted, located, strict=True)
            ]
        if self._has_later:
            self._is_done = True
            self._wait_for_reads(runtime, *self._read_with_later(located))
            return
        byte_count = sum(found.byte_count for found in located)
        if (
            max_wait_ms <= 0
            or not located
            or byte_count >= min(self._min_bytes, self._bytes_max)
            or any(found.ends_wait for found in located)
        ):
            self._finish(located)
            return
        for wanted, found in zip(self._wanted, located, strict=True):
            self._waiting[wanted.partition] = wanted
            self._available[wanted.partition] = found.byte_count
            if not found.byte_count:
                self._without[wanted.partition] = found
            wanted.partition.watch(self, to_log_end=self._reader.is_follower)
        self._available_bytes = sum(self._available.values())
        self._observer.fetch_parked(self._reader.replica_id, byte_count, self._min_bytes, max_wait_ms)
        self._runtime = runtime
        self._timer = runtime.call_later(max_wait_ms, self.expire)

    def begin_in_slices(self, runtime: Runtime, max_wait_ms: int) -> Steps:
        """Like `begin`, in slices. Records are located again before they are read, since others run in between."""
        refused: dict[Partition, Located] = {}
        ends_wait = max_wait_ms <= 0
        available: list[Located] = []
        byte_count = 0
        for wanted in self._wanted:
            found = locate(wanted, self._reader, max(0, self._bytes_max - byte_count), min_one_batch=not byte_count)
            if self._reader.is_follower:
                found = count_follower(wanted, self._reader, found)
                if found.error is not None:
                    refused[wanted.partition] = found
            byte_count += found.byte_count
            ends_wait = ends_wait or found.ends_wait
            available.append(found)
            yield
        if ends_wait or byte_count >= min(self._min_bytes, self._bytes_max):
            self._is_done = True
            yield from self._read_in_slices(refused, runtime)
            return
        try:
            yield from self._wait_in_slices(runtime, max_wait_ms, available)
        except GeneratorExit:
            self._end()
            raise

    def _wait_in_slices(self, runtime: Runtime, max_wait_ms: int, available: Sequence[Located]) -> Steps:
        self._runtime = runtime
        for wanted, found in zip(self._wanted, available, strict=True):
            self._waiting[wanted.partition] = wanted
            self._available[wanted.partition] = found.byte_count
            self._available_bytes += found.byte_count
            wanted.partition.watch(self, to_log_end=self._reader.is_follower)
            yield
            if self._is_done:
                return
        self._timer = runtime.call_later(max_wait_ms, self.expire)
        self._observer.fetch_parked(self._reader.replica_id, self._available_bytes, self._min_bytes, max_wait_ms)

    def _read_in_slices(self, refused: Mapping[Partition, Located], runtime: Runtime | None = None) -> Steps:
        """Read the records, and answer. With a `runtime`, wait for later records; without one, leave them out."""
        reads: list[Read] = []
        later: dict[int, LaterRead] = {}
        room_bytes = self._slices.answer_room_bytes
        bytes_left = max(0, min(self._bytes_max, room_bytes))
        min_one_batch = room_bytes > 0
        for wanted in self._wanted:
            found = refused.get(wanted.partition)
            if found is None:
                found = locate(wanted, self._reader, bytes_left, min_one_batch=min_one_batch)
            if found.byte_count:
                min_one_batch = False
                bytes_left = max(0, bytes_left - found.byte_count)
                if found.found is not None and not isinstance(found.found, LogSlice):
                    later[len(reads)] = found.found
            reads.append(read(wanted, self._reader, found))
            yield
        if later and runtime is not None:
            self._wait_for_reads(runtime, reads, later)
        else:
            self._on_read(reads)

    def _read_with_later(self, located: Sequence[Located]) -> tuple[list[Read], dict[int, LaterRead]]:
        """Return the results that can be read now, and the later reads, by their index in `wanted`."""
        reads = [read(wanted, self._reader, found) for wanted, found in zip(self._wanted, located, strict=True)]
        later: dict[int, LaterRead] = {}
        for place, found in enumerate(located):
            if found.found is not None and not isinstance(found.found, LogSlice):
                later[place] = found.found
        return reads, later

    def _wait_for_reads(self, runtime: Runtime, reads: list[Read], later: Mapping[int, LaterRead]) -> None:
        self._outstanding = OutstandingReads(self._wanted, self._reader, reads, later, self._on_read, self._observer)
        self._outstanding.start(runtime)

    def partition_changed(self, partition: Partition) -> None:
        """Check a partition again: it may have more records, or an error to report."""
        self._without.pop(partition, None)
        wanted = self._waiting.get(partition)
        if self._is_done or self._is_due or wanted is None or self._runtime is None:
            return
        found = locate(wanted, self._reader, self._bytes_max, min_one_batch=True)
        self._available_bytes += found.byte_count - self._available[partition]
        self._available[partition] = found.byte_count
        if found.ends_wait:
            self._why = FetchEnd.PARTITION_CHANGED
            self.expire()
        elif self._available_bytes >= min(self._min_bytes, self._bytes_max):
            self._is_due = True
            self._why = FetchEnd.ENOUGH
            self._runtime.call_soon(self._answer)

    def expire(self) -> None:
        """Answer with the records that are available."""
        if self._outstanding is not None:
            self._outstanding.expire()
            return
        self._without.clear()
        self._answer()

    def _answer(self) -> None:
        if self._is_done:
            return
        if self._is_in_slices:
            self._end()
            self._slices.run(self._read_in_slices({}))
        else:
            self._finish(self._locate(self._slices.answer_room_bytes))

    def _locate(self, room_bytes: int) -> list[Located]:
        """Distribute the request's bytes over the partitions, in order.

        `room_bytes` is the room for answers that clients have yet to read. Without any, the answer to a parked Fetch
        has no records: the reader sends another Fetch, which is handled when there is room.
        """
        located: list[Located] = []
        bytes_left = max(0, min(self._bytes_max, room_bytes))
        min_one_batch = room_bytes > 0
        for wanted in self._wanted:
            found = self._without.get(wanted.partition)
            if found is None:
                found = locate(wanted, self._reader, bytes_left, min_one_batch=min_one_batch)
            if found.byte_count:
                min_one_batch = False
                bytes_left = max(0, bytes_left - found.byte_count)
                if not isinstance(found.found, LogSlice):
                    self._has_later = True
            located.append(found)
        return located

    def _finish(self, located: Sequence[Located]) -> None:
        self._end()
        self._on_read([read(wanted, self._reader, found) for wanted, found in zip(self._wanted, located, strict=True)])

    def _end(self) -> None:
        self._is_done = True
        if self._timer is not None:
            self._timer.cancel()
            self._observer.fetch_completed(self._reader.replica_id, self._available_bytes, self._why)
        for partition in self._waiting:
            partition.unwatch(self)
