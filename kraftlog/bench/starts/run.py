"""How long a broker takes to open its logs, by this code and by another checkout's.

Each version opens copies of log directories that it has made itself: 1,000 partitions of three segments, and one
partition of 2,000 segments, each after a clean shutdown and after a kill. The versions run in pairs, and the result is
the median of the pairs' ratios.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.table import Table

import kraftlog
from kraftbase.errors import ConfigurationError
from kraftlog.bench.figures import write_json
from kraftlog.bench.starts import worker

OWN_CODE: Final = Path(kraftlog.__file__).resolve().parents[1]


class Layout(NamedTuple):
    """The log directory that is opened."""

    partitions: int
    segments: int
    end: str
    """How the broker ended: "clean" or "killed"."""
    limit: float
    """The largest allowed ratio to the other version's time."""

    def __str__(self) -> str:
        return f"{self.partitions:,} x {self.segments:,} segments, {self.end}"


LAYOUTS: Final = (
    Layout(1_000, 3, "clean", 1.25),
    Layout(1_000, 3, "killed", 1.25),
    Layout(1, 2_000, "clean", 1.5),
    Layout(1, 2_000, "killed", 1.5),
)

Pairs = list[tuple[float, float]]


def run(against: Path, pairs: int, directory: Path | None, json_path: Path | None, console: Console) -> bool:
    """Measure, print and write the result; return whether each limit holds.

    Raises ConfigurationError if there is no kraftlog in `against`, or a version fails.
    """
    if not (against / "kraftlog" / "__main__.py").exists():
        raise ConfigurationError(f"{against} has no kraftlog/__main__.py; give a checkout of the project")
    found: dict[Layout, Pairs] = {layout: [] for layout in LAYOUTS}
    with tempfile.TemporaryDirectory(prefix="kraftlog-starts-", dir=directory) as name, console.status("") as status:
        for layout in LAYOUTS:
            made = {}
            for label, code in (("other", against), ("own", OWN_CODE)):
                status.update(f"{layout}: making the logs of {code}")
                made[code] = Path(name) / label
                _work(code, "make", made[code], layout.partitions, layout.segments, layout.end)
            for pair in range(pairs):
                status.update(f"{layout}: pair {pair + 1} of {pairs}")
                order = (against, OWN_CODE) if pair % 2 == 0 else (OWN_CODE, against)
                seconds = {code: _open(code, made[code], Path(name) / "run", layout) for code in order}
                found[layout].append((seconds[against], seconds[OWN_CODE]))
            for path in made.values():
                shutil.rmtree(path)
    _print(found, console)
    write_json(json_path, {str(layout): [list(pair) for pair in of] for layout, of in found.items()})
    return all(_ratio(of) <= layout.limit for layout, of in found.items())


def _work(code: Path, *arguments: object) -> str:
    done = subprocess.run(  # noqa: S603 (this file's own interpreter and worker)
        [sys.executable, "-P", str(Path(worker.__file__)), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(code)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise ConfigurationError(f"the code in {code} failed: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout.splitlines()[-1] if done.stdout else ""


def _open(code: Path, made: Path, path: Path, layout: Layout) -> float:
    shutil.copytree(made, path)
    os.sync()  # a start that flushes must not flush the copy
    try:
        seconds, count = _work(code, "open", path).split()
    finally:
        shutil.rmtree(path)
    if int(count) != layout.partitions:
        raise ConfigurationError(f"the code in {code} has opened {count} of {layout.partitions} logs")
    return float(seconds)


def _ratio(pairs: Sequence[tuple[float, float]]) -> float:
    return float(median(own / other for other, own in pairs))


def _print(found: Mapping[Layout, Pairs], console: Console) -> None:
    table = Table("", "other, s", "this code, s", "ratio", "limit", title="Opening logs, medians", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for layout, pairs in found.items():
        ratio = _ratio(pairs)
        cells: list[Any] = [f"{median(other for other, _ in pairs):.3f}", f"{median(own for _, own in pairs):.3f}"]
        missed = "" if ratio <= layout.limit else ", missed"
        table.add_row(str(layout), *cells, f"{ratio:.2f}", f"{layout.limit}{missed}")
    console.print(table)
