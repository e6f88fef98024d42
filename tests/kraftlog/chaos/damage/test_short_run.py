"""A few damages on real processes: what must be the same is, and what is lost is seen to be lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from kraftlog.chaos.command import main
from kraftlog.chaos.damage.damages import FILE_KINDS, Setting
from kraftlog.chaos.damage.report import figures, print_result, progress_line, repeat_command, write_line
from kraftlog.chaos.damage.run import DamageRun, Plan
from kraftlog.chaos.session import Session
from tests.effort import all_cases

pytestmark = pytest.mark.process

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


async def test_what_a_start_makes_again_is_the_same(tmp_path: Path) -> None:
    only, settings = ("deletion", ".index", ".timeindex"), [Setting(is_killed=True, is_last=True)]
    count = 3 if all_cases() else 2
    plan = Plan(seed=1, numbers=range(1, count + 1), only=only, directory=tmp_path, settings=settings)
    run = DamageRun(plan, lambda result: write_line(tmp_path / "results", plan, result))
    assert await run.run(), figures(run)
    found = json.loads(json.dumps(figures(run)))
    assert (found["damages"], found["failed"], found["verdicts"]["same"]) == (count, 0, count)
    assert all(result["again"].startswith("kraftlog chaos damage --seed 1 --damage ") for result in found["results"])
    assert [json.loads(line) for line in (tmp_path / "results").read_text().splitlines()] == found["results"]
    kinds = {kind for stopped in run._stopped.values() for kind in stopped.image.kinds.values()}
    assert kinds <= {*FILE_KINDS, CLEAN_SHUTDOWN}
    assert set(FILE_KINDS) - kinds <= {CLEAN_SHUTDOWN}  # this one was killed
    console = Console(width=120, record=True)
    print_result(run, console)
    assert f"{count} damages of one file, seed 1" in console.export_text()
    assert f"{count} of {count} damages, 0 failed" in progress_line(run)
    assert repeat_command(run.plan, run.results[-1]).endswith(
        f"--damage {count} --only 'deletion' --only '.index' --only '.timeindex'"
    )


def test_no_damages_are_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["damage", "--damages", "0"])
    assert "must be above 0" in capsys.readouterr().err


def test_a_kind_that_is_none_is_a_usage_error_before_anything_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started = list[object]()
    monkeypatch.setattr(Session, "__init__", lambda *arguments, **more: started.append(arguments))
    with pytest.raises(SystemExit) as ended:
        main(["damage", "--only", "bit", "--only", "foo"])
    assert ended.value.code == 2
    assert "'foo' is not a kind of damage or of file; choose from bit, cut," in capsys.readouterr().err
    assert not started
