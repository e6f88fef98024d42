"""Three brokers of kraftlog and of a stock Kafka in alternating pairs, with three replicas of each partition.

Both systems are four processes: a controller, which for kraftlog is one voter, and three brokers, so that killing a
broker kills no controller. The processor time is that of the three brokers. Figures that need other broker configs than
the defaults are measured on separate brokers, which start after the others have ended.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from kraftbase.errors import ConfigurationError
from kraftlog.bench.broker.comparison import Pair
from kraftlog.bench.broker.pairs import find_systems, measure_figures, told
from kraftlog.bench.broker.run import QUICK_DELETIONS
from kraftlog.bench.machine import machine
from kraftlog.bench.replication.disruptions import disruptive_experiments, lagging_experiments
from kraftlog.bench.replication.experiments import BROKERS, Sizes, steady_experiments
from kraftlog.bench.replication.measures import LAG_TIME_MAX_SECONDS, MEASURES

SPACE_FACTOR: Final = 2.5 * BROKERS
"""The disk space of the largest figure on both systems, including files that are deleted a moment later."""
SHORT_LAG: Final = {"replica.lag.time.max.ms": str(round(LAG_TIME_MAX_SECONDS * 1_000))}


async def run(
    figures: Sequence[str], sizes: Sizes, peers_directory: Path, directory: Path | None, console: Console
) -> dict[str, Any]:
    """Measure, show progress and tables on the console, and return the result for programs.

    Raises ApiError if a broker does not start or a client fails, ConfigurationError if the disk has too little room.
    """
    systems, labels = find_systems(peers_directory, console)
    measured: dict[str, list[Pair]] = {}
    by_default = {**steady_experiments(sizes), **disruptive_experiments(sizes)}
    with tempfile.TemporaryDirectory(prefix="kraftlog-replication-", dir=directory) as name, console.status("") as now:
        _check_room(Path(name), figures, sizes)
        for known, extra in ((by_default, {}), (lagging_experiments(sizes), SHORT_LAG)):
            chosen = [known[figure] for figure in figures if figure in known]
            if chosen:
                path = Path(name) / f"of-{chosen[0].name}"
                path.mkdir()
                configs = _configs(extra)
                measured |= await measure_figures(systems, chosen, path, now.update, brokers=BROKERS, configs=configs)
    return {
        "systems": labels,
        "sizes": {field: getattr(sizes, field) for field in Sizes.__dataclass_fields__},
        "figures": told(measured, MEASURES, labels, console),
        "machine": await machine(directory),
    }


def _configs(extra: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the configs of each system's brokers."""
    return {system: {**configs, **extra} for system, configs in QUICK_DELETIONS.items()}


def _check_room(path: Path, figures: Sequence[str], sizes: Sizes) -> None:
    largest = sizes.behind_bytes if "catch-up" in figures else sizes.total_bytes
    wanted, free = round(SPACE_FACTOR * largest), shutil.disk_usage(path).free
    if free < wanted:
        raise ConfigurationError(
            f"{path} has {free / 1e9:.1f} GB free, and {wanted / 1e9:.1f} GB are needed; choose another directory with"
            " --dir, or less data with --bytes and --behind-bytes"
        )
