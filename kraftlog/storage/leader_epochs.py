"""The leader epochs of a partition's log, with the first offset of each (KIP-101, KIP-279)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from kraftbase.sentinels import UNKNOWN_EPOCH, UNKNOWN_OFFSET


class EpochEnd(NamedTuple):
    """An epoch and its end offset; both are -1 if unknown."""

    epoch: int
    end_offset: int


UNDEFINED_END: Final = EpochEnd(UNKNOWN_EPOCH, UNKNOWN_OFFSET)


class LeaderEpochs:
    """Epochs and their first offsets; epochs ascend, and so do offsets.

    Unlike the epochs of the quorum's log, they include epochs without records: a new leader adds its epoch at the log
    end offset before it appends (DB-68).
    """

    __slots__ = ("_entries", "_saved", "is_changed")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        """`entries` are those of the file on disk."""
        self._entries: list[tuple[int, int]] = list(entries)
        self._saved = tuple(self._entries)
        self.is_changed = False
        """Whether the file on disk may lack entries."""

    def saved(self, entries: tuple[tuple[int, int], ...]) -> None:
        """Note that the file on disk has these entries; others may have been added during its writing."""
        self._saved = entries
        self.is_changed = tuple(self._entries) != entries

    def are_saved_below(self, end_offset: int) -> bool:
        """Whether the file has all entries below `end_offset`; a startup drops the other ones."""
        return not self.is_changed or [entry for entry in self._saved if entry[1] < end_offset] == [
            entry for entry in self._entries if entry[1] < end_offset
        ]

    @property
    def latest(self) -> int:
        """The last epoch, or -1."""
        return self._entries[-1][0] if self._entries else UNKNOWN_EPOCH

    def entries(self) -> tuple[tuple[int, int], ...]:
        """Each epoch and its first offset."""
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Add that `epoch` begins at an offset; remove entries that contradict it (DB-40)."""
        if self._entries:
            last_epoch, last_start = self._entries[-1]
            if epoch == last_epoch and start_offset >= last_start:
                return
        while self._entries and (self._entries[-1][0] >= epoch or self._entries[-1][1] >= start_offset):
            self._entries.pop()
        self._entries.append((epoch, start_offset))
        self.is_changed = True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Return the largest known epoch not above `epoch`, and where it ends (DB-41)."""
        if epoch == UNKNOWN_EPOCH:
            return UNDEFINED_END
        if epoch == self.latest:
            return EpochEnd(epoch, log_end_offset)
        higher = bisect_right(self._entries, epoch, key=lambda entry: entry[0])
        if higher == len(self._entries):
            return UNDEFINED_END
        known = self._entries[higher - 1][0] if higher else epoch
        return EpochEnd(known, self._entries[higher][1])

    def is_committed(self, epoch: int, high_watermark: int) -> bool:
        """Whether a record of `epoch`, or of a later epoch, is below the high watermark."""
        return any(known >= epoch and start < high_watermark for known, start in self._entries)

    def epoch_of(self, offset: int) -> int:
        """Return the epoch of the record at an offset, or -1."""
        after = bisect_right(self._entries, offset, key=lambda entry: entry[1])
        return self._entries[after - 1][0] if after else UNKNOWN_EPOCH

    def truncate_end(self, end_offset: int) -> None:
        """Remove the entries that begin at `end_offset` or later, after a truncation (DB-42)."""
        while self._entries and self._entries[-1][1] >= end_offset:
            self._entries.pop()
            self.is_changed = True

    def truncate_start(self, start_offset: int) -> None:
        """Move the start to `start_offset`: of the entries below it only the last stays, and begins there (DB-42)."""
        below = bisect_right(self._entries, start_offset, key=lambda entry: entry[1])
        if not below or self._entries[0][1] == start_offset:
            return
        self._entries[:below] = [(self._entries[below - 1][0], start_offset)]
        self.is_changed = True

    def clear(self) -> None:
        """Remove all entries: the log starts over."""
        self.is_changed |= bool(self._entries)
        self._entries.clear()
