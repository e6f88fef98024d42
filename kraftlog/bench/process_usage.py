"""What a process takes of the machine, from /proc: processor time, memory, files, and bytes read from disks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

KIBIBYTE: Final = 1024
BYTES_PER_MEGABYTE: Final = 1_000_000

_STOPPED: Final = "T"
_USER_TICKS: Final = 11
"""Where the time in user mode is in /proc/PID/stat, counted behind the name; then comes the kernel's."""


def processor_seconds(pid: int) -> float:
    """Of user and kernel, since the process began. Raises OSError if it is gone."""
    return processor_ticks(_read(pid, "stat")) / os.sysconf("SC_CLK_TCK")


def is_stopped(pid: int) -> bool:
    """Whether SIGSTOP has stopped it. Raises OSError if it is gone."""
    return state(_read(pid, "stat")) == _STOPPED


def resident_megabytes(pid: int) -> float:
    """How much memory it holds. Raises OSError if it is gone."""
    return resident_bytes(_read(pid, "status")) / BYTES_PER_MEGABYTE


def open_files(pid: int) -> int:
    """How many file descriptors it has open. Raises OSError if it is gone, or belongs to another user."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def disk_bytes_read(pid: int) -> int:
    """Bytes that were read from disks, not from the page cache, on its behalf. Raises OSError."""
    return bytes_read(_read(pid, "io"))


def state(stat: str) -> str:
    """The letter in a /proc/PID/stat for what the process does."""
    return stat.rpartition(")")[2].split()[0]


def processor_ticks(stat: str) -> int:
    """User and kernel time in a /proc/PID/stat, in ticks of the clock."""
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
