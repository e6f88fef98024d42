"""The answers that clients received: which record is at which offset of a partition, and the high watermarks.

Producers, readers and the clients that read everything back enter their answers; an answer that contradicts an earlier
entry is a violation. Several threads enter answers.
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
    """The ledger of one run."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """The numbers of records: acknowledged, unknown, read, and so on."""
        self.violations: list[str] = []
        self.notes: list[str] = []
        """Events that are not violations, but may be worth inspecting."""
        self._acknowledged: defaultdict[At, dict[int, str]] = defaultdict(dict)
        self._without_offset: defaultdict[At, set[str]] = defaultdict(set)
        self._read: defaultdict[At, dict[int, str]] = defaultdict(dict)
        self._high_watermarks: defaultdict[At, dict[int, int]] = defaultdict(dict)
        """The highest high watermark of each leader epoch."""
        self._acknowledged_at: dict[At, float] = {}
        self.longest_pause_seconds = 0.0
        """The longest time between two acknowledgments of one partition."""
        self._lock = threading.Lock()

    def acknowledge(self, at: At, offset: int, value: str) -> None:
        """Enter that a producer got an acknowledgment for a record at this offset."""
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
        """Count a record that may or may not have been written."""
        with self._lock:
            self.counts["unknown"] += 1

    def read(self, at: At, offset: int, value: str) -> None:
        """Enter a record that a reader received."""
        with self._lock:
            self.counts["read"] += 1
            self._enter(self._read[at], at, offset, value, "read")
            self._compare(self._acknowledged[at], at, offset, value, "acknowledged was", "then read")

    def see_high_watermark(self, at: At, leader_epoch: int, high_watermark: int) -> None:
        """Enter a high watermark that a client got which sends one request after the other.

        It must not be below what the same leader, or a leader of an earlier epoch, has answered: a new leader does not
        answer before it knows the high watermark (KIP-207). A former leader of an earlier epoch may answer less.
        """
        with self._lock:
            self.counts["high watermarks"] += 1
            told = self._high_watermarks[at]
            owed, epoch = max(((known, of) for of, known in told.items() if of <= leader_epoch), default=(-1, -1))
            if high_watermark < owed:
                self.counts["high watermarks that went back"] += 1
                self._violation(
                    f"the leader of {at} in epoch {leader_epoch} answered high watermark {high_watermark}; in epoch"
                    f" {epoch} it was {owed}"
                )
            told[leader_epoch] = max(high_watermark, told.get(leader_epoch, -1))

    def note(self, story: str) -> None:
        """Note that a producer of the library has failed for good."""
        with self._lock:
            self.counts["producers that could not go on"] += 1
            if len(self.notes) < STORIES_MAX:
                self.notes.append(story)

    def told_of_cut(self, at: At, story: str) -> int:
        """Note a reader's error that records it has read no longer exist; return the offset after all read records.

        A former leader may answer so. This is not a violation by itself: `compare` finds missing records.
        """
        with self._lock:
            self.counts["readers told of a cut"] += 1
            if len(self.notes) < STORIES_MAX:
                self.notes.append(story)
            return 1 + max(self._read[at], default=-1)

    def break_rule(self, story: str) -> None:
        """Add a violation that was found elsewhere."""
        with self._lock:
            self._violation(story)

    def offsets_to_find(self) -> dict[At, int]:
        """Return, for each partition, the offset after all records that were acknowledged or read."""
        with self._lock:
            partitions = self._acknowledged.keys() | self._read.keys()
            return {at: 1 + max([-1, *self._acknowledged[at], *self._read[at]]) for at in partitions}

    def compare(self, at: At, found: Mapping[int, str], below: int, start: int = 0) -> int:
        """Compare a partition that was read back from `start` to `below`; return the number of lost records.

        Every record that was acknowledged, or that a reader received, must be found; lost ones are acknowledged ones.
        """
        with self._lock:
            lost = 0
            for kind, owed in (("acknowledged", self._acknowledged[at]), ("read", self._read[at])):
                for offset, value in owed.items():
                    if start <= offset < below and found.get(offset) != value:
                        lost += kind == "acknowledged"
                        self._violation(f"{kind} and lost: {value} at {offset} of {at}; found {found.get(offset)}")
            self.counts["acknowledged and lost"] += lost
            return lost

    def compare_all(self, at: At, found: Mapping[int, str]) -> int:
        """As `compare`, at the end, for all records, also those acknowledged without an offset.

        Records that were written twice are counted. Brokers keep a producer's sequence (`checks.sequences_hold`), but
        the library begins a new sequence when a broker refuses a record, and then may send accepted records again.
        """
        lost = self.compare(at, found, 1 + max([-1, *self._acknowledged[at], *self._read[at]]))
        with self._lock:
            missing = self._without_offset[at] - set(found.values())
            for value in sorted(missing):
                self._violation(f"acknowledged and lost: {value} of {at}, which a broker called a duplicate")
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
