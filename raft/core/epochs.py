"""The leader-epoch cache: at which offset each epoch starts in the log (RF-40, RF-51, SN-21)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final

from kraftbase.checks import check
from kraftbase.types import Epoch, Offset
from raft.core.types import OffsetAndEpoch

LOG_BEGINNING: Final = OffsetAndEpoch(epoch=Epoch(0), offset=Offset(0))
"""The start of a log that has everything."""


class EpochCache:
    """Epochs and their start offsets, both strictly increasing, behind the log's start.

    The cache is derived from the log: it is rebuilt when the log is opened, and updated with every change of the log.
    """

    # Consider a log with records 500 to 549 of epoch 3, 550 to 599 of epoch 5 and 600 of epoch 6, which starts at 500;
    # the record at 499 was of epoch 3, too. `start` is (epoch 3, offset 500), and the entries are (5, 550) and (6,
    # 600). `end_offset_for_epoch` returns these ends of epochs:
    #
    #     asked for 2 -> (0, 500)   before the start: unknown
    #     asked for 3 -> (3, 550)
    #     asked for 4 -> (3, 550)   there is no epoch 4: the one below, and its end
    #     asked for 5 -> (5, 600)
    #     asked for 9 -> (6, 601)   the last one ends with the log
    #
    # When the start moves to 600, the entry (5, 550) is removed, and `start` is (5, 600): the epoch of record 599 stays
    # known, to answer a replica that ends there.
    __slots__ = ("_epochs", "_start_offsets", "start")

    def __init__(self, entries: Iterable[tuple[Epoch, Offset]] = (), *, start: OffsetAndEpoch = LOG_BEGINNING) -> None:
        """Start with `entries`, pairs of an epoch and its start offset, in log order.

        `start` is the log's start offset and the epoch of the record before it, 0 if there is none. An epoch that
        continues past the start has no entry of its own.
        """
        self.start = start
        self._epochs: list[Epoch] = []
        self._start_offsets: list[Offset] = []
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    @property
    def last_epoch(self) -> Epoch:
        """The epoch of the last record, or of the record before the start if the log is empty; 0 if there is none."""
        return self._epochs[-1] if self._epochs else self.start.epoch

    def entries(self) -> list[tuple[Epoch, Offset]]:
        """Every (epoch, start offset) behind the start, in log order."""
        return list(zip(self._epochs, self._start_offsets, strict=True))

    def copy(self) -> EpochCache:
        """An independent copy."""
        return EpochCache(self.entries(), start=self.start)

    def assign(self, epoch: Epoch, start_offset: Offset) -> None:
        """Record that a batch of `epoch` was appended at `start_offset`. Later batches of that epoch change nothing."""
        last_epoch = self.last_epoch
        if epoch == last_epoch:
            return
        last_start_offset = self._start_offsets[-1] if self._start_offsets else Offset(self.start.offset - 1)
        check(
            epoch > last_epoch and start_offset > last_start_offset,
            "epochs and their start offsets must increase along the log",
            epoch=epoch,
            start_offset=start_offset,
            last_epoch=last_epoch,
            last_start_offset=last_start_offset,
        )
        self._epochs.append(epoch)
        self._start_offsets.append(start_offset)

    def end_offset_for_epoch(self, epoch: Epoch, log_end_offset: Offset) -> OffsetAndEpoch:
        """The largest epoch known at or below `epoch`, and the offset where that epoch ends (SN-21).

        An epoch above every known one gives the last epoch and the log end offset. An epoch below that of the record
        before the log's start gives epoch 0 and the log's start offset: epochs below the start are no longer known.
        """
        if epoch < self.start.epoch:
            return OffsetAndEpoch(epoch=Epoch(0), offset=self.start.offset)
        index = bisect_right(self._epochs, epoch)
        end = self._start_offsets[index] if index < len(self._epochs) else log_end_offset
        found = self._epochs[index - 1] if index else self.start.epoch
        return OffsetAndEpoch(epoch=found, offset=end)

    def epoch_before(self, offset: Offset) -> Epoch:
        """The epoch of the record before `offset`, which is the log's start or in the log; 0 if there is none."""
        index = bisect_left(self._start_offsets, offset)
        return self._epochs[index - 1] if index else self.start.epoch

    def holds(self, point: OffsetAndEpoch, log_end_offset: Offset) -> bool:
        """Whether a log that ends there holds the records below `point`, or held them before its start.

        `point.epoch` is the epoch of the last of those records; logs that agree on one record agree on all before it.
        """
        if point.offset <= self.start.offset:
            # The record was deleted, so it cannot be compared. It may have been in this log unless its epoch is above
            # that of the record before the start.
            return point.epoch <= self.start.epoch
        return point.offset <= log_end_offset and self.epoch_before(point.offset) == point.epoch

    def truncate(self, end_offset: Offset) -> None:
        """Forget epochs that start at or after `end_offset`, where the log is truncated."""
        while self._start_offsets and self._start_offsets[-1] >= end_offset:
            self._start_offsets.pop()
            self._epochs.pop()

    def advance_start(self, start: OffsetAndEpoch) -> None:
        """Set the log's start to `start`, which is not below the current one; epochs that end there are forgotten."""
        check(start.offset >= self.start.offset, "a log's start does not go back", start=start, known=self.start)
        kept = bisect_right(self._epochs, start.epoch)
        del self._epochs[:kept], self._start_offsets[:kept]
        self.start = start
