"""The resources that a process uses, from /proc: processor time, memory, files, and bytes read from disks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

KIBIBYTE: Final = 1024
BYTES_PER_MEGABYTE: Final = 1_000_000

_STOPPED: Final = "T"
_USER_TICKS: Final = 11
"""The index of the time in user mode in /proc/PID/stat, counted after the name; the kernel time follows it."""


def processor_seconds(pid: int) -> float:
    """Return the user and kernel time since the process started. Raises OSError if the process has ended."""
    return processor_ticks(_read(pid, "stat")) / os.sysconf("SC_CLK_TCK")


def is_stopped(pid: int) -> bool:
    """Whether SIGSTOP has stopped the process. Raises OSError if it has ended."""
    return state(_read(pid, "stat")) == _STOPPED


def resident_megabytes(pid: int) -> float:
    """Return the resident memory of the process. Raises OSError if it has ended."""
    return resident_bytes(_read(pid, "status")) / BYTES_PER_MEGABYTE


def open_files(pid: int) -> int:
    """Return how many file descriptors are open. Raises OSError if the process has ended, or is another user's."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def disk_bytes_read(pid: int) -> int:
    """Return the bytes that the process has read from disks, without the page cache. Raises OSError."""
    return bytes_read(_read(pid, "io"))


def state(stat: str) -> str:
    """Return the letter of the process's state in a /proc/PID/stat."""
    return stat.rpartition(")")[2].split()[0]


def processor_ticks(stat: str) -> int:
    """Return user plus kernel time in a /proc/PID/stat, in ticks of the clock."""
    fields = stat.rpartition(")")[2].split()
    return int(fields[_USER_TICKS]) + int(fields[_USER_TICKS + 1])


def resident_bytes(status: str) -> int:
    """`VmRSS` of a /proc/PID/status."""
    return int(_field(status, "VmRSS").removesuffix("kB")) * KIBIBYTE


def bytes_read(io: str) -> int:
    """`read_bytes` of a /proc/PID/io."""
    return int(_field(io, "read_bytes"))


def _field(text: str, name: str) -> str:
    values = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return values[name].strip()


def _read(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8")
