"""The leader epochs in a partition's log: at which offset each begins (KIP-101, KIP-279)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from kraftbase.sentinels import UNKNOWN_EPOCH, UNKNOWN_OFFSET


class EpochEnd(NamedTuple):
    """Where an epoch ends; both -1 if that is not known."""

    epoch: int
    end_offset: int


UNDEFINED_END: Final = EpochEnd(UNKNOWN_EPOCH, UNKNOWN_OFFSET)


class LeaderEpochs:
    """Epochs and their first offsets; epochs ascend, and so do offsets.

    Unlike the cache of the quorum's log, it has an entry for an epoch without records: a leader enters its epoch at the
    log's end before it appends (DB-68).
    """

    __slots__ = ("_entries", "_saved", "is_changed")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        """`entries`: those of the file on disk."""
        self._entries: list[tuple[int, int]] = list(entries)
        self._saved = tuple(self._entries)
        self.is_changed = False
        """Whether the file on disk may lack something."""

    def saved(self, entries: tuple[tuple[int, int], ...]) -> None:
        """The file on disk has these entries, which were all when its writing began."""
        self._saved = entries
        self.is_changed = tuple(self._entries) != entries

    def are_saved_below(self, end_offset: int) -> bool:
        """Whether the file has the epochs of all records of a log that ends there; a start drops the other entries."""
        return not self.is_changed or [one for one in self._saved if one[1] < end_offset] == [
            one for one in self._entries if one[1] < end_offset
        ]

    @property
    def latest(self) -> int:
        """The last epoch, or -1."""
        return self._entries[-1][0] if self._entries else UNKNOWN_EPOCH

    def entries(self) -> tuple[tuple[int, int], ...]:
        """Each epoch and its first offset."""
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Enter that `epoch` begins at an offset; entries that contradict it go (DB-40)."""
        if self._entries:
            last_epoch, last_start = self._entries[-1]
            if epoch == last_epoch and start_offset >= last_start:
                return
        while self._entries and (self._entries[-1][0] >= epoch or self._entries[-1][1] >= start_offset):
            self._entries.pop()
        self._entries.append((epoch, start_offset))
        self.is_changed = True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Where an epoch ends, with the largest known epoch that is not above it (DB-41)."""
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
        """Whether a record of that epoch, or of a later one, is below the high watermark."""
        return any(known >= epoch and start < high_watermark for known, start in self._entries)

    def epoch_of(self, offset: int) -> int:
        """The epoch of the record at an offset, or -1."""
        after = bisect_right(self._entries, offset, key=lambda entry: entry[1])
        return self._entries[after - 1][0] if after else UNKNOWN_EPOCH

    def truncate_end(self, end_offset: int) -> None:
        """The log was cut at an offset: entries that begin there or later go (DB-42)."""
        while self._entries and self._entries[-1][1] >= end_offset:
            self._entries.pop()
            self.is_changed = True

    def truncate_start(self, start_offset: int) -> None:
        """The log begins at an offset: of the entries before it the last one stays, and begins there (DB-42)."""
        below = bisect_right(self._entries, start_offset, key=lambda entry: entry[1])
        if not below or self._entries[0][1] == start_offset:
            return
        self._entries[:below] = [(self._entries[below - 1][0], start_offset)]
        self.is_changed = True

    def clear(self) -> None:
        """The log is empty, and nothing is known of what was before it."""
        self.is_changed |= bool(self._entries)
        self._entries.clear()
