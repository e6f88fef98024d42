"""The resources of a broker at one moment, and its log lines since the last sample. Linux only, as for nodes."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kraftbase.types import NodeId
from kraftlog.broker.loop_watch import REPORT
from kraftlog.broker.settings import PARTITIONS_NAME
from kraftlog.chaos.soak.samples import ProcessSample, files_in, process_sample
from kraftlog.storage.formats.names import is_any_stray_directory

WINDOW_SECONDS: Final = 60.0
"""Lines are counted in a sliding window of this length."""
_REPORT: Final = re.compile(rf"event='{REPORT}' longest_processor_ms=([0-9.]+)")
_TRACEBACK: Final = "Traceback (most recent call last)"
_FENCED: Final = re.compile("Broker [0-9]+ was fenced:")


@dataclass(frozen=True, slots=True)
class Lines:
    """Counts of a process's log lines."""

    per_minute: int = 0
    """Lines in the last minute, without reports of the loop."""
    turn_ms: float = 0.0
    """The longest turn of the event loop reported since the last sample, in processor time."""
    fenced: int = 0
    """How often the broker logged since the last sample that it was fenced."""
    tracebacks: int = 0
    """Tracebacks since the last sample, of errors that were not caught."""


@dataclass(slots=True)
class LogTail:
    """Reads a log file from its end as it grows."""

    path: Path
    _offset: int = 0
    _arrivals: deque[tuple[float, int]] = field(default_factory=deque)
    """When lines were found, and how many."""

    def look(self, at_seconds: float) -> Lines:
        """Read all whole lines since the last call, and return their counts. A missing file has no lines."""
        lines = self._new_lines()
        reports = [float(found[1]) for line in lines if (found := _REPORT.search(line))]
        self._arrivals.append((at_seconds, len(lines) - len(reports)))
        while self._arrivals[0][0] <= at_seconds - WINDOW_SECONDS:
            self._arrivals.popleft()
        return Lines(
            per_minute=sum(count for _, count in self._arrivals),
            turn_ms=max(reports, default=0.0),
            fenced=sum(1 for line in lines if _FENCED.search(line)),
            tracebacks=sum(line.count(_TRACEBACK) for line in lines),
        )

    def _new_lines(self) -> list[str]:
        try:
            with self.path.open("rb") as log:
                log.seek(self._offset)
                content = log.read()
        except FileNotFoundError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.decode("utf-8", "replace").splitlines()


@dataclass(frozen=True, slots=True)
class BrokerSample:
    """One broker at one moment."""

    at_seconds: float
    broker_id: NodeId
    log_files: int
    """The files in its log directory, without logs that were set aside."""
    log_bytes: int
    """The bytes of these files."""
    own_bytes: int
    """The bytes of its directory outside of the log directory: metadata, and how it was shut down."""
    stray_logs: int = 0
    """Logs that were set aside since their topic was deleted while the broker did not run. They stay until an operator
    deletes them."""
    lines: Lines = Lines()
    process: ProcessSample | None = None
    """None if the broker does not run."""


def take_broker_sample(
    at_seconds: float, broker_id: NodeId, directory: Path, tail: LogTail, pid: int | None
) -> BrokerSample:
    """Sample a broker's directory and log file, and its process unless `pid` is None. Call it in a thread."""
    log_files = log_bytes = own_bytes = 0
    stray_logs: set[str] = set()
    for path, size in files_in(directory):
        first, *others = path.relative_to(directory).parts
        if first != PARTITIONS_NAME:
            own_bytes += size
        elif is_any_stray_directory(others[0]):
            stray_logs.add(others[0])
        else:
            log_files += 1
            log_bytes += size
    process = None if pid is None else process_sample(pid)
    return BrokerSample(
        at_seconds, broker_id, log_files, log_bytes, own_bytes, len(stray_logs), tail.look(at_seconds), process
    )
