"""One partition of which this broker has a replica: what the metadata says of it, and its log.

The high watermark of a leader is the smallest end of the replicas in sync. Of its own log only what may be lost in no
crash counts if the topic has `flush.before.ack`: consider a record at offset 5 that a consumer has read, and that was
not flushed when power was lost. Another record gets offset 5, and the two never agree. So it is shown when it is
durable, which is also when acks=all is acknowledged.

Whoever waits for a partition, a parked Fetch or a Produce with acks=all, watches it, and is told of everything that may
end the wait: the high watermark has moved, the broker leads no more, the log is offline.
"""

from __future__ import annotations

from typing import Final, Protocol

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.broker.log.partition_log import PartitionLog
from kraftpb.v1.metadata_pb2 import PartitionRecord
from statemachine.query.partition_descriptions import TopicPartition

NO_EPOCH: Final = -1


class Watcher(Protocol):
    """Somebody who waits for something of partitions."""

    def partition_changed(self, partition: Partition) -> None:
        """Something that may end the wait has changed. May call `Partition.unwatch`."""
        ...


class Partition:
    """A replica on this broker. For one thread."""

    __slots__ = (
        "_broker_id",
        "_offline_code",
        "_offline_reason",
        "_record",
        "_watchers",
        "has_enough_in_sync",
        "is_alone_in_sync",
        "is_leader",
        "leader_epoch",
        "log",
        "min_insync_replicas",
        "name",
        "topic_id",
    )
    # What every request asks is worked out when the metadata changes: a field of a protobuf message costs a call.

    def __init__(
        self, broker_id: int, name: TopicPartition, record: PartitionRecord, min_insync_replicas: int = 1
    ) -> None:
        self.name = name
        self.topic_id: bytes = record.topic_id
        self.log: PartitionLog | None = None
        """None: it is offline, or not here any more."""
        self._offline_code = ErrorCode.KAFKA_STORAGE_ERROR
        self._offline_reason = "its log is not open yet"
        self._broker_id = broker_id
        self._watchers: dict[Watcher, None] = {}
        self.is_leader = False
        """Whether this broker leads it."""
        self.leader_epoch = NO_EPOCH
        """The epoch of its leader."""
        self.is_alone_in_sync = False
        """Whether no other replica is in sync."""
        self.has_enough_in_sync = False
        """Whether so many replicas are in sync that something may be committed (DB-23)."""
        self.min_insync_replicas = min_insync_replicas
        """The topic's `min.insync.replicas`."""
        self._record = record
        self._take_over()

    # --- what it is ---------------------------------------------------------------------------------------------------

    @property
    def record(self) -> PartitionRecord:
        """What the metadata says. It must not be changed."""
        return self._record

    def update(self, record: PartitionRecord, min_insync_replicas: int) -> None:
        """The metadata says something else."""
        self._record = record
        self.min_insync_replicas = min_insync_replicas
        self._take_over()

    def _take_over(self) -> None:
        record = self._record
        isr = list(record.isr)
        self.is_leader = record.leader == self._broker_id
        self.leader_epoch = record.leader_epoch
        self.is_alone_in_sync = isr == [self._broker_id]
        self.has_enough_in_sync = len(isr) >= self.effective_min_isr

    def online_log(self) -> PartitionLog:
        """Its log. Raises ApiError: KAFKA_STORAGE_ERROR, or as `close` was told."""
        if self.log is None:
            raise ApiError(self._offline_code, self._offline_reason)
        return self.log

    @property
    def offline_reason(self) -> str:
        """Why it has no log; empty if it has one."""
        return self._offline_reason if self.log is None else ""

    def close(self, error: ApiError) -> None:
        """It has no log any more; who waits for it is told, and gets `error`, as everybody after him."""
        self.log = None
        self._offline_code, self._offline_reason = error.code, str(error)
        self.notify()

    def leader_log(self, current_leader_epoch: int = NO_EPOCH, *, must_lead: bool = True) -> PartitionLog:
        """Its log, if this broker leads it or need not, in the epoch that the caller knows of.

        Raises ApiError: NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH for an older epoch, UNKNOWN_LEADER_EPOCH for one
        that this broker has not heard of, or as `online_log` (DB-50).
        """
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise ApiError(
                    ErrorCode.FENCED_LEADER_EPOCH,
                    f"{self} is in leader epoch {self.leader_epoch}, and {current_leader_epoch} is over: ask for"
                    " the metadata again",
                )
            raise ApiError(
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"{self} is in leader epoch {self.leader_epoch} as far as this broker knows, not in"
                f" {current_leader_epoch}: try again",
            )
        if must_lead and not self.is_leader:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self} is led by broker {self.record.leader}: ask for the metadata again",
            )
        return self.online_log()

    def __str__(self) -> str:
        return f"{self.name.topic}-{self.name.partition_id}"

    # --- the high watermark -------------------------------------------------------------------------------------------

    @property
    def effective_min_isr(self) -> int:
        """How many replicas must be in sync for anything to be committed: not more than there are (DB-22)."""
        return min(self.min_insync_replicas, len(self.record.replicas))

    def raise_high_watermark(self) -> None:
        """Show readers what is committed by now, and tell those who wait for it (DB-21).

        Followers do not fetch yet: while another replica is in sync, nothing is committed. Nor is anything while too
        few are in sync: a replica that has left them, and may be elected for it, has all that is committed (KIP-966).
        """
        log = self.log
        if log is None or not self.is_leader or not self.is_alone_in_sync or not self.has_enough_in_sync:
            return
        end_offset = log.recovery_point if log.config.flush_before_ack else log.log_end_offset
        if end_offset > log.high_watermark:
            log.advance_high_watermark(min(end_offset, log.log_end_offset))
            self.notify()

    # --- those who wait -----------------------------------------------------------------------------------------------

    @property
    def watcher_count(self) -> int:
        """How many wait."""
        return len(self._watchers)

    def watch(self, watcher: Watcher) -> None:
        """Tell `watcher` of changes."""
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        """Tell it no more; nothing happens if it does not watch."""
        self._watchers.pop(watcher, None)

    def notify(self) -> None:
        """Tell those who wait that something has changed."""
        for watcher in list(self._watchers):
            watcher.partition_changed(self)
