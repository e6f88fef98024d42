"""The ways a process ends, within a step or between two."""

from __future__ import annotations

from enum import StrEnum


class Crash(StrEnum):
    """How a process ends, and what its disk keeps of unsynced writes."""

    KILLED = "killed, the page cache stays"
    NOTHING_KEPT = "power lost, nothing unsynced kept"
    PREFIX_KEPT = "power lost, torn at a byte"
    SECTORS_KEPT = "power lost, any sectors of 512 bytes kept"
    PAGES_KEPT = "power lost, any pages of 4096 bytes kept"


class ProcessKilled(BaseException):
    """Raised where a process is killed, so that none of its code runs after that point."""
