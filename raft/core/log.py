"""The core's view of the log: where it starts and ends, what is durable, where each epoch starts.

The core never reads the log. It changes this view when it orders an append, a truncation or a replacement; storage
carries the action out, and ends the process if its own start and end differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kraftbase.checks import check
from kraftbase.types import Epoch, Offset
from raft.core.epochs import EpochCache
from raft.core.types import Batch, OffsetAndEpoch


def is_replaced_by(log_end: OffsetAndEpoch, snapshot_id: OffsetAndEpoch) -> bool:
    """Whether a log that ends there is behind a snapshot of the leader's log, or diverges from it (SN-14).

    Kafka requires a higher epoch, or the same and a higher offset. A log that ends at or below the snapshot's end holds
    nothing committed that the snapshot lacks, whatever its last epoch, so a lower end is enough here.
    """
    # Consider voters 1, 2 and 3, whose logs end at offset 100 in epoch 6, which 1 leads. 1 appends records 100 to 149,
    # which reach no other voter, and is cut off. 3 wins epoch 7 with the vote of 2, appends its leader change at 100,
    # which reaches no other voter either, and crashes: its log ends at 101 in epoch 7. Then 1 wins epoch 8 with the
    # vote of 2 and commits all it has with its leader change at 150. It takes snapshots at 120 and 150, both of epoch
    # 6, and its log starts at 120 now.
    #
    # 3 comes back, fetches from 101, and is sent the snapshot (150, epoch 6). By Kafka's rule epoch 6 is below 7, so
    # the log of 3 would stay as it is until the leader has a snapshot of epoch 8. But its record of epoch 7 was never
    # committed, and the snapshot has everything committed below 150: nothing is lost.
    #
    # A longer log is replaced, too, if the snapshot's epoch is above its last one. A log that ends at 200 in epoch 6
    # has no record of epoch 8, so it diverges below a snapshot (150, epoch 8).
    return (
        snapshot_id.offset > log_end.offset
        or snapshot_id.epoch > log_end.epoch
        or (snapshot_id.offset == log_end.offset and snapshot_id.epoch != log_end.epoch)
    )


@dataclass(slots=True)
class LogState:
    """Invariant: start_offset <= flushed_end_offset <= end_offset."""

    end_offset: Offset
    flushed_end_offset: Offset
    epochs: EpochCache
    latest_snapshot: OffsetAndEpoch | None = None
    """This replica's newest snapshot, which ends at the log's start or later."""
    is_flushing: bool = False
    """Whether a FlushLog was ordered and has not finished."""

    @property
    def start(self) -> OffsetAndEpoch:
        """Where the log starts, and the epoch of the record before: 0, or where a snapshot ends (SN-43, SN-54)."""
        return self.epochs.start

    @property
    def start_offset(self) -> Offset:
        """The first offset in the log."""
        return self.epochs.start.offset

    @property
    def known_committed_offset(self) -> Offset:
        """The end of what is committed by the snapshots alone: they hold only committed records."""
        if self.latest_snapshot is None:
            return self.start_offset
        return max(self.start_offset, min(self.latest_snapshot.offset, self.end_offset))

    @property
    def last_epoch(self) -> Epoch:
        """The epoch of the last record, or of the record before the start of an empty log; 0 if there never was one."""
        return self.epochs.last_epoch

    @property
    def end(self) -> OffsetAndEpoch:
        """The end of the log; candidates are compared by it (RF-14)."""
        return OffsetAndEpoch(epoch=self.epochs.last_epoch, offset=self.end_offset)

    def holds(self, point: OffsetAndEpoch) -> bool:
        """Whether the records below `point`, the last of its epoch, are in this log, or were before its start."""
        return self.epochs.holds(point, self.end_offset)

    def append(self, epoch: Epoch, record_count: int) -> Offset:
        """Record an append of the leader's own; return its base offset."""
        base_offset = self.end_offset
        self.epochs.assign(epoch, base_offset)
        self.end_offset = Offset(base_offset + record_count)
        return base_offset

    def append_batches(self, batches: Sequence[Batch]) -> None:
        """Record an append of fetched batches, which were checked to be contiguous with the log."""
        for batch in batches:
            self.epochs.assign(batch.epoch, batch.base_offset)
        self.end_offset = batches[-1].end_offset

    def flushed(self, end_offset: Offset) -> None:
        """Record a finished flush. It counts up to the log's end at most; a late one does not reduce the end."""
        # Consider a flush up to 90 that is in progress when the log is truncated at 70 and grows to 75 again. Storage
        # has limited that flush, too: it reports 70, and records 70 to 74 need a flush of their own.
        self.is_flushing = False
        self.flushed_end_offset = max(self.flushed_end_offset, min(end_offset, self.end_offset))

    def truncate(self, end_offset: Offset) -> None:
        """Record that the log was truncated to `end_offset`."""
        check(
            self.start_offset <= end_offset <= self.end_offset,
            "a log is truncated within itself",
            end_offset=end_offset,
        )
        self.epochs.truncate(end_offset)
        self.end_offset = end_offset
        self.flushed_end_offset = end_offset  # TruncateLog is durable before anything that follows it

    def advance_start(self, start: OffsetAndEpoch) -> None:
        """Record that the log now starts at `start`; everything below is in a snapshot."""
        check(start.offset <= self.flushed_end_offset, "a log starts at what is durable", start=start)
        self.epochs.advance_start(start)

    def truncate_fully_and_start_at(self, snapshot_id: OffsetAndEpoch) -> None:
        """Record that a snapshot replaced the whole log (SN-14)."""
        is_past = snapshot_id.offset > self.start_offset and self.is_replaced_by(snapshot_id)
        check(is_past, "a snapshot that replaces a log is past it", id=snapshot_id)
        self.epochs = EpochCache(start=snapshot_id)
        self.end_offset = self.flushed_end_offset = snapshot_id.offset
        self.latest_snapshot = snapshot_id

    def is_replaced_by(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Whether a snapshot of the leader's log replaces this log (SN-14)."""
        return is_replaced_by(self.end, snapshot_id)

    def snapshot_for(self, fetch_offset: Offset, last_fetched_epoch: Epoch) -> OffsetAndEpoch | None:
        """The snapshot to send to a replica whose log ends at `fetch_offset` in `last_fetched_epoch` (SN-20, SN-22).

        None if the replica can continue from this log. A replica with an empty log begins with a snapshot, even if this
        log has everything (PK-10). Kafka sends its earliest snapshot for the log's start; ours is the one at the start.
        """
        is_before = self.is_before_start(fetch_offset, last_fetched_epoch)
        return self.latest_snapshot if fetch_offset == 0 or is_before else None

    def is_before_start(self, fetch_offset: Offset, last_fetched_epoch: Epoch) -> bool:
        """Whether a replica whose log ends there cannot continue from this log (SN-20)."""
        # Consider a log that starts at 500, behind a record of epoch 3.
        # - A replica that ends at 480 needs deleted records.
        # - - One that ends at 500 in epoch 2 has a record at 499 other than the one that the snapshot at 500 covers.
        # - One that ends at 520 in epoch 2 diverges below 500, since all records here from 499 on are of epoch 3 or
        #   later. The records to compare with were deleted.
        # One that ends at 500 in epoch 3 continues with record 500.
        start = self.start
        return (
            fetch_offset < start.offset
            or (fetch_offset == start.offset > 0 and last_fetched_epoch != start.epoch)
            or last_fetched_epoch < start.epoch
        )

    def divergence(self, fetch_offset: Offset, last_fetched_epoch: Epoch) -> OffsetAndEpoch | None:
        """None if the log that ends at `fetch_offset` in `last_fetched_epoch` is a prefix of this one (SN-20).

        Else the point to compare: the last epoch at or below the replica's own, and where that epoch ends in this log.
        """
        # Two logs that have a record of the same epoch at the same offset are equal up to there: one leader wrote that
        # record, once, after a prefix that its followers had compared. So only the ends of epochs must be compared:
        #
        #     leader:    epoch 1 from 0, epoch 2 from 50, epoch 4 from 80, end 100
        #     follower:  epoch 1 from 0, epoch 2 from 50, epoch 3 from 70, end 90
        #
        # The follower fetches from 90 in epoch 3. The leader has no epoch 3. Its largest one below is 2, which ends at
        # 80 here: the answer is (epoch 2, offset 80). The next step is in `truncation_point`.
        if fetch_offset == 0 and self.start_offset == 0:
            return None
        end = self.epochs.end_offset_for_epoch(last_fetched_epoch, self.end_offset)
        return end if end.epoch != last_fetched_epoch or end.offset < fetch_offset else None

    def truncation_point(self, diverging: OffsetAndEpoch) -> Offset:
        """Where to truncate this log when the leader answers that it diverges there (RF-51)."""
        if diverging.epoch == 0:
            return max(self.start_offset, min(diverging.offset, self.end_offset))
        # In the example of `divergence` the follower gets (2, 80). Its own epoch 2 ends at 70, so its records from 70
        # on are not the leader's, and it truncates there. It fetches from 70 in epoch 2, which the leader's epoch 2
        # covers: it continues.
        #
        # A follower without that epoch truncates more, and may get such an answer again:
        #
        #     leader:    epoch 1 from 0, epoch 2 from 5, epoch 5 from 30, end 50
        #     follower:  epoch 1 from 0, epoch 3 from 10, epoch 4 from 25, end 40
        #
        # It fetches from 40 in epoch 4 and gets (2, 30). It has no epoch 2; its next lower one, 1, ends at 10, and it
        # truncates there. It fetches from 10 in epoch 1, gets (1, 5), truncates at 5, and continues from there. Each
        # answer passes at least one epoch of the two logs, so this ends.
        own = self.epochs.end_offset_for_epoch(diverging.epoch, self.end_offset)
        if own.epoch == diverging.epoch:
            return max(self.start_offset, min(own.offset, diverging.offset))
        return own.offset
