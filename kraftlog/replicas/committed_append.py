"""An append that this broker makes as the leader of a partition, and that is over when it is as safe as was asked for.

| required acks | it ends well when |
|---|---|
| 1 | the leader has appended it, and with `flush.before.ack` flushed it |
| -1 (all) | the high watermark has passed it: all replicas in sync have it, and with `flush.before.ack` flushed it |

It never times out: whoever may wait only so long has a timer, and stops waiting. A Produce appends so, and so can a
coordinator, with an origin of its own.
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
        """The offsets that it has."""
        self.error: ApiError | None = None
        """Why it is over without being as safe as was asked for; it may be in the log all the same."""
        self.is_done = is_done
        """Whether it is over, or nobody waits. If so after the append, no flush and no replica is waited for."""
        self._acks = acks
        self._leadership = partition.leadership
        self._on_done: Callable[[CommittedAppend], None] | None = None

    def begin(self, on_done: Callable[[CommittedAppend], None]) -> None:
        """Have it flushed if the topic asks for that, and call back once when it is over, which may be at once.

        Then `error` is None, or an ApiError: NOT_LEADER_OR_FOLLOWER if this broker leads no more, or does so again;
        KAFKA_STORAGE_ERROR if the disk fails; UNKNOWN_TOPIC_OR_PARTITION if the topic is deleted;
        NOT_ENOUGH_REPLICAS_AFTER_APPEND if it is committed and too few replicas are in sync by then.
        """
        self._on_done = on_done
        self._flush()

    def begin_unanswered(self) -> None:
        """Have it flushed if the topic asks for that, for its readers only."""
        self.stop_waiting()
        self._flush()

    def stop_waiting(self) -> None:
        """Nobody is called back. Its readers see it all the same when it is committed."""
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
        """The leader has it on its disk, or has not."""
        partition = self.partition
        if error is None:
            partition.raise_high_watermark()  # also if nobody waits for it but readers
        if self.is_done:
            return
        if error is None and self._leadership != partition.leadership:
            # Consider a leader that has led no more, cut what it had appended, and leads again: what is flushed and
            # committed at these offsets now may be another's.
            error = ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{partition} was led by another broker since the append, or its log was offline: try again",
            )
        if error is not None or self._acks == ACKS_LEADER:
            self._end(error)
        elif not self._ends():
            partition.watch(self)

    def partition_changed(self, partition: Partition) -> None:
        """The high watermark has moved, or another broker leads."""
        if self._ends():
            partition.unwatch(self)

    def _ends(self) -> bool:
        """Whether the high watermark has passed it, or never will."""
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
                f"{partition} has fewer replicas in sync than min.insync.replicas asks for; the records were appended",
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
    """Append the one batch in `data`. `now_ms` is wall clock time; `budget` and `records` are as PartitionLog has them.

    Raises ApiError, and nothing is appended: first as `Partition.leader_log`, then NOT_ENOUGH_REPLICAS if too few are
    in sync for acks=all, then as `PartitionLog.append_as_leader`, which may raise NotReadYet, too.
    """
    log = partition.log
    if log is None or not partition.is_leader:
        log = partition.leader_log()  # raises, and says why
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
