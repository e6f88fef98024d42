"""What clients were told: which record is at which offset of which partition, and how far partitions are committed.

Producers, readers and the ones that read everything back enter what they hear; whatever contradicts something that was
entered before is a violation. Several threads enter.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from kraftbase.sentinels import UNKNOWN_OFFSET
from kraftlog.chaos.checks import STORIES_MAX


class At(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


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
        self._high_watermarks: defaultdict[At, dict[int, int]] = defaultdict(dict)
        """The highest of each leader epoch."""
        self._acknowledged_at: dict[At, float] = {}
        self.longest_pause_seconds = 0.0
        """Between two acknowledgements of one partition."""
        self._lock = threading.Lock()

    def acknowledge(self, at: At, offset: int, value: str) -> None:
        """A producer got an acknowledgment for its record there."""
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

    def see_high_watermark(self, at: At, leader_epoch: int, high_watermark: int) -> None:
        """A client that sends one request after the other got this high watermark of the partition.

        That is never less than what the same leader has told, nor less than what leaders of earlier epochs have: a new
        one does not tell it before it knows (KIP-207). One that is deposed, and does not know, may tell less.
        """
        with self._lock:
            self.counts["high watermarks"] += 1
            told = self._high_watermarks[at]
            owed, epoch = max(((known, of) for of, known in told.items() if of <= leader_epoch), default=(-1, -1))
            if high_watermark < owed:
                self.counts["high watermarks that went back"] += 1
                self._violation(
                    f"the leader of {at} in epoch {leader_epoch} told high watermark {high_watermark}; in epoch {epoch}"
                    f" it was {owed}"
                )
            told[leader_epoch] = max(high_watermark, told.get(leader_epoch, -1))

    def note(self, story: str) -> None:
        """A producer of the library has failed for good."""
        with self._lock:
            self.counts["producers that could not go on"] += 1
            if len(self.notes) < STORIES_MAX:
                self.notes.append(story)

    def told_of_cut(self, at: At, story: str) -> int:
        """A reader got an error: records that it has read are gone. Returns the offset after all that was read.

        A deposed leader may say so: no violation by itself, as `compare` finds what is missing.
        """
        with self._lock:
            self.counts["readers told of a cut"] += 1
            if len(self.notes) < STORIES_MAX:
                self.notes.append(story)
            return 1 + max(self._read[at], default=-1)

    def break_rule(self, story: str) -> None:
        """Something that must not happen was seen elsewhere."""
        with self._lock:
            self._violation(story)

    def offsets_to_find(self) -> dict[At, int]:
        """For each partition the end of what a reader must find: after all that was acknowledged or read."""
        with self._lock:
            partitions = self._acknowledged.keys() | self._read.keys()
            return {at: 1 + max([-1, *self._acknowledged[at], *self._read[at]]) for at in partitions}

    def compare(self, at: At, found: Mapping[int, str], below: int, start: int = 0) -> int:
        """A partition was read back from `start` to `below`; returns how many records that are owed are lost.

        Owed is what was acknowledged, and what a reader was given.
        """
        with self._lock:
            lost = 0
            for kind, owed in (("acknowledged", self._acknowledged[at]), ("read", self._read[at])):
                for offset, value in owed.items():
                    if start <= offset < below and found.get(offset) != value:
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
