"""A few damages on real processes: what must be the same is, and what is lost is seen to be lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from kraftlog.chaos.command import main
from kraftlog.chaos.damage.damages import Setting
from kraftlog.chaos.damage.report import figures, print_result, progress_line, repeat_command, write_line
from kraftlog.chaos.damage.run import DamageRun, Plan

pytestmark = pytest.mark.process


async def test_what_a_start_makes_again_is_the_same(tmp_path: Path) -> None:
    only, settings = ("deletion", ".index", ".timeindex"), [Setting(is_killed=True, is_last=True)]
    plan = Plan(seed=1, numbers=range(1, 4), only=only, directory=tmp_path, settings=settings)
    run = DamageRun(plan, lambda result: write_line(tmp_path / "results", plan, result))
    assert await run.run(), figures(run)
    found = json.loads(json.dumps(figures(run)))
    assert (found["damages"], found["failed"], found["verdicts"]["same"]) == (3, 0, 3)
    assert all(result["again"].startswith("kraftlog chaos damage --seed 1 --damage ") for result in found["results"])
    assert [json.loads(line) for line in (tmp_path / "results").read_text().splitlines()] == found["results"]
    console = Console(width=120, record=True)
    print_result(run, console)
    assert "3 damages of one file, seed 1" in console.export_text()
    assert "3 of 3 damages, 0 failed" in progress_line(run)
    assert repeat_command(run.plan, run.results[2]).endswith(
        "--damage 3 --only 'deletion' --only '.index' --only '.timeindex'"
    )


def test_no_damages_are_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["damage", "--damages", "0"])
    assert "must be above 0" in capsys.readouterr().err
