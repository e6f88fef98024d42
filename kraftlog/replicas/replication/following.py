"""Decides what a follower does with one partition's log, given the leader's response (DB-30 to DB-38).

    step = next_step(answer, asked, leader_epoch, LogView(log))

A follower knows only its own log: it fetches from the log end offset, and names its latest leader epoch. The leader's
response says if the two logs diverge before that offset (KIP-595). Only a log without any leader epoch is truncated to
its high watermark before its first Fetch, since later records cannot be compared with the leader's.

The response is checked here except for its batches; `kraftlog.storage.appends.check_replicated` checks those.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias

from kraftbase.errors import ErrorCode, error_name
from kraftbase.sentinels import UNKNOWN_EPOCH, UNKNOWN_OFFSET
from kraftlog.kafka.messages.fetch import FetchPartition, PartitionData
from kraftlog.kafka.notation import Buffer
from kraftlog.storage.formats.batch_header import BATCH_BYTES_MIN, unpack_header
from kraftlog.storage.leader_epochs import EpochEnd, LeaderEpochs


class LogView(NamedTuple):
    """The offsets and epochs of a log by which a step is decided."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    epochs: LeaderEpochs


class Phase(Enum):
    """What a follower does next in a leader epoch."""

    TRUNCATING = auto()
    """Truncate the log to the high watermark, since it has no leader epochs."""
    FETCHING = auto()


class Append(NamedTuple):
    """Append the records, if any, and follow the leader's high watermark and log start offset (DB-33)."""

    records: Buffer
    high_watermark: int
    log_start_offset: int
    start_over_at: int | None = None
    """If not None, first start the log over here: the leader's log start offset is within a batch."""


class Truncate(NamedTuple):
    """Truncate the log to `end_offset`, and fetch again (DB-31, DB-32)."""

    end_offset: int
    reason: str


class StartOver(NamedTuple):
    """Start the log over, empty, at the leader's log start offset (DB-34)."""

    offset: int
    reason: str


class AskOffsets(NamedTuple):
    """Ask the leader for its log start and end offsets (DB-34)."""


class Retry(NamedTuple):
    """Fetch the partition again after a pause (DB-36)."""

    reason: str
    is_expected: bool = False
    """Whether the error is expected in a healthy cluster, while brokers have applied different parts of the metadata.
    Then the pause is short."""


class AwaitMetadata(NamedTuple):
    """Stop fetching until the metadata has a newer leader epoch (DB-36)."""

    reason: str


class Ignore(NamedTuple):
    """Drop the result, which is for an earlier position or leader epoch (DB-38), and fetch again at once."""


Step: TypeAlias = Append | Truncate | StartOver | AskOffsets | Retry | AwaitMetadata | Ignore

_WITH_OTHER_METADATA: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""The errors of a leader that has applied less of the metadata than this broker, or more."""


def first_phase(log: LogView) -> Phase:
    """Return the phase in which a follower begins a leader epoch (DB-30)."""
    return Phase.TRUNCATING if log.epochs.latest == UNKNOWN_EPOCH else Phase.FETCHING


def next_step(answer: PartitionData, wanted: FetchPartition, leader_epoch: int, log: LogView) -> Step:
    """Return what to do with the leader's result for a partition.

    `wanted` are the partition's fields in the request, and `leader_epoch` is its present leader epoch.
    """
    if wanted.current_leader_epoch != leader_epoch or wanted.fetch_offset != log.log_end_offset:
        return Ignore()
    if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return AskOffsets()
    if answer.error_code != ErrorCode.NONE:
        return after_error(answer.error_code, leader_epoch)
    diverging = answer.diverging_epoch
    if diverging.epoch != UNKNOWN_EPOCH:
        return _after_divergence(EpochEnd(diverging.epoch, diverging.end_offset), wanted, log)
    if answer.high_watermark < 0 or answer.log_start_offset < 0:
        return Retry(
            f"the leader answers with high watermark {answer.high_watermark} and log start offset"
            f" {answer.log_start_offset}"
        )
    records = answer.records or b""
    return Append(
        records, answer.high_watermark, answer.log_start_offset, _new_start(records, answer.log_start_offset, log)
    )


def after_error(code: int, leader_epoch: int) -> Retry | AwaitMetadata:
    """Return what to do when the leader answers with an error (DB-36)."""
    if code == ErrorCode.FENCED_LEADER_EPOCH:
        return AwaitMetadata(f"leader epoch {leader_epoch} is over according to the leader")
    return Retry(f"the leader answers {error_name(code)}", is_expected=code in _WITH_OTHER_METADATA)


def _after_divergence(diverging: EpochEnd, wanted: FetchPartition, log: LogView) -> Step:
    if diverging.epoch > wanted.last_fetched_epoch:
        return Retry(
            f"the leader answers that the logs diverge in epoch {diverging.epoch}, later than the requested epoch"
            f" {wanted.last_fetched_epoch}"
        )
    end_offset = truncation_offset(diverging, log)
    return Truncate(
        end_offset,
        f"the leader's log has epoch {diverging.epoch} up to offset {diverging.end_offset}, and this one ends at"
        f" {log.log_end_offset} in epoch {log.epochs.latest}",
    )


def truncation_offset(leader: EpochEnd, log: LogView) -> int:
    """Return the offset to truncate to; `leader` is the epoch end by which the two logs have diverged (DB-31).

    Consider a log with epoch 1 up to offset 5 and epoch 3 up to 9, and a leader that has epoch 2 up to 7. Epoch 2 is
    not in this log, so the logs diverge at 5 at the latest, where the largest epoch before 2 ends. After the truncation
    the follower fetches with epoch 1, since that epoch may end before 5 in the leader's log (KIP-279).
    """
    if leader.end_offset == UNKNOWN_OFFSET:
        return min(log.high_watermark, log.log_end_offset)
    if leader.epoch == UNKNOWN_EPOCH:
        return min(leader.end_offset, log.log_end_offset)
    own = log.epochs.end_offset_for(leader.epoch, log.log_end_offset)
    if own.end_offset == UNKNOWN_OFFSET:
        return min(leader.end_offset, log.log_end_offset)
    if own.epoch != leader.epoch:
        return min(own.end_offset, log.log_end_offset)
    return min(own.end_offset, leader.end_offset, log.log_end_offset)


def after_offsets(leader_end: int, leader_start: int, log: LogView) -> Step:
    """Return what to do after OFFSET_OUT_OF_RANGE, given the leader's log end and start offsets (DB-34)."""
    if not 0 <= leader_start <= leader_end:
        return Retry(f"the leader answers that its log starts at {leader_start} and ends at {leader_end}")
    if leader_end < log.log_end_offset:
        return Truncate(leader_end, f"the leader's log ends at {leader_end}, and this one at {log.log_end_offset}")
    if leader_start > log.log_end_offset:
        return StartOver(
            leader_start, f"the leader's log starts at {leader_start}, and this one ends at {log.log_end_offset}"
        )
    return Retry(f"offset {log.log_end_offset} was out of range, and the leader has {leader_start} to {leader_end}")


def _new_start(records: Buffer, leader_start: int, log: LogView) -> int | None:
    """Return the offset at which a log must start over to append the leader's first batch; None if it need not.

    Consider records that were deleted up to offset 7, within a batch from 5 to 9. The leader's log starts at 7, so a
    new follower fetches from 7, and gets the whole batch. The same holds for a follower whose log was truncated to 7:
    the leader's log no longer has any of its records.
    """
    is_needed = log.log_start_offset < log.log_end_offset and leader_start < log.log_end_offset
    if is_needed or len(records) < BATCH_BYTES_MIN:
        return None
    first = unpack_header(records)
    return first.base_offset if 0 <= first.base_offset < log.log_end_offset <= first.last_offset else None
