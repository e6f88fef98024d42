"""Checks that no live broker is fenced by evidence, and none by its session without a fault (CT-30, CT-65).

The nodes' log lines show when and why a broker epoch was fenced, the brokers' log lines which process had this epoch,
and the chronicle of the run when this process was ended, paused, cut off and so on.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from kraftlog.broker.shell.membership_messages import REGISTERED
from kraftlog.chaos.chronicle import Chronicle, Span
from kraftlog.controller.dead_brokers import FENCED_BY_EVIDENCE
from kraftlog.controller.periodic_tasks import FENCED_BY_SESSION

CLOCK_SECONDS: Final = 0.005
"""How much earlier than an event the log line about its effect may be, since clocks are read one after the other."""

REFUSED_SECONDS: Final = 0.09
"""Connections that are refused for longer may look like the end of a process. The value is not taken from the constants
of `broker_evidence`, which may be wrong."""

SUSPICION_SECONDS: Final = 1.0
"""How long after such a refusal a fencing by evidence is allowed."""

WELL_SECONDS_MAX: Final = 1.0
"""When a session expires, faults must have affected the broker or the nodes during all of the session except this time:
heartbeats are sent every 250 ms, and an answered heartbeat restarts the session."""

RECOVERY_SECONDS: Final = 1.0
"""A fault still explains a late heartbeat for as long as it lasted after its end, plus this time: TCP and clients
double their retry intervals."""

_LINE: Final = re.compile(
    r"timestamp='(?P<at>[^']+)' level='\w+' event='(?P<event>[^']+)' broker_id=(?P<broker_id>\d+) epoch=(?P<epoch>\d+)"
)


class Told(NamedTuple):
    """A line of a log about a broker epoch."""

    at: float
    """The time in seconds since 1970."""
    event: str
    broker_id: int
    epoch: int


def told(lines: Iterable[str]) -> Iterator[Told]:
    """Yield the lines of a log about fencings and registrations."""
    for line in lines:
        found = _LINE.match(line)
        if found is not None and found["event"] in (REGISTERED, FENCED_BY_EVIDENCE, FENCED_BY_SESSION):
            at = datetime.fromisoformat(found["at"]).timestamp()
            yield Told(at, found["event"], int(found["broker_id"]), int(found["epoch"]))


def read_logs(paths: Iterable[Path]) -> list[Told]:
    """Return the lines of log files about fencings and registrations."""
    found: list[Told] = []
    for path in paths:
        with path.open(encoding="utf-8", errors="replace") as lines:
            found += told(lines)
    return found


class Fencings:
    """Compares fencings with the chronicle, and keeps the results."""

    def __init__(self, chronicle: Chronicle, voter_ids: Iterable[int], session_seconds: float) -> None:
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self.longest_seconds = 0.0
        """The longest time from the end of a process until its broker was fenced by evidence."""
        self._chronicle = chronicle
        self._voter_ids = frozenset(voter_ids)
        self._session_seconds = session_seconds

    def compare(self, lines: Iterable[Told]) -> None:
        """Compare every fencing with the chronicle."""
        lines = sorted(lines)
        registered = {(line.broker_id, line.epoch): line.at for line in reversed(lines) if line.event == REGISTERED}
        for line in lines:
            if line.event == FENCED_BY_EVIDENCE:
                self._by_evidence(line, registered)
            elif line.event == FENCED_BY_SESSION:
                self._by_session(line, registered)

    def _by_evidence(self, line: Told, registered: Mapping[tuple[int, int], float]) -> None:
        self.counts["by evidence"] += 1
        life = self._life(line, registered)
        if life is None:
            self.counts["of a process that did not tell its epoch"] += 1
        elif line.at >= life.ended - CLOCK_SECONDS:
            self.longest_seconds = max(self.longest_seconds, line.at - life.ended)
        elif self._was_refused(line):
            self.counts["refused for too long"] += 1
        else:
            self.violations.append(f"{_story(line)} by evidence, although its process lived")

    def _by_session(self, line: Told, registered: Mapping[tuple[int, int], float]) -> None:
        self.counts["by session"] += 1
        life = self._life(line, registered)
        if life is None or line.at >= life.ended - CLOCK_SECONDS:
            return
        well = self._longest_well(line.broker_id, max(line.at - self._session_seconds, life.began), line.at)
        if well > WELL_SECONDS_MAX:
            self.violations.append(
                f"{_story(line)} by its session, although no fault affected it or the nodes for {well:.1f} s of it"
            )

    def _life(self, line: Told, registered: Mapping[tuple[int, int], float]) -> Span | None:
        """Return the process that had the epoch; None if it was killed before it logged the epoch."""
        at = registered.get((line.broker_id, line.epoch), -math.inf)
        lives = [of for of in self._chronicle.lives if of.node_id == line.broker_id and of.began - CLOCK_SECONDS <= at]
        return lives[-1] if lives else None

    def _was_refused(self, line: Told) -> bool:
        return any(
            of.node_id == line.broker_id
            and of.ended - of.began >= REFUSED_SECONDS
            and of.began + REFUSED_SECONDS <= line.at <= of.ended + SUSPICION_SECONDS
            for of in self._chronicle.refusals
        )

    def _longest_well(self, broker_id: int, began: float, ended: float) -> float:
        """Return the longest part of that time in which no fault affected the broker or a voter."""
        ailments = sorted(
            (of.began, of.ended + (of.ended - of.began) + RECOVERY_SECONDS)
            for of in self._chronicle.ailments
            if of.node_id == broker_id or of.node_id in self._voter_ids
        )
        longest, well_since = 0.0, began
        for from_, until in [*ailments, (ended, ended)]:
            longest = max(longest, min(from_, ended) - well_since)
            well_since = max(well_since, until)
        return longest


def _story(line: Told) -> str:
    when = datetime.fromtimestamp(line.at).astimezone().isoformat(timespec="milliseconds")
    return f"broker {line.broker_id} with epoch {line.epoch} was fenced at {when}"
