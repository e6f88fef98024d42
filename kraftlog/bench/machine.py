"""Describes the machine of a measurement: a figure without its machine means nothing."""

from __future__ import annotations

import asyncio
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

FSYNC_ROUNDS: Final = 50
FSYNC_BYTES: Final = 4096


async def machine(directory: Path | None) -> dict[str, Any]:
    """Return processor, kernel, Python, and how long the disk of `directory` takes to make 4 KiB durable.

    `directory` defaults to the directory of temporary files.
    """
    return await asyncio.to_thread(_machine, directory or Path(tempfile.gettempdir()))


def _machine(directory: Path) -> dict[str, Any]:
    return {
        "cpu_count": os.cpu_count(),
        "cpu_model": _cpu_model(),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "fdatasync_ms_p50": round(fdatasync_ms(directory), 3),
    }


def fdatasync_ms(directory: Path) -> float:
    """The median time of writing 4 KiB to a file in `directory` and making them durable."""
    times = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(FSYNC_ROUNDS):
            started_ns = time.monotonic_ns()
            os.write(file.fileno(), bytes(FSYNC_BYTES))
            os.fdatasync(file.fileno())
            times.append((time.monotonic_ns() - started_ns) / 1e6)
    return statistics.median(times)


def _cpu_model() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
