"""The figures of the benchmarks: percentiles by nearest rank, and the table with bars."""

from __future__ import annotations

import io
import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from kraftlog.bench.figures import percentile, summary, times_table, write_json
from kraftlog.bench.machine import machine

TIMES = st.lists(st.floats(min_value=0, max_value=1e6), min_size=1, max_size=200)


def test_a_summary_of_one_time_is_that_time() -> None:
    assert summary([2.5]) == {"p50": 2.5, "p90": 2.5, "p99": 2.5, "max": 2.5, "mean": 2.5}


def test_percentiles_are_by_nearest_rank() -> None:
    ordered = [float(number) for number in range(1, 101)]
    assert [percentile(ordered, percent) for percent in (1, 50, 90, 99, 100)] == [1, 50, 90, 99, 100]
    assert percentile([1.0, 2.0, 3.0], 50) == 2.0


@given(TIMES)
def test_at_least_the_percentage_does_not_exceed_the_percentile_and_no_smaller_value_does(times: list[float]) -> None:
    ordered = sorted(times)
    for percent in (50, 90, 99):
        found = percentile(ordered, percent)
        assert sum(time <= found for time in ordered) * 100 >= percent * len(ordered)
        assert sum(time < found for time in ordered) * 100 < percent * len(ordered)


def test_bars_are_as_long_as_the_means() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(times_table("title", [("short", summary([1.0])), ("long", summary([4.0]))]))
    short, long = (line.count("█") for line in console.export_text().splitlines()[-2:])
    assert long == 4 * short > 0


async def test_a_result_says_on_which_machine_it_was_measured(tmp_path: Path) -> None:
    described = await machine(tmp_path)
    assert described["cpu_count"] >= 1
    assert described["fdatasync_ms_p50"] > 0
    write_json(tmp_path / "result.json", {"machine": described})
    assert json.loads((tmp_path / "result.json").read_text())["machine"] == described
