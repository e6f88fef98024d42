"""One partition of which this broker has a replica: what the metadata says of it, and its log.

The high watermark of a leader is the smallest end of the replicas in sync. Of its own log only what may be lost in no
crash counts if the topic has `flush.before.ack`: consider a record at offset 5 that a consumer has read, and that was
not flushed when power was lost. Another record gets offset 5, and the two never agree. So it is shown when it is
durable, which is also when acks=all is acknowledged. Followers do the same: they fetch from where their disk ends.

Whoever waits for a partition, a parked Fetch or a Produce with acks=all, watches it, and is told of everything that may
end the wait: the high watermark has moved, the broker leads no more, the log is offline. A follower's parked Fetch
waits for the log's end instead, so that it is answered while the leader's own flush is under way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.partition import TopicPartition
from kraftbase.sentinels import UNKNOWN_EPOCH
from kraftlog.replicas.replication.leading import Brokers, Leading, ReplicaStatus
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.telemetry.observer import (
    BrokerObserver,
    Decision,
    LeadershipBegun,
    LeadershipEnded,
    LeadershipRefused,
    ReplicaStaysOut,
)
from kraftpb.v1.metadata_pb2 import PartitionRecord


class Watcher(Protocol):
    """Somebody who waits for something of partitions."""

    def partition_changed(self, partition: Partition) -> None:
        """Something that may end the wait has changed. May call `Partition.unwatch`."""
        ...


@dataclass(slots=True)
class Replication:
    """What all leaders on a broker have in common."""

    broker_id: int
    brokers: Brokers
    lag_max_ms: float
    """Kafka's `replica.lag.time.max.ms`."""
    now_ms: Callable[[], float]
    """Monotonic time."""
    ask_for_isr: Callable[[Partition, tuple[int, ...]], None]
    """Has the controller change an ISR."""
    observer: BrokerObserver


class Partition:
    """A replica on this broker. For one thread."""

    __slots__ = (
        "_followers_waiting",
        "_offline_error",
        "_record",
        "_replication",
        "_watchers",
        "has_enough_in_sync",
        "is_leader",
        "leader_epoch",
        "leadership",
        "leading",
        "log",
        "min_insync_replicas",
        "name",
        "topic_id",
    )
    # What every request asks is worked out when the metadata changes: a field of a protobuf message costs a call.

    def __init__(
        self, name: TopicPartition, record: PartitionRecord, replication: Replication, min_insync_replicas: int = 1
    ) -> None:
        self.name = name
        self.topic_id: bytes = record.topic_id
        self.log: PartitionLog | None = None
        """None: it is offline, or not here any more."""
        self._offline_error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "its log is not open yet")
        self._replication = replication
        self._watchers: dict[Watcher, None] = {}
        self._followers_waiting: dict[Watcher, None] = {}
        self.is_leader = False
        """Whether this broker leads it."""
        self.leader_epoch = UNKNOWN_EPOCH
        """The epoch of its leader."""
        self.leadership = 0
        """Another number after each time that this broker has ceased to lead, or its log has gone."""
        self.leading: Leading | None = None
        """What its leader knows of its followers, if this broker leads it and the log is online."""
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

    @property
    def index(self) -> int:
        """Its number."""
        return self.name.partition_id

    def update(self, record: PartitionRecord, min_insync_replicas: int) -> None:
        """The metadata says something else."""
        self._record = record
        self.min_insync_replicas = min_insync_replicas
        self._take_over()

    def _take_over(self) -> None:
        record = self._record
        self.is_leader = record.leader == self._replication.broker_id
        self.leader_epoch = record.leader_epoch
        if self.leading is not None and self.leading.leader_epoch == record.leader_epoch:
            self.leading.update(record)
        self._count_in_sync()

    def _count_in_sync(self) -> None:
        self.has_enough_in_sync = len(self.isr) >= self.effective_min_isr

    @property
    def isr(self) -> tuple[int, ...]:
        """The replicas in sync: as the controller has answered this leader, which the metadata may not say yet."""
        return tuple(self._record.isr) if self.leading is None else self.leading.isr

    def online_log(self) -> PartitionLog:
        """Its log. Raises ApiError: KAFKA_STORAGE_ERROR, or as `close` was told."""
        if self.log is None:
            raise ApiError(self._offline_error.code, self._offline_error.args[0])
        return self.log

    @property
    def offline_reason(self) -> str:
        """Why it has no log; empty if it has one."""
        return str(self._offline_error) if self.log is None else ""

    def close(self, error: ApiError) -> None:
        """It has no log any more; who waits for it is told, and gets `error`, as everybody after him."""
        self.log = None
        self.stop_leading()
        self._offline_error = error
        self.notify_all()

    def leader_log(self, current_leader_epoch: int = UNKNOWN_EPOCH, *, must_lead: bool = True) -> PartitionLog:
        """Its log, if this broker leads it or need not, in the epoch that the caller knows of.

        Raises ApiError: NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH for an older epoch, UNKNOWN_LEADER_EPOCH for one
        that this broker has not heard of, or as `online_log` (DB-50).
        """
        if current_leader_epoch != UNKNOWN_EPOCH and current_leader_epoch != self.leader_epoch:
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

    # --- leading ------------------------------------------------------------------------------------------------------

    def lead(self) -> None:
        """This broker leads in the epoch that the metadata says; nothing is begun if it has that one, or no log.

        The epoch begins before its first record (DB-68): it is where the log of every earlier one ends. The caller
        raises the high watermark when the listeners have heard of the leadership: that acknowledges records.
        """
        if self.log is None or not self.is_leader:
            if self.is_leader:
                self._decided(LeadershipRefused(self.name, self.leader_epoch, str(self._offline_error)))
            return
        if self.leading is None or self.leading.leader_epoch != self.leader_epoch:
            self.log.assign_epoch(self.leader_epoch)
            replication = self._replication
            self.leading = Leading(
                replication.broker_id, self._record, replication.brokers, replication.lag_max_ms,
                self.log.log_end_offset, replication.now_ms(), self.leading,
            )  # fmt: skip
            self._decided(LeadershipBegun(self.name, self.leader_epoch, self.leading.epoch_start_offset))
        self._count_in_sync()

    def stop_leading(self) -> None:
        """Another broker leads, or none: nothing is known of followers any more."""
        if self.leading is not None:
            self._decided(LeadershipEnded(self.name, self.leading.leader_epoch))
        self.leading = None
        self.leadership += 1

    def _decided(self, decision: Decision) -> None:
        self._replication.observer.decided(decision)

    def check_isr(self) -> None:
        """Have those leave the ISR that are not caught up (DB-15)."""
        leading, log = self.leading, self.log
        if leading is None or log is None:
            return
        wanted = leading.isr_without_lagging(log.log_end_offset, self._replication.now_ms())
        if wanted is not None:
            self._replication.ask_for_isr(self, wanted)

    def check_follower(self, replica_id: int, current_leader_epoch: int) -> None:
        """Raise ApiError if a broker that fetches has no replica, as `Leading.follower` does (DB-07)."""
        if self.leading is not None:
            self.leading.follower(replica_id, names_epoch=current_leader_epoch != UNKNOWN_EPOCH, name=self)

    def follower_fetched(self, replica_id: int, broker_epoch: int, offset: int, log_start_offset: int) -> None:
        """A follower has everything below `offset`. Raises ApiError(NOT_LEADER_OR_FOLLOWER) as DB-07 and DB-61 say."""
        leading, log = self.leading, self.log
        if leading is None or log is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self} is not led here: ask for the metadata again")
        now_ms = self._replication.now_ms()
        follower = leading.follower(replica_id, names_epoch=False, name=self)
        leading.check_broker_epoch(replica_id, broker_epoch, name=self)
        start_before = follower.log_start_offset
        follower.fetched(offset, log_start_offset, log.log_end_offset, now_ms, broker_epoch)
        self.raise_high_watermark()
        if leading.wants_to_join(replica_id, log.high_watermark, log.log_end_offset, now_ms):
            self._replication.ask_for_isr(self, (*leading.isr, replica_id))
        elif self._replication.observer.wants_details and replica_id not in leading.isr:
            reasons = leading.why_out(replica_id, log.high_watermark, log.log_end_offset, now_ms)
            self._decided(ReplicaStaysOut(self.name, replica_id, reasons))
        if log_start_offset != start_before:
            self.notify()  # who deletes records waits for it (DB-65)

    def isr_settled(self) -> None:
        """The controller has changed the ISR as this leader has asked, or will not."""
        self._count_in_sync()
        self.raise_high_watermark()
        self.notify()

    def followers_with(self, offset: int) -> dict[int, int]:
        """The ends of the followers in sync whose logs have an offset, or end there (KIP-392)."""
        if self.leading is None:
            return {}
        return {
            replica: follower.log_end_offset
            for replica, follower in self.leading.followers.items()
            if replica in self.leading.isr and 0 <= follower.log_start_offset <= offset <= follower.log_end_offset
        }

    @property
    def low_watermark(self) -> int:
        """The smallest offset at which a living replica starts, as far as this leader knows (DB-65)."""
        own = self.online_log().log_start_offset
        return own if self.leading is None else min(own, self.leading.low_watermark)

    def describe_replicas(self) -> list[ReplicaStatus]:
        """Every replica as its leader sees it; empty if this broker does not lead."""
        leading, log = self.leading, self.log
        if leading is None or log is None:
            return []
        return leading.describe(
            log.log_start_offset, log.log_end_offset, log.high_watermark, self._replication.now_ms()
        )

    # --- following ----------------------------------------------------------------------------------------------------

    def follower_appended(self, high_watermark: int, leader_log_start_offset: int) -> None:
        """The leader's answer is in the log: high watermark and log start follow the leader's (DB-25, DB-33).

        Raises ApiError(KAFKA_STORAGE_ERROR).
        """
        log = self.online_log()
        before = log.high_watermark
        log.advance_high_watermark(min(high_watermark, log.log_end_offset))
        start_offset = min(leader_log_start_offset, log.high_watermark)
        if start_offset > log.log_start_offset:
            log.delete_records(start_offset)
        if log.high_watermark != before:
            self.notify()

    # --- the high watermark -------------------------------------------------------------------------------------------

    @property
    def effective_min_isr(self) -> int:
        """How many replicas must be in sync for anything to be committed: not more than there are (DB-22)."""
        return min(self.min_insync_replicas, len(self.record.replicas))

    def appended(self) -> None:
        """The leader has appended: followers may fetch it, and readers if nobody waits for a disk."""
        if self._followers_waiting:
            for watcher in list(self._followers_waiting):
                watcher.partition_changed(self)
        if self.log is not None and not self.log.config.flush_before_ack:
            self.raise_high_watermark()

    def raise_high_watermark(self) -> None:
        """Show readers what is committed by now, and tell those who wait for it (DB-20, DB-21).

        Nothing is committed while too few are in sync: a replica that has left them, and may be elected for it, has all
        that is committed (KIP-966).
        """
        log, leading = self.log, self.leading
        if log is None or leading is None or not self.has_enough_in_sync:
            return
        log_end = log.log_end_offset
        end_offset = min(log.recovery_point, log_end) if log.config.flush_before_ack else log_end
        if end_offset <= log.high_watermark:
            return
        if leading.followers:
            end_offset = leading.high_watermark(end_offset, log_end, self._replication.now_ms())
        if end_offset > log.high_watermark:
            log.advance_high_watermark(end_offset)
            if self._watchers:
                self.notify()

    # --- those who wait -----------------------------------------------------------------------------------------------

    @property
    def watcher_count(self) -> int:
        """How many wait."""
        return len(self._watchers) + len(self._followers_waiting)

    def watch(self, watcher: Watcher, *, to_log_end: bool = False) -> None:
        """Tell `watcher` of changes: of the high watermark, or of the log's end."""
        waiting = self._followers_waiting if to_log_end else self._watchers
        waiting[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        """Tell it no more; nothing happens if it does not watch."""
        self._watchers.pop(watcher, None)
        self._followers_waiting.pop(watcher, None)

    def notify(self) -> None:
        """Tell those who wait that something has changed."""
        for watcher in list(self._watchers):
            watcher.partition_changed(self)

    def notify_all(self) -> None:
        """Tell everybody, followers included, that the partition itself has changed: its leader, its epoch, its log."""
        self.notify()
        for watcher in list(self._followers_waiting):
            watcher.partition_changed(self)
