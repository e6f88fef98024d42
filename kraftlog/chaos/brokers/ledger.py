"""What clients were told: which record is at which offset of which partition, and how far partitions are committed.

Producers, readers and the ones that read everything back enter what they hear; whatever contradicts something that was
entered before is a violation. Several threads enter.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final, NamedTuple

from kraftlog.chaos.checks import STORIES_MAX


class At(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


UNKNOWN_OFFSET: Final = -1
"""A record was acknowledged as one that is there already: the broker does not say where."""


class Ledger:
    """Of one run."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Of records: acknowledged, unknown, read, and so on."""
        self.violations: list[str] = []
        self.notes: list[str] = []
        """What is no violation, and may be worth a look."""
        self._acknowledged: defaultdict[At, dict[int, str]] = defaultdict(dict)
        self._without_offset: defaultdict[At, set[str]] = defaultdict(set)
        self._read: defaultdict[At, dict[int, str]] = defaultdict(dict)
        self._high_watermarks: dict[tuple[str, At], int] = {}
        self._acknowledged_at: dict[At, float] = {}
        self.longest_pause_seconds = 0.0
        """Between two acknowledgements of one partition."""
        self._lock = threading.Lock()

    def acknowledge(self, at: At, offset: int, value: str) -> None:
        """A producer was told that its record is committed there."""
        with self._lock:
            self.counts["acknowledged"] += 1
            now = time.monotonic()
            pause = now - self._acknowledged_at.get(at, now)
            self.longest_pause_seconds = max(self.longest_pause_seconds, pause)
            self._acknowledged_at[at] = now
            if offset == UNKNOWN_OFFSET:
                self._without_offset[at].add(value)
                return
            self._enter(self._acknowledged[at], at, offset, value, "acknowledged")
            self._compare(self._read[at], at, offset, value, "a reader got", "then acknowledged")

    def lose_track(self) -> None:
        """A record may be written, or not."""
        with self._lock:
            self.counts["unknown"] += 1

    def read(self, at: At, offset: int, value: str) -> None:
        """A reader was given this record."""
        with self._lock:
            self.counts["read"] += 1
            self._enter(self._read[at], at, offset, value, "read")
            self._compare(self._acknowledged[at], at, offset, value, "acknowledged was", "then read")

    def see_high_watermark(self, reader: str, at: At, high_watermark: int) -> None:
        """A reader was told how far the partition is committed."""
        with self._lock:
            known = self._high_watermarks.get((reader, at), -1)
            if high_watermark < known:
                self.counts["high watermarks that went back"] += 1
                self._violation(f"{reader} was told high watermark {high_watermark} of {at}, before {known}")
            else:
                self._high_watermarks[reader, at] = high_watermark

    def note(self, story: str) -> None:
        """A producer of the library has failed for good."""
        with self._lock:
            self.counts["producers that could not go on"] += 1
            if len(self.notes) < STORIES_MAX:
                self.notes.append(story)

    def break_rule(self, story: str) -> None:
        """Something that must not happen was seen elsewhere."""
        with self._lock:
            self._violation(story)

    def offsets_to_find(self) -> dict[At, int]:
        """For each partition the end of what a reader must find: after all that was acknowledged or read."""
        with self._lock:
            partitions = self._acknowledged.keys() | self._read.keys()
            return {at: 1 + max([-1, *self._acknowledged[at], *self._read[at]]) for at in partitions}

    def compare(self, at: At, found: Mapping[int, str], below: int) -> int:
        """A partition was read back from its beginning to `below`; returns how many records that are owed are lost.

        Owed is what was acknowledged, and what a reader was given.
        """
        with self._lock:
            lost = 0
            for kind, owed in (("acknowledged", self._acknowledged[at]), ("read", self._read[at])):
                for offset, value in owed.items():
                    if offset < below and found.get(offset) != value:
                        lost += kind == "acknowledged"
                        self._violation(f"{kind} and lost: {value} at {offset} of {at}; there is {found.get(offset)}")
            self.counts["acknowledged and lost"] += lost
            return lost

    def compare_all(self, at: At, found: Mapping[int, str]) -> int:
        """As `compare`, at the end: everything, also what was acknowledged without an offset.

        Records that are there twice are counted. Brokers keep a producer's sequence (`checks.sequences_hold`), but the
        library begins a new one when a broker refuses a record, and then sends again what others may have taken.
        """
        lost = self.compare(at, found, 1 + max([-1, *self._acknowledged[at], *self._read[at]]))
        with self._lock:
            missing = self._without_offset[at] - set(found.values())
            for value in sorted(missing):
                self._violation(f"acknowledged and lost: {value} of {at}, which a broker said is there already")
            self.counts["acknowledged and lost"] += len(missing)
            self.counts["written twice"] += len(found) - len(set(found.values()))
        return lost + len(missing)

    def _enter(self, known: dict[int, str], at: At, offset: int, value: str, verb: str) -> None:
        self._compare(known, at, offset, value, f"{verb} was", f"then {verb}")
        known.setdefault(offset, value)

    def _compare(self, known: Mapping[int, str], at: At, offset: int, value: str, first: str, second: str) -> None:
        before = known.get(offset)
        if before is not None and before != value:
            self.counts["contradictions"] += 1
            self._violation(f"two records at {offset} of {at}: {first} {before}, {second} {value}")

    def _violation(self, story: str) -> None:
        if len(self.violations) < STORIES_MAX:
            self.violations.append(story)
        self.counts["violations"] += 1
