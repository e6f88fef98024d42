"""One partition of which this broker has a replica: its metadata, its log, and the high watermark of a leader.

A leader's high watermark is the smallest log end offset of the replicas in sync. If the topic has `flush.before.ack`,
only flushed records count as the leader's own. Consider a record at offset 5 that a consumer has read, and that was not
flushed when the power failed: another record gets offset 5, and consumers disagree for good. So a record is shown to
consumers only when it is durable, which is also when acks=all is acknowledged. Followers do the same: they fetch from
the end of the flushed part of their logs.

A parked Fetch or a Produce with acks=all watches the partition, and is notified of everything that may end the wait:
the high watermark has moved, the broker no longer leads, the log is offline. A follower's parked Fetch waits for the
log end offset instead, so that it is answered during the leader's own flush.
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
    """A request that waits for a change of partitions."""

    def partition_changed(self, partition: Partition) -> None:
        """Handle a change that may end the wait. May call `Partition.unwatch`."""
        ...


@dataclass(slots=True)
class Replication:
    """The dependencies and settings that all leaders on a broker share."""

    broker_id: int
    brokers: Brokers
    lag_max_ms: float
    """Kafka's `replica.lag.time.max.ms`."""
    now_ms: Callable[[], float]
    """The monotonic clock, in milliseconds."""
    ask_for_isr: Callable[[Partition, tuple[int, ...]], None]
    """Requests a change of a partition's ISR from the controller."""
    observer: BrokerObserver


class Partition:
    """A partition's replica on this broker. For one thread."""

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
    # Fields that every request reads are set when the metadata changes: a field of a protobuf message costs a call.

    def __init__(
        self, name: TopicPartition, record: PartitionRecord, replication: Replication, min_insync_replicas: int = 1
    ) -> None:
        self.name = name
        self.topic_id: bytes = record.topic_id
        self.log: PartitionLog | None = None
        """The log; None if it is offline, or the replica was removed."""
        self._offline_error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "its log is not open yet")
        self._replication = replication
        self._watchers: dict[Watcher, None] = {}
        self._followers_waiting: dict[Watcher, None] = {}
        self.is_leader = False
        """Whether this broker is the leader by the metadata."""
        self.leader_epoch = UNKNOWN_EPOCH
        """The leader epoch in the metadata."""
        self.leadership = 0
        """A number that changes each time that this broker stops leading, or the log goes offline."""
        self.leading: Leading | None = None
        """The leader's state of its followers, if this broker leads and the log is online."""
        self.has_enough_in_sync = False
        """Whether enough replicas are in sync for records to be committed (DB-23)."""
        self.min_insync_replicas = min_insync_replicas
        """The topic's `min.insync.replicas`."""
        self._record = record
        self._take_over()

    # --- metadata and log ---------------------------------------------------------------------------------------------

    @property
    def record(self) -> PartitionRecord:
        """The partition's record in the metadata, which must not be changed."""
        return self._record

    @property
    def index(self) -> int:
        """The partition's number."""
        return self.name.partition_id

    def update(self, record: PartitionRecord, min_insync_replicas: int) -> None:
        """Apply a newer record of the metadata, or a new `min.insync.replicas`."""
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
        """The replicas in sync; on the leader by the controller's last answer, which may be ahead of the metadata."""
        return tuple(self._record.isr) if self.leading is None else self.leading.isr

    def online_log(self) -> PartitionLog:
        """Return the log. Raises ApiError if it is offline: KAFKA_STORAGE_ERROR, or the error that `close` got."""
        if self.log is None:
            raise ApiError(self._offline_error.code, self._offline_error.args[0])
        return self.log

    @property
    def offline_reason(self) -> str:
        """Why the log is offline; empty if it is online."""
        return str(self._offline_error) if self.log is None else ""

    def close(self, error: ApiError) -> None:
        """Take the log offline: current watchers and later callers get `error`."""
        self.log = None
        self.stop_leading()
        self._offline_error = error
        self.notify_all()

    def leader_log(self, current_leader_epoch: int = UNKNOWN_EPOCH, *, must_lead: bool = True) -> PartitionLog:
        """Return the log, after checks of the caller's leader epoch and, with `must_lead`, of the leadership.

        Raises ApiError: NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH for an older epoch, UNKNOWN_LEADER_EPOCH for an
        epoch that this broker does not know yet, or the error of `online_log` (DB-50).
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
                f"{self} is in leader epoch {self.leader_epoch} by this broker's metadata, not yet in"
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
        """Begin to lead in the leader epoch of the metadata, unless this broker does already, or the log is offline.

        The epoch is added to the log before its first record, at the log end offset (DB-68). The caller raises the
        high watermark, which acknowledges records, after it has notified the leadership listeners.
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
        """Stop leading, and forget the state of the followers: another broker leads, or none."""
        if self.leading is not None:
            self._decided(LeadershipEnded(self.name, self.leading.leader_epoch))
        self.leading = None
        self.leadership += 1

    def _decided(self, decision: Decision) -> None:
        self._replication.observer.decided(decision)

    def check_isr(self) -> None:
        """Request the removal of replicas that are not caught up from the ISR (DB-15)."""
        leading, log = self.leading, self.log
        if leading is None or log is None:
            return
        wanted = leading.isr_without_lagging(log.log_end_offset, self._replication.now_ms())
        if wanted is not None:
            self._replication.ask_for_isr(self, wanted)

    def check_follower(self, replica_id: int, current_leader_epoch: int) -> None:
        """Raise the ApiError of `Leading.follower` if a broker that fetches has no replica (DB-07)."""
        if self.leading is not None:
            self.leading.follower(replica_id, names_epoch=current_leader_epoch != UNKNOWN_EPOCH, name=self)

    def follower_fetched(self, replica_id: int, broker_epoch: int, offset: int, log_start_offset: int) -> None:
        """Note that a follower has every record below `offset`. Raises ApiError by DB-07 and DB-61."""
        leading, log = self.leading, self.log
        if leading is None or log is None:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {self}: ask for the metadata again"
            )
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
            self.notify()  # DeleteRecords waits for it (DB-65)

    def isr_settled(self) -> None:
        """Apply the end of a requested ISR change, made or refused: the high watermark may rise."""
        self._count_in_sync()
        self.raise_high_watermark()
        self.notify()

    def followers_with(self, offset: int) -> dict[int, int]:
        """Return the log end offsets of in-sync followers whose logs contain an offset, or end there (KIP-392)."""
        if self.leading is None:
            return {}
        return {
            replica: follower.log_end_offset
            for replica, follower in self.leading.followers.items()
            if replica in self.leading.isr and 0 <= follower.log_start_offset <= offset <= follower.log_end_offset
        }

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset of the live replicas, as this leader knows them (DB-65)."""
        own = self.online_log().log_start_offset
        return own if self.leading is None else min(own, self.leading.low_watermark)

    def describe_replicas(self) -> list[ReplicaStatus]:
        """Describe every replica as its leader sees it; empty if this broker does not lead."""
        leading, log = self.leading, self.log
        if leading is None or log is None:
            return []
        return leading.describe(
            log.log_start_offset, log.log_end_offset, log.high_watermark, self._replication.now_ms()
        )

    # --- following ----------------------------------------------------------------------------------------------------

    def follower_appended(self, high_watermark: int, leader_log_start_offset: int) -> None:
        """Follow the leader's high watermark and log start offset, after its records were appended (DB-25, DB-33).

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
        """The number of replicas that must be in sync for a commit: at most the number of replicas (DB-22)."""
        return min(self.min_insync_replicas, len(self.record.replicas))

    def appended(self) -> None:
        """Note an append by the leader: notify followers, and without `flush.before.ack` raise the high watermark."""
        if self._followers_waiting:
            for watcher in list(self._followers_waiting):
                watcher.partition_changed(self)
        if self.log is not None and not self.log.config.flush_before_ack:
            self.raise_high_watermark()

    def raise_high_watermark(self) -> None:
        """Raise the high watermark to the committed offset, and notify the watchers (DB-20, DB-21).

        Nothing is committed while too few replicas are in sync: a replica that then leaves the ISR remains eligible to
        lead, since it has every committed record (KIP-966).
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

    # --- watchers -----------------------------------------------------------------------------------------------------

    @property
    def watcher_count(self) -> int:
        """The number of watchers."""
        return len(self._watchers) + len(self._followers_waiting)

    def watch(self, watcher: Watcher, *, to_log_end: bool = False) -> None:
        """Notify `watcher` of changes of the high watermark, or with `to_log_end` of the log end offset."""
        waiting = self._followers_waiting if to_log_end else self._watchers
        waiting[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        """Stop notifying a watcher, if it is one."""
        self._watchers.pop(watcher, None)
        self._followers_waiting.pop(watcher, None)

    def notify(self) -> None:
        """Notify the watchers of the high watermark."""
        for watcher in list(self._watchers):
            watcher.partition_changed(self)

    def notify_all(self) -> None:
        """Notify all watchers, followers' Fetches included: the leader, the leader epoch or the log has changed."""
        self.notify()
        for watcher in list(self._followers_waiting):
            watcher.partition_changed(self)
