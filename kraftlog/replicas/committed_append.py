"""An append by this broker as the leader of a partition, which ends when the required acks are reached.

| required acks | the append succeeds when |
|---|---|
| 1 | the leader has appended it, and with `flush.before.ack` flushed it |
| -1 (all) | the high watermark has passed it: all replicas in sync have it, and with `flush.before.ack` flushed it |

An append never times out: a caller with a time limit has its own timer, and calls `stop_waiting`. A Produce appends
like this, and so can a coordinator, with its own `Origin`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.kafka.notation import Buffer
from kraftlog.kafka.record_scan import ScanBudget
from kraftlog.replicas.partitions.partition import Partition
from kraftlog.storage.appends import Appended
from kraftlog.storage.produced_records import ProducedRecords
from kraftlog.storage.producer_states import Origin

ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1


class CommittedAppend:
    """One batch that is in the leader's log. For one thread."""

    __slots__ = ("_acks", "_leadership", "_on_done", "appended", "error", "is_done", "partition")

    def __init__(self, partition: Partition, appended: Appended, acks: int, *, is_done: bool) -> None:
        self.partition = partition
        self.appended = appended
        """The offsets of the batch."""
        self.error: ApiError | None = None
        """Why the append ended without reaching the required acks; the batch may be in the log all the same."""
        self.is_done = is_done
        """Whether the append has ended, or no caller waits; True at once if it needs neither a flush nor replicas."""
        self._acks = acks
        self._leadership = partition.leadership
        self._on_done: Callable[[CommittedAppend], None] | None = None

    def begin(self, on_done: Callable[[CommittedAppend], None]) -> None:
        """Request a flush if the topic requires one, and call `on_done` once when the append ends, perhaps at once.

        `error` is then None, or an ApiError: NOT_LEADER_OR_FOLLOWER if this broker has lost the leadership, even if it
        has regained it; KAFKA_STORAGE_ERROR if the disk fails; UNKNOWN_TOPIC_OR_PARTITION if the topic is deleted;
        NOT_ENOUGH_REPLICAS_AFTER_APPEND if the batch is committed but too few replicas are in sync by then.
        """
        self._on_done = on_done
        self._flush()

    def begin_unanswered(self) -> None:
        """Request a flush if the topic requires one, without a caller that waits: only readers need it."""
        self.stop_waiting()
        self._flush()

    def stop_waiting(self) -> None:
        """Do not call `on_done`. Readers see the batch all the same when it is committed."""
        self.is_done = True
        self._on_done = None
        self.partition.unwatch(self)

    def _flush(self) -> None:
        log = self.partition.log
        if log is None:
            self._flushed(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the log went offline after the append"))
        else:
            log.acknowledge(self.appended.end_offset, self._flushed)

    def _flushed(self, error: ApiError | None) -> None:
        """Continue after the leader's flush; `error` is None if it succeeded."""
        partition = self.partition
        if error is None:
            partition.raise_high_watermark()  # also if only readers wait
        if self.is_done:
            return
        if error is None and self._leadership != partition.leadership:
            # Consider a leader that has lost the leadership, truncated the batch, and leads again: the records that are
            # flushed and committed at these offsets now may be other ones.
            error = ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{partition} was led by another broker since the append, or its log was offline: try again",
            )
        if error is not None or self._acks == ACKS_LEADER:
            self._end(error)
        elif not self._ends():
            partition.watch(self)

    def partition_changed(self, partition: Partition) -> None:
        """Check the append again: the high watermark has moved, or the leader has changed."""
        if self._ends():
            partition.unwatch(self)

    def _ends(self) -> bool:
        """End the append if the high watermark has passed it, or never will; return whether it has ended."""
        partition = self.partition
        try:
            log = partition.leader_log()
        except ApiError as error:
            self._end(error)
            return True
        if log.high_watermark < self.appended.end_offset:
            return False
        too_few = None
        if not partition.has_enough_in_sync:
            too_few = ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                f"{partition} has fewer replicas in sync than min.insync.replicas requires; the records were appended",
            )
        self._end(too_few)
        return True

    def _end(self, error: ApiError | None) -> None:
        on_done, self._on_done = self._on_done, None
        self.error = error
        self.is_done = True
        if on_done is not None:
            on_done(self)


def append_as_leader(
    partition: Partition, data: Buffer, acks: int, now_ms: int, *, origin: Origin = Origin.CLIENT,
    budget: ScanBudget | None = None, records: ProducedRecords | None = None,
) -> CommittedAppend:  # fmt: skip
    """Append the one batch in `data`. `now_ms` is the wall clock; for the rest see `PartitionLog.append_as_leader`.

    Raises ApiError before anything is appended: the errors of `Partition.leader_log`, NOT_ENOUGH_REPLICAS if too few
    are in sync for acks=all, and the errors of `PartitionLog.append_as_leader`, which may also raise NotReadYet.
    """
    log = partition.log
    if log is None or not partition.is_leader:
        log = partition.leader_log()  # raises the right error
    if acks == ACKS_ALL and not partition.has_enough_in_sync:
        raise ApiError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{len(partition.isr)} replicas of {partition} are in sync, fewer than the"
            f" {partition.effective_min_isr} of min.insync.replicas",
        )
    appended = log.append_as_leader(data, partition.leader_epoch, now_ms, origin, budget, records)
    partition.appended()
    is_done = not log.config.is_flushed and (
        acks == ACKS_LEADER or (log.high_watermark > appended.last_offset and partition.has_enough_in_sync)
    )
    return CommittedAppend(partition, appended, acks, is_done=is_done)
