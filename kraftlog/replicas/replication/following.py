"""One partition's follower: from what its leader answers to what is to be done with the log (DB-30 to DB-38).

    step = next_step(answer, asked, leader_epoch, LogView(log))

A follower knows nothing but its log: it fetches from the log's end, and names the latest epoch that it has. The leader
says with the answer if the two logs part before that (KIP-595). Only a log of which no epoch is known is cut to its
high watermark before its first fetch: nothing tells whether what is behind that is the leader's.

What a leader says is checked here as far as it can be without reading batches; these check
`kraftlog.storage.appends.check_replicated`.
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
    """What of a log decides."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    epochs: LeaderEpochs


class Phase(Enum):
    """What a follower does next."""

    TRUNCATING = auto()
    """It cuts its log to the high watermark, since it knows none of its epochs."""
    FETCHING = auto()


class Append(NamedTuple):
    """Append the records, which may be none, and take over the leader's high watermark and log start (DB-33)."""

    records: Buffer
    high_watermark: int
    log_start_offset: int
    start_over_at: int | None = None
    """Let the log begin here before, without what it has: the leader's begins within a batch."""


class Truncate(NamedTuple):
    """Cut the log here, and fetch again (DB-31, DB-32)."""

    end_offset: int
    reason: str


class StartOver(NamedTuple):
    """Drop the log, and begin at the leader's start (DB-34)."""

    offset: int
    reason: str


class AskOffsets(NamedTuple):
    """Ask the leader where its log starts and ends (DB-34)."""


class Retry(NamedTuple):
    """Ask again after `replica.fetch.backoff.ms` (DB-36)."""

    reason: str
    is_expected: bool = False
    """Whether it happens in a healthy cluster, while brokers have applied different parts of the metadata."""


class AwaitMetadata(NamedTuple):
    """Fetch no more before the metadata names a newer leader epoch (DB-36)."""

    reason: str


class Ignore(NamedTuple):
    """The answer is for what was asked before (DB-38); ask again at once."""


Step: TypeAlias = Append | Truncate | StartOver | AskOffsets | Retry | AwaitMetadata | Ignore

_WITH_OTHER_METADATA: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""What a leader says that has applied less of the metadata than this broker, or more."""


def first_phase(log: LogView) -> Phase:
    """What a follower begins with in a leader's epoch (DB-30)."""
    return Phase.TRUNCATING if log.epochs.latest == UNKNOWN_EPOCH else Phase.FETCHING


def next_step(answer: PartitionData, asked: FetchPartition, leader_epoch: int, log: LogView) -> Step:
    """What to do with the leader's answer for a partition that was `asked` for, and has that leader epoch now."""
    if asked.current_leader_epoch != leader_epoch or asked.fetch_offset != log.log_end_offset:
        return Ignore()
    if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return AskOffsets()
    if answer.error_code != ErrorCode.NONE:
        return after_error(answer.error_code, leader_epoch)
    diverging = answer.diverging_epoch
    if diverging.epoch != UNKNOWN_EPOCH:
        return _after_divergence(EpochEnd(diverging.epoch, diverging.end_offset), asked, log)
    if answer.high_watermark < 0 or answer.log_start_offset < 0:
        return Retry(
            f"the leader says that its high watermark is {answer.high_watermark} and its log starts at"
            f" {answer.log_start_offset}"
        )
    records = answer.records or b""
    return Append(
        records, answer.high_watermark, answer.log_start_offset, _new_start(records, answer.log_start_offset, log)
    )


def after_error(code: int, leader_epoch: int) -> Retry | AwaitMetadata:
    """What to do when the leader answers with an error (DB-36)."""
    if code == ErrorCode.FENCED_LEADER_EPOCH:
        return AwaitMetadata(f"leader epoch {leader_epoch} is over, says the leader")
    return Retry(f"the leader answers {error_name(code)}", is_expected=code in _WITH_OTHER_METADATA)


def _after_divergence(diverging: EpochEnd, asked: FetchPartition, log: LogView) -> Step:
    if diverging.epoch > asked.last_fetched_epoch:
        return Retry(
            f"the leader says that the logs part in epoch {diverging.epoch}, and epoch {asked.last_fetched_epoch} was"
            " asked for"
        )
    end_offset = truncation_offset(diverging, log)
    return Truncate(
        end_offset,
        f"the leader's log has epoch {diverging.epoch} up to offset {diverging.end_offset}, and this one ends at"
        f" {log.log_end_offset} in epoch {log.epochs.latest}",
    )


def truncation_offset(leader: EpochEnd, log: LogView) -> int:
    """Where to cut, if the leader's log has an epoch up to an offset, and the two part by then at the latest (DB-31).

    Consider a log with epoch 1 up to offset 5 and epoch 3 up to 9, and a leader that has epoch 2 up to 7. Epoch 2 is
    not here, so the logs part at 5 at the latest: where the largest epoch before 2 ends. After the cut the follower
    asks with epoch 1, for the leader's may end before 5 (KIP-279).
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
    """What to do out of range, when the leader has told its log's end and start (DB-34)."""
    if not 0 <= leader_start <= leader_end:
        return Retry(f"the leader says that its log starts at {leader_start} and ends at {leader_end}")
    if leader_end < log.log_end_offset:
        return Truncate(leader_end, f"the leader's log ends at {leader_end}, and this one at {log.log_end_offset}")
    if leader_start > log.log_end_offset:
        return StartOver(
            leader_start, f"the leader's log starts at {leader_start}, and this one ends at {log.log_end_offset}"
        )
    return Retry(f"offset {log.log_end_offset} was out of range, and the leader has {leader_start} to {leader_end}")


def _new_start(records: Buffer, leader_start: int, log: LogView) -> int | None:
    """Where a log has to begin so that it can take the leader's first batch; None if it can, or must not begin anew.

    Consider records that were deleted up to offset 7, within a batch from 5 to 9. The leader's log starts at 7, so a
    new follower asks for 7, and is sent the batch whole. So is one whose log was cut to 7: nothing that it has below is
    in the leader's log any more.
    """
    is_needed = log.log_start_offset < log.log_end_offset and leader_start < log.log_end_offset
    if is_needed or len(records) < BATCH_BYTES_MIN:
        return None
    first = unpack_header(records)
    return first.base_offset if 0 <= first.base_offset < log.log_end_offset <= first.last_offset else None
