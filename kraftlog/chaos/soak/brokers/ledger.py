"""The ledger of partitions with retention: records below a log start need not be found again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from kraftbase.sentinels import UNKNOWN_OFFSET
from kraftlog.chaos.brokers.ledger import At, Ledger


class RetainedLedger(Ledger):
    """A ledger that forgets records that retention has deleted, so that its size is bounded, too."""

    def __init__(self) -> None:
        super().__init__()
        self._starts: defaultdict[At, int] = defaultdict(int)
        """The offset of each partition below which records were forgotten."""
        self._skipped: defaultdict[At, list[tuple[int, int]]] = defaultdict(list)

    def acknowledge(self, at: At, offset: int, value: str) -> None:
        """As in Ledger; a record that a reader has received already needs no offset."""
        super().acknowledge(at, offset, value)
        if offset == UNKNOWN_OFFSET:
            with self._lock:
                if value in self._read[at].values():
                    self._without_offset[at].discard(value)

    def read(self, at: At, offset: int, value: str) -> None:
        """As in Ledger; the record then needs no offset."""
        super().read(at, offset, value)
        with self._lock:
            self._without_offset[at].discard(value)

    def skip(self, at: At, begin: int, end: int) -> None:
        """Note that retention deleted the records from `begin` to `end` before a reader reached them."""
        with self._lock:
            self.counts["deleted before a reader came"] += end - begin
            self._skipped[at].append((begin, end))

    def unread(self) -> int:
        """Return how many acknowledged records no reader has received, without those deleted by retention."""
        with self._lock:
            return sum(len(self._unread(at, None)) for at in list(self._acknowledged))

    def forget(self, at: At, start: int) -> None:
        """Forget records below a log start. Acknowledged ones must have been read before retention deleted them."""
        with self._lock:
            for offset in self._unread(at, start):
                self.counts["acknowledged and lost"] += 1
                self._violation(f"acknowledged and never read: {self._acknowledged[at][offset]} at {offset} of {at}")
            for known in (self._acknowledged[at], self._read[at]):
                for offset in [offset for offset in known if offset < start]:
                    del known[offset]
            self._skipped[at] = [(begin, end) for begin, end in self._skipped[at] if end > start]
            self._starts[at] = max(start, self._starts[at])

    def compare_all(self, at: At, found: Mapping[int, str]) -> int:
        """Check at the end, after `forget`, that all records acknowledged or read exist from the log start on."""
        lost = self.compare(at, found, 1 + max([-1, *self._acknowledged[at], *self._read[at]]))
        with self._lock:
            missing = self._without_offset[at] - set(found.values()) if not self._skipped[at] else set()
            for value in sorted(missing):
                self._violation(f"acknowledged and lost: {value} of {at}, which a broker called a duplicate")
            self.counts["acknowledged and lost"] += len(missing)
        return lost + len(missing)

    def _unread(self, at: At, below: int | None) -> list[int]:
        read, skipped = self._read[at], self._skipped[at]
        return [
            offset
            for offset in self._acknowledged[at]
            if (below is None or offset < below)
            and offset >= self._starts[at]
            and offset not in read
            and not any(begin <= offset < end for begin, end in skipped)
        ]
