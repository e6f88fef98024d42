"""A partition that this broker follows: applies the decisions of `following` to its log."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

import structlog

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.kafka.messages.fetch import FetchPartition
from kraftlog.replicas.replication.fetch_session import PartitionKey
from kraftlog.replicas.replication.following import Append, LogView, Phase, StartOver, Truncate, first_phase
from kraftlog.replicas.replication.ports import Followable
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.telemetry.observer import BrokerObserver, LogStartedOver, LogTruncated

logger = structlog.get_logger(__name__)

_RECOVERING: Final = 1
"""The leader recovery state of a partition whose leader was elected uncleanly (KIP-704)."""


class State(Enum):
    """Whether a partition may be fetched, and if not, why."""

    READY = auto()
    FLUSHING = auto()
    """The records up to the next fetch offset are not yet durable."""
    ASKING = auto()
    """The leader is asked for its log start and end offsets."""
    DELAYED = auto()
    """The partition is fetched again after a pause."""
    THROTTLED = auto()
    """The partition is left out while the quota is exceeded."""
    STOPPED = auto()
    """Not fetched until the metadata has a newer leader epoch, or the log is online again."""


class FollowedPartition:
    """A followed partition in one leader epoch."""

    __slots__ = (
        "_has_followed",
        "_observer",
        "expected_errors",
        "key",
        "lag",
        "leader_epoch",
        "partition",
        "phase",
        "said",
        "state",
    )

    def __init__(self, partition: Followable, key: PartitionKey, observer: BrokerObserver) -> None:
        self._observer = observer
        self.partition = partition
        self.key = key
        self.leader_epoch = partition.leader_epoch
        self.state = State.READY
        self.phase: Phase | None = None
        """None before its first request."""
        self.lag: int | None = None
        """The number of committed offsets that were missing after the last response; None before the first."""
        self.expected_errors = 0
        """The number of consecutive errors that are expected in a healthy cluster."""
        self._has_followed = False
        """Whether a response of this epoch's leader was applied to the log."""
        self.said = ""
        """The last logged reason for a pause, so that it is logged once."""

    def __str__(self) -> str:
        return f"{self.partition.name.topic}-{self.partition.name.partition_id}"

    def begin(self, log: PartitionLog) -> None:
        """Make the log ready for its first request in this epoch (DB-30). Raises ApiError."""
        if self.phase is None:
            self.phase = first_phase(view_of(log))
            if self.phase is Phase.TRUNCATING:
                self._cut(log, log.high_watermark, "it has no leader epoch, so the divergence cannot be determined")
                self.phase = Phase.FETCHING

    def position(self, log: PartitionLog, bytes_max: int) -> FetchPartition:
        """Return the partition's fields for the next Fetch."""
        return FetchPartition(
            partition=self.key.number,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=log.log_end_offset,
            last_fetched_epoch=log.epochs.latest,
            log_start_offset=log.log_start_offset,
            partition_max_bytes=bytes_max,
            high_watermark=log.high_watermark,
        )

    def append(self, step: Append, log: PartitionLog, now_ms: int) -> bool:
        """Append the leader's records; return whether there were any.

        Raises ApiError: CORRUPT_MESSAGE for invalid records, KAFKA_STORAGE_ERROR.
        """
        before = log.log_end_offset
        if step.start_over_at is not None:
            self._start_over(log, step.start_over_at, "the leader's log begins above the end of this one")
        if step.records:
            log.append_as_follower(step.records, now_ms, self.leader_epoch)
        end_offset = log.log_end_offset
        self.partition.follower_appended(step.high_watermark, step.log_start_offset)
        log.forget_kept_records()
        self.lag = max(0, step.high_watermark - end_offset)
        if step.records and end_offset == before:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{len(step.records)} bytes of records have no whole batch")
        self._has_followed = True
        self.said, self.expected_errors = "", 0
        return end_offset != before

    def truncate(self, step: Truncate, log: PartitionLog) -> bool:
        """Truncate the log; return whether anything has changed. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        before = log.log_end_offset, log.epochs.latest
        self._cut(log, step.end_offset, step.reason)
        return (log.log_end_offset, log.epochs.latest) != before

    def _cut(self, log: PartitionLog, end_offset: int, reason: str) -> None:
        """Truncate the log, and log it; a loss of committed records without an unclean election is an error (DB-31)."""
        if end_offset < log.log_end_offset:
            details = {
                "partition": str(self), "leader": self.partition.record.leader, "leader_epoch": self.leader_epoch,
                "end_offset": end_offset, "log_end_offset": log.log_end_offset, "high_watermark": log.high_watermark,
                "reason": reason,
            }  # fmt: skip
            if end_offset >= log.high_watermark:
                logger.info("a follower's log is truncated", **details)
            elif self.partition.record.leader_recovery_state == _RECOVERING:
                logger.warning("committed records are truncated after an unclean election", **details)
            else:
                logger.error(
                    "committed records are truncated without an unclean election; they are kept beside the log",
                    **details,
                )
        before, high_watermark = log.log_end_offset, log.high_watermark
        log.truncate_as_follower(end_offset, self.leader_epoch)
        if log.log_end_offset < before:
            is_unclean = self.partition.record.leader_recovery_state == _RECOVERING
            self._observer.decided(
                LogTruncated(
                    self.partition.name, self.leader_epoch, before, log.log_end_offset, high_watermark, is_unclean,
                    reason,
                )
            )  # fmt: skip

    def start_over(self, step: StartOver, log: PartitionLog) -> None:
        """Start the log over at the leader's start. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        logger.info("a follower's log starts over", partition=str(self), offset=step.offset, reason=step.reason)
        self._start_over(log, step.offset, step.reason)

    def _start_over(self, log: PartitionLog, offset: int, reason: str) -> None:
        """Start the log over; set the old log aside unless the leader has certainly deleted its records.

        While a leader leads, its log start offset moves only by retention and DeleteRecords. Consider a follower that
        has applied a response in this leader epoch, and falls behind the start: its records were deleted. A follower
        that finds a higher start when the epoch begins cannot know that: the leader's disk may have lost the records.
        """
        before, high_watermark = log.log_end_offset, log.high_watermark
        if self._has_followed:
            log.truncate_fully_and_start_at(offset)
        else:
            log.start_over_as_follower(offset, self.leader_epoch)
        self._observer.decided(
            LogStartedOver(self.partition.name, self.leader_epoch, before, offset, high_watermark, reason)
        )


def view_of(log: PartitionLog) -> LogView:
    """Return the offsets and epochs of a log by which `following` decides."""
    return LogView(log.log_start_offset, log.log_end_offset, log.high_watermark, log.epochs)
