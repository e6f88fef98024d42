"""Reads partitions for a Fetch (DB-66).

Partitions are read in the order of the request, until its bytes are used up. The first batch of the first partition
that has records is sent whole even if it exceeds the limit, so that every reader makes progress.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.sentinels import UNKNOWN_EPOCH, UNKNOWN_OFFSET
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.replicas.partitions.later_read import LaterRead, LaterResult, RecordSource
from kraftlog.replicas.partitions.partition import Partition
from kraftlog.storage.formats.batch_header import read_headers
from kraftlog.storage.formats.indexes import AbortedTransaction
from kraftlog.storage.leader_epochs import EpochEnd
from kraftlog.storage.log_host import LogSlice
from kraftlog.storage.partition_log import PartitionLog


class Isolation(IntEnum):
    """The end of the records that a reader gets; the numbers are Kafka's."""

    READ_UNCOMMITTED = 0
    """Up to the high watermark."""
    READ_COMMITTED = 1
    """Up to the last stable offset (KIP-98)."""
    LOG_END = 2
    """Up to the log end offset, for followers; not a number of Kafka's."""


NO_REPLICA: Final = -1


class ReplicaQuota(Protocol):
    """The limit on the bytes that a leader sends to throttled replicas (KIP-73)."""

    def is_throttled(self, partition: Partition, replica_id: int) -> bool:
        """Whether a follower gets no records of a partition now."""
        ...


class Reader(NamedTuple):
    """The sender of a Fetch, and what it may read."""

    isolation: Isolation
    must_lead: bool = True
    """Whether only the leader may answer: rack-aware consumers may read from any replica (KIP-392)."""
    replica_id: int = NO_REPLICA
    """The id of a follower's broker; -1 for a consumer."""
    broker_epoch: int = UNKNOWN_EPOCH
    """The broker epoch of a follower; -1 if the request has none."""
    throttle: ReplicaQuota | None = None
    """The throttle for a follower; None for a consumer."""

    @property
    def is_follower(self) -> bool:
        """Whether the reader is a follower."""
        return self.replica_id != NO_REPLICA


class ReadFrom(NamedTuple):
    """One partition of a Fetch request."""

    partition: Partition
    offset: int
    bytes_max: int
    current_leader_epoch: int = UNKNOWN_EPOCH
    last_fetched_epoch: int = UNKNOWN_EPOCH
    log_start_offset: int = UNKNOWN_OFFSET
    """The log start offset of a follower."""


class Located(NamedTuple):
    """The records found for one partition, before they are read."""

    found: LogSlice | LaterRead | None = None
    """None: no records, or an error. A `LaterRead` has not begun yet."""
    error: ApiError | None = None
    diverging: EpochEnd | None = None
    """Where the reader's log diverges from this one (KIP-595)."""

    @property
    def byte_count(self) -> int:
        """The bytes of the records."""
        return 0 if self.found is None else self.found.byte_count

    @property
    def ends_wait(self) -> bool:
        """Whether the answer must not wait for more bytes: an error, a divergence, or more in later segments."""
        found = self.found
        goes_on = found is not None and (not isinstance(found, LogSlice) or found.is_older_segment)
        return goes_on or self.error is not None or self.diverging is not None


class Read(NamedTuple):
    """The result for one partition. Unknown offsets are -1."""

    error: ApiError | None
    high_watermark: int = UNKNOWN_OFFSET
    last_stable_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    diverging: EpochEnd | None = None
    aborted: tuple[AbortedTransaction, ...] | None = None
    records: bytes = b""
    preferred_replica: int = NO_REPLICA
    """The replica that the consumer should read from instead (KIP-392)."""


def locate(wanted: ReadFrom, reader: Reader, bytes_max: int, *, min_one_batch: bool) -> Located:
    """Find the records to read, at most `bytes_max`; with `min_one_batch` at least one batch if one exists (DB-26).

    Errors are in the result. A follower gets OFFSET_MOVED_TO_TIERED_STORAGE instead of a `LaterRead`.
    """
    try:
        log = wanted.partition.leader_log(wanted.current_leader_epoch, must_lead=reader.must_lead)
        if reader.is_follower:
            wanted.partition.check_follower(reader.replica_id, wanted.current_leader_epoch)
        diverging = _diverging(log, wanted)
        if diverging is not None:
            return Located(diverging=diverging)
        end_offset = readable_end(log, reader.isolation)
        limit = min(bytes_max, wanted.bytes_max)
        source: RecordSource = log.reader
        found = source.locate(wanted.offset, limit, end_offset, min_one_batch=min_one_batch)
        if reader.throttle is not None and reader.throttle.is_throttled(wanted.partition, reader.replica_id):
            return Located()  # after `locate`, which refuses an offset out of range
        if found is not None and not isinstance(found, LogSlice) and reader.is_follower:
            raise ApiError(
                ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
                f"{wanted.partition} has offset {wanted.offset} only in remote storage: build the log from there",
            )
        return Located(found)
    except ApiError as error:
        return Located(error=error.with_traceback(None))


def count_follower(wanted: ReadFrom, reader: Reader, located: Located) -> Located:
    """Count a follower's fetch offset as its log end offset, unless there was an error or a divergence (DB-01).

    Return `located`, or the error of counting it.
    """
    if located.error is not None or located.diverging is not None:
        return located
    try:
        wanted.partition.follower_fetched(
            reader.replica_id, reader.broker_epoch, wanted.offset, wanted.log_start_offset
        )
    except ApiError as error:
        return Located(error=error.with_traceback(None))
    return located


def read(wanted: ReadFrom, reader: Reader, located: Located) -> Read:
    """Read the located records; return the partition's result. Later records are left to `with_later`."""
    if located.error is not None:
        return _refused(located.error, wanted.partition.log)
    log: PartitionLog | None = None
    try:
        log = wanted.partition.online_log()
        records = log.reader.read_slice(located.found) if isinstance(located.found, LogSlice) else b""
        aborted = None
        if reader.isolation is Isolation.READ_COMMITTED:
            aborted = _aborted_in(log, wanted.offset, records)
    except ApiError as error:
        return _refused(error.with_traceback(None), log)
    return Read(
        None, log.high_watermark, log.last_stable_offset, log.log_start_offset, located.diverging, aborted, records
    )


def with_later(kept: Read, result: LaterResult) -> Read:
    """Return the result for a partition whose later read has ended."""
    if isinstance(result, ApiError):
        if result.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            return kept._replace(error=result, aborted=None)
        return Read(result)
    aborted = None if kept.aborted is None else result.aborted
    return kept._replace(records=result.records, aborted=aborted)


def sent_elsewhere(log: PartitionLog, replica_id: int) -> Read:
    """Return the result for a consumer that should read from another replica."""
    return Read(None, log.high_watermark, log.last_stable_offset, log.log_start_offset, preferred_replica=replica_id)


def _aborted_in(log: PartitionLog, offset: int, records: bytes) -> tuple[AbortedTransaction, ...]:
    """Return the aborted transactions with records among those returned, from the fetch offset on."""
    found = log.reader.aborted_transactions(offset, log.last_stable_offset) if records else []
    if not found:
        return ()
    try:
        end_offset = max((header.last_offset + 1 for _, header in read_headers(records)), default=offset)
    except MalformedBytes:
        return tuple(found)  # the reader detects the damage, and needs the records before it
    return tuple(transaction for transaction in found if transaction.first_offset < end_offset)


def _refused(error: ApiError, log: PartitionLog | None) -> Read:
    """Return the result for an error; one for OFFSET_OUT_OF_RANGE also has the log's offsets."""
    if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and log is not None:
        return Read(error, log.high_watermark, log.last_stable_offset, log.log_start_offset)
    return Read(error)


def readable_end(log: PartitionLog, isolation: Isolation) -> int:
    """Return the offset up to which a reader with this isolation level reads."""
    if isolation is Isolation.LOG_END:
        return log.log_end_offset
    return log.last_stable_offset if isolation is Isolation.READ_COMMITTED else log.high_watermark


def _diverging(log: PartitionLog, wanted: ReadFrom) -> EpochEnd | None:
    """Return where the reader's log diverges from this one; None if this log has the reader's last record (KIP-595).

    Consider a reader that has read up to offset 7 in epoch 2, while epoch 2 ends here at offset 5: the reader has two
    records that were lost in an unclean election.
    """
    if wanted.last_fetched_epoch == UNKNOWN_EPOCH:
        return None
    if wanted.last_fetched_epoch == log.epochs.latest and wanted.offset <= log.log_end_offset:
        return None
    end = log.epochs.end_offset_for(wanted.last_fetched_epoch, log.log_end_offset)
    if end.epoch == UNKNOWN_EPOCH or end.end_offset < 0:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{wanted.partition} has no records of leader epoch {wanted.last_fetched_epoch}: request its offsets again",
        )
    if wanted.offset < log.log_start_offset:
        return None  # `locate` refuses it as out of range, whether the logs diverge or not
    if end.epoch < wanted.last_fetched_epoch or end.end_offset < wanted.offset:
        return end
    return None
