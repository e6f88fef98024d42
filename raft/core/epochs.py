"""The leader-epoch cache: at which offset each epoch starts in the log (RF-40, RF-51, SN-21)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from raft.core.checks import check
from raft.core.types import Epoch, Offset, OffsetAndEpoch


class EpochCache:
    """Epochs and their start offsets, both strictly increasing.

    Derived from the log: it is rebuilt when the log is opened and kept in step by appends and truncations.
    """

    __slots__ = ("_epochs", "_start_offsets")

    def __init__(self, entries: Iterable[tuple[Epoch, Offset]] = ()) -> None:
        """Start with `entries`, pairs of an epoch and its start offset, in log order."""
        self._epochs: list[Epoch] = []
        self._start_offsets: list[Offset] = []
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    @property
    def last_epoch(self) -> Epoch:
        """The epoch of the last record, 0 for an empty log."""
        return self._epochs[-1] if self._epochs else Epoch(0)

    def entries(self) -> list[tuple[Epoch, Offset]]:
        """Every (epoch, start offset), in log order."""
        return list(zip(self._epochs, self._start_offsets, strict=True))

    def copy(self) -> EpochCache:
        """A cache with the same entries that changes on its own."""
        return EpochCache(self.entries())

    def assign(self, epoch: Epoch, start_offset: Offset) -> None:
        """Note that a batch of `epoch` was appended at `start_offset`. Later batches of that epoch change nothing."""
        if self._epochs:
            if epoch == self._epochs[-1]:
                return
            check(
                epoch > self._epochs[-1] and start_offset > self._start_offsets[-1],
                "epochs and their start offsets must increase along the log",
                epoch=epoch,
                start_offset=start_offset,
                last_epoch=self._epochs[-1],
                last_start_offset=self._start_offsets[-1],
            )
        self._epochs.append(epoch)
        self._start_offsets.append(start_offset)

    def end_offset_for_epoch(self, epoch: Epoch, log_end_offset: Offset) -> OffsetAndEpoch:
        """The largest epoch in the log at or below `epoch`, and the offset where that epoch ends (SN-21).

        An epoch above every known one gives the last epoch and the log end offset. An epoch below every known
        one gives epoch 0 and the start offset of the first known one (0 for an empty log).
        """
        index = bisect_right(self._epochs, epoch)
        end = self._start_offsets[index] if index < len(self._epochs) else log_end_offset
        found = self._epochs[index - 1] if index else Epoch(0)
        return OffsetAndEpoch(epoch=found, offset=end)

    def truncate(self, end_offset: Offset) -> None:
        """Forget epochs that start at or after `end_offset`, as the log is cut there."""
        while self._start_offsets and self._start_offsets[-1] >= end_offset:
            self._start_offsets.pop()
            self._epochs.pop()
