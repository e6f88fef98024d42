"""The shell's writes to its log: batches with timestamps, in room that was reserved before the core got them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from kraftbase.errors import ApiError, ErrorCode, OutOfSpace
from kraftbase.runtime import Runtime
from kraftbase.said_once import SaidOnce
from kraftbase.types import Offset
from raft.core.actions import AppendLeaderChange, AppendRecords
from raft.core.types import Batch, OffsetAndEpoch
from raft.shell.appends import BATCH_OVERHEAD_BYTES, UnwrittenAppends
from raft.storage.batch import batch_timestamp, encode_batch
from raft.storage.control import encode_leader_change
from raft.storage.segmented_log import SegmentedLog

logger = structlog.get_logger(__name__)


class LogWriter:
    """See the module. `unwritten` are the appends that wait in the core to be written."""

    def __init__(self, log: SegmentedLog, runtime: Runtime, on_fatal: Callable[[BaseException], None]) -> None:
        self._log = log
        self._runtime = runtime
        self._on_fatal = on_fatal
        self._last_timestamp_ms = _last_timestamp_ms(log)
        self.unwritten = UnwrittenAppends()
        self._no_room = SaidOnce()

    # --- room ---------------------------------------------------------------------------------------------------------

    def reserve_append(self, body_bytes: int) -> None:
        """Reserve room for one more append. Raises ApiError(KAFKA_STORAGE_ERROR) if there is none."""
        try:
            self._reserve(self.unwritten.byte_count + body_bytes + BATCH_OVERHEAD_BYTES)
        except OutOfSpace as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from None

    def has_room(self, batches: Sequence[Batch]) -> bool:
        """Reserve room for a leader's batches; return False if there is none, which is logged when it begins."""
        try:
            self._reserve(sum(len(batch.data) + BATCH_OVERHEAD_BYTES for batch in batches))
        except OutOfSpace as error:
            if self._no_room.begins():
                logger.error(
                    "cannot follow the leader: no room for its batches; make room, and the node continues by itself",
                    reason=str(error),
                )  # fmt: skip
            return False
        if self._no_room.ends():
            logger.info("room to follow the leader again")
        return True

    def _reserve(self, byte_count: int) -> None:
        """Reserve room. Rolling to a new segment flushes the last one, so this may raise FlushFailed."""
        try:
            self._log.reserve(byte_count)
        except OutOfSpace:
            raise
        except BaseException as error:
            self._on_fatal(error)
            raise

    def is_between_batches(self, offset: Offset) -> bool:
        """Whether the log can be truncated there: a batch ends there, or it is the log's end or above."""
        try:
            return offset >= self._log.log_end_offset or self._log.is_boundary(offset)
        except BaseException as error:
            self._on_fatal(error)
            return False

    # --- batches ------------------------------------------------------------------------------------------------------

    def append_records(self, action: AppendRecords) -> None:
        """Append a batch of this leader's own."""
        batch = encode_batch(action.base_offset, action.epoch, action.body, action.record_count, self._timestamp_ms())
        self._log.append((batch,))
        self.unwritten.written(batch.end_offset)

    def append_batches(self, batches: Sequence[Batch]) -> None:
        """Append batches of the leader that this replica follows."""
        self._log.append(batches)
        self._last_timestamp_ms = max(self._last_timestamp_ms, batch_timestamp(batches[-1]))

    def append_leader_change(self, action: AppendLeaderChange) -> None:
        """Append the first batch of a new leader's epoch."""
        body, timestamp_ms = encode_leader_change(action.record), self._timestamp_ms()
        self._log.append((encode_batch(action.base_offset, action.epoch, body, 1, timestamp_ms, is_control=True),))

    def _timestamp_ms(self) -> int:
        """The wall clock, but never behind the last batch's timestamp."""
        self._last_timestamp_ms = max(self._last_timestamp_ms, self._runtime.wall_clock_ms())
        return self._last_timestamp_ms


def check_snapshot_point(log: SegmentedLog, committed_end_offset: Offset, snapshot_id: OffsetAndEpoch) -> bool:
    """Whether a snapshot of a state machine at `snapshot_id` is needed; it is not if the log starts above it.

    Raises ValueError for an id that is not committed, not in the log, or not at the end of a batch (SN-07).
    """
    offset = snapshot_id.offset
    if offset <= 0:
        raise ValueError(f"a snapshot at offset {offset} would be empty; take one above offset 0 (SN-03)")
    if offset < log.log_start_offset:
        return False
    if offset > min(committed_end_offset, log.flushed_end_offset):
        raise ValueError(
            f"offset {offset} is not committed; the high watermark is {committed_end_offset}: take a"
            " snapshot of committed records only"
        )
    if log.epochs.epoch_before(offset) != snapshot_id.epoch:
        raise ValueError(f"the record before offset {offset} is not of epoch {snapshot_id.epoch}; give its epoch")
    if not log.is_boundary(offset):
        raise ValueError(f"offset {offset} is within a batch; take the snapshot where a batch ends")
    return True


def _last_timestamp_ms(log: SegmentedLog) -> int:
    """The timestamp of its last batch; 0 if it has none."""
    if log.log_end_offset == log.log_start_offset:
        return 0
    return batch_timestamp(log.read_batches(Offset(log.log_end_offset - 1), 1)[-1])
