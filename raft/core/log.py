"""The core's own picture of the log: where it starts and ends, what is durable, where each epoch starts.

The core never reads the log. It changes this picture when it orders an append or a truncation; storage carries the
order out and stops the process if its own ends differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raft.core.checks import check
from raft.core.epochs import EpochCache
from raft.core.types import Batch, Epoch, Offset, OffsetAndEpoch


@dataclass(slots=True)
class LogState:
    """Invariant: start_offset <= flushed_end_offset <= end_offset."""

    start_offset: Offset
    end_offset: Offset
    flushed_end_offset: Offset
    epochs: EpochCache

    @property
    def last_epoch(self) -> Epoch:
        """The epoch of the last record, 0 for an empty log."""
        return self.epochs.last_epoch

    @property
    def end(self) -> OffsetAndEpoch:
        """Where the log ends: what candidates are compared by (RF-14)."""
        return OffsetAndEpoch(epoch=self.epochs.last_epoch, offset=self.end_offset)

    def append(self, epoch: Epoch, record_count: int) -> Offset:
        """Note an append of the leader's own; returns its base offset."""
        base_offset = self.end_offset
        self.epochs.assign(epoch, base_offset)
        self.end_offset = Offset(base_offset + record_count)
        return base_offset

    def append_batches(self, batches: Sequence[Batch]) -> None:
        """Note an append of fetched batches, which were checked to go on where the log ends."""
        for batch in batches:
            self.epochs.assign(batch.epoch, batch.base_offset)
        self.end_offset = batches[-1].end_offset

    def flushed(self, end_offset: Offset) -> None:
        """Note a finished flush. Truncated since, or finished out of order: never more than there is, never less."""
        self.flushed_end_offset = max(self.flushed_end_offset, min(end_offset, self.end_offset))

    def truncate(self, end_offset: Offset) -> None:
        """Note that the log was cut at `end_offset`."""
        check(self.start_offset <= end_offset <= self.end_offset, "a log is cut within itself", end_offset=end_offset)
        self.epochs.truncate(end_offset)
        self.end_offset = end_offset
        self.flushed_end_offset = end_offset  # TruncateLog is durable before anything that follows it

    def divergence(self, fetch_offset: Offset, last_fetched_epoch: Epoch) -> OffsetAndEpoch | None:
        """None if a replica that ends at `fetch_offset` in `last_fetched_epoch` has a prefix of this log (SN-20).

        Else the point that it must compare its own log with: the last epoch at or below its own, and its end here.
        """
        if fetch_offset == 0 and self.start_offset == 0:
            return None
        end = self.epochs.end_offset_for_epoch(last_fetched_epoch, self.end_offset)
        return end if end.epoch != last_fetched_epoch or end.offset < fetch_offset else None

    def truncation_point(self, diverging: OffsetAndEpoch) -> Offset:
        """Where this log must be cut when the leader answers that it diverges there (RF-51)."""
        if diverging.epoch == 0:
            return max(self.start_offset, min(diverging.offset, self.end_offset))
        own = self.epochs.end_offset_for_epoch(diverging.epoch, self.end_offset)
        if own.epoch == diverging.epoch:
            return max(self.start_offset, min(own.offset, diverging.offset))
        return own.offset
