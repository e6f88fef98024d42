"""A partition that this broker follows: carries out on its log what `following` says. Shell over the log."""

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
"""As the leader recovery state of a partition: its leader was elected uncleanly (KIP-704)."""


class State(Enum):
    """Whether a partition may be fetched."""

    READY = auto()
    FLUSHING = auto()
    """What the next request would claim is not on the disk yet."""
    ASKING = auto()
    """The leader is asked where its log starts and ends."""
    DELAYED = auto()
    """It is fetched again after a pause."""
    THROTTLED = auto()
    """It is left out while the quota is exceeded."""
    STOPPED = auto()
    """Until the metadata names a newer leader epoch, or the log is online again."""


class FollowedPartition:
    """A partition in one epoch of its leader."""

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
        """How many committed offsets were missing after the last answer; None before the first."""
        self.expected_errors = 0
        """How many errors there were in a row that happen in a healthy cluster."""
        self._has_followed = False
        """Whether an answer of this epoch's leader fitted to the log as it is."""
        self.said = ""
        """The last complaint, so that it is logged once."""

    def __str__(self) -> str:
        return f"{self.partition.name.topic}-{self.partition.name.partition_id}"

    def begin(self, log: PartitionLog) -> None:
        """Make the log ready for its first request in this epoch (DB-30). Raises ApiError."""
        if self.phase is None:
            self.phase = first_phase(view_of(log))
            if self.phase is Phase.TRUNCATING:
                self._cut(log, log.high_watermark, "it has no leader epoch, which would tell where the logs part")
                self.phase = Phase.FETCHING

    def position(self, log: PartitionLog, bytes_max: int) -> FetchPartition:
        """What is asked of the leader."""
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
        """Carry it out; returns whether there were records.

        Raises ApiError: CORRUPT_MESSAGE for what must not be in the log, KAFKA_STORAGE_ERROR.
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
        """Carry it out; returns whether anything has changed. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        before = log.log_end_offset, log.epochs.latest
        self._cut(log, step.end_offset, step.reason)
        return (log.log_end_offset, log.epochs.latest) != before

    def _cut(self, log: PartitionLog, end_offset: int, reason: str) -> None:
        """Cut the log; what is committed only after an unclean election, or under protest (DB-31)."""
        if end_offset < log.log_end_offset:
            told = {
                "partition": str(self), "leader": self.partition.record.leader, "leader_epoch": self.leader_epoch,
                "end_offset": end_offset, "log_end_offset": log.log_end_offset, "high_watermark": log.high_watermark,
                "reason": reason,
            }  # fmt: skip
            if end_offset >= log.high_watermark:
                logger.info("a follower's log is cut", **told)
            elif self.partition.record.leader_recovery_state == _RECOVERING:
                logger.warning("committed records are cut, as the leader was elected uncleanly", **told)
            else:
                logger.error(
                    "committed records are cut, although the leader was not elected uncleanly; they are kept beside"
                    " the log", **told,
                )  # fmt: skip
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
        """Carry it out. Raises ApiError(KAFKA_STORAGE_ERROR)."""
        logger.info("a follower's log starts over", partition=str(self), offset=step.offset, reason=step.reason)
        self._start_over(log, step.offset, step.reason)

    def _start_over(self, log: PartitionLog, offset: int, reason: str) -> None:
        """Start the log over. What it had is kept aside, unless it is certain that the leader has deleted it.

        A leader's start moves by retention and DeleteRecords only, as long as it leads. Consider a follower that has
        appended what the leader sent in this epoch, and falls behind: what it has was deleted. One that finds another
        start when the epoch begins cannot know; the leader's disk may have lost it.
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
    """What of a log decides."""
    return LogView(log.log_start_offset, log.log_end_offset, log.high_watermark, log.epochs)
