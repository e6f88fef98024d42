"""A Fetch with later reads (DB-119): the records that were read at once are kept until all of them have ended.

The Fetch is answered when one of these happens:

- every later read has ended, with records or with an error, which is the result of its partition alone;
- the longest time limit of its reads is over, its client is gone, or other requests need its memory;
- a partition whose read has not ended has a new leader epoch, is deleted, or has lost its log.

Unfinished reads are then cancelled. Their partitions have no records and no error in the response, so that the reader
fetches them again; a partition that ended the wait has its error, if there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from kraftbase.errors import ApiError
from kraftbase.runtime import Runtime, Timer
from kraftlog.replicas.partitions.later_read import LaterRead, LaterResult
from kraftlog.replicas.partitions.partition import Partition
from kraftlog.replicas.partitions.reading import Read, Reader, ReadFrom, with_later
from kraftlog.telemetry.observer import BrokerObserver, FetchEnd


class OutstandingReads:
    """The later reads of one consumer's Fetch, and its other results. For one thread."""

    def __init__(
        self,
        wanted: Sequence[ReadFrom],
        reader: Reader,
        kept: list[Read],
        later: Mapping[int, LaterRead],
        on_read: Callable[[list[Read]], None],
        observer: BrokerObserver,
    ) -> None:
        """`kept` has a result for each of `wanted`. The reads in `later`, by their index in `kept`, complete it.

        `on_read` is called once, with the completed `kept`.
        """
        self._wanted = wanted
        self._reader = reader
        self._kept = kept
        self._later = later
        self._outstanding: dict[int, LaterRead] = {}
        """The reads that have begun and not ended, by index."""
        self._places = {wanted[place].partition: place for place in later}
        self._epochs = {partition: partition.leader_epoch for partition in self._places}
        self._on_read = on_read
        self._observer = observer
        self._timer: Timer | None = None
        self._byte_count = 0
        """The bytes that the later reads have returned."""
        self._is_starting = False
        self._is_done = False

    @property
    def is_waiting(self) -> bool:
        """Whether the Fetch is still unanswered."""
        return not self._is_done

    def start(self, runtime: Runtime) -> None:
        """Begin all reads; answer at once if all end within this call."""
        max_wait_ms = max(read.max_wait_ms for read in self._later.values())
        self._observer.fetch_reads_later(len(self._later), max_wait_ms)
        self._timer = runtime.call_later(max_wait_ms, self.expire)
        for partition in self._places:
            partition.watch(self)
        self._is_starting = True
        for place, read in self._later.items():
            if self._is_done:
                return  # a read that was started has found its log offline
            self._outstanding[place] = read
            read.start(partial(self._read_done, place))
        self._is_starting = False
        self._end_if_complete()

    def _read_done(self, place: int, result: LaterResult) -> None:
        if self._outstanding.pop(place, None) is None:
            return  # the read was cancelled
        self._wanted[place].partition.unwatch(self)
        self._kept[place] = with_later(self._kept[place], result)
        self._byte_count += len(self._kept[place].records)
        self._end_if_complete()

    def _end_if_complete(self) -> None:
        if not self._outstanding and not self._is_starting:
            self._end(FetchEnd.READS_DONE)

    def partition_changed(self, partition: Partition) -> None:
        """End the wait if the partition has an error or a new leader epoch."""
        place = self._places[partition]
        wanted = self._wanted[place]
        try:
            partition.leader_log(wanted.current_leader_epoch, must_lead=self._reader.must_lead)
        except ApiError as error:
            self._kept[place] = Read(error.with_traceback(None))
            self._end(FetchEnd.PARTITION_CHANGED)
            return
        if partition.leader_epoch != self._epochs[partition]:
            self._end(FetchEnd.PARTITION_CHANGED)

    def expire(self) -> None:
        """Answer with the results so far."""
        self._end(FetchEnd.READS_CANCELLED)

    def _end(self, why: FetchEnd) -> None:
        if self._is_done:
            return
        self._is_done = True
        if self._timer is not None:
            self._timer.cancel()
        for partition in self._places:
            partition.unwatch(self)
        cancelled, self._outstanding = self._outstanding, {}
        for read in cancelled.values():
            read.cancel()
        self._observer.fetch_completed(self._reader.replica_id, self._byte_count, why)
        self._on_read(self._kept)
