"""Brokers under faults for some seconds, on real processes; everything is checked as in a long run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from kraftlog.chaos.brokers import large_requests
from kraftlog.chaos.brokers.faults import (
    CutFollowers,
    CutOffNode,
    ElectPreferred,
    KillLeadingBroker,
    PauseLeadingBroker,
)
from kraftlog.chaos.brokers.report import figures, print_result, progress_line
from kraftlog.chaos.brokers.run import BrokersRun, Plan
from kraftlog.chaos.command import main
from kraftlog.chaos.schedule import Kind
from tests.effort import all_cases

pytestmark = pytest.mark.process

PROCESS_KINDS = (Kind(KillLeadingBroker, 1, (0.05, 0.5)),)
OTHER_KINDS = (
    Kind(PauseLeadingBroker, 1, (0.5, 1.0)),
    Kind(CutFollowers, 1, (0.5, 1.0)),
    Kind(CutOffNode, 1, (0.5, 1.0)),
    Kind(ElectPreferred, 1, (0.05, 0.1)),
)


@pytest.mark.parametrize("network", ["auto", pytest.param("loopback", marks=pytest.mark.slow)])
async def test_nothing_acknowledged_is_lost(network: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not all_cases():  # the largest ones are most of the work of such a run
        monkeypatch.setattr(large_requests, "ELEMENTS", 500)
        monkeypatch.setattr(large_requests, "BATCHES", 50)
        monkeypatch.setattr(large_requests, "REPEATED_RECORDS", 20_000)
    kills = 3 if all_cases() else 2
    plan = Plan(
        seconds=5 if all_cases() else 3,
        kills=kills,
        seed=1,
        directory=tmp_path,
        network=network,
        process_kinds=PROCESS_KINDS,
        other_kinds=OTHER_KINDS,
        peace_seconds=3,
    )
    run = BrokersRun(plan)
    assert progress_line(run) == "starting"
    await run.run()
    assert run.violations == []
    found = json.loads(json.dumps(figures(run)))
    assert found["faults"]["brokers killed"] >= kills
    assert found["faults"]["pauses"] >= 1
    assert found["faults"]["elections"] >= 1
    assert found["records"]["acknowledged"] > 0
    assert found["records"]["read"] >= found["records"]["acknowledged"]
    assert (found["records"]["acknowledged and lost"], found["records"]["high watermarks that went back"]) == (0, 0)
    assert found["times_read_back"] >= 1
    assert found["metadata_changes"] >= 1
    assert found["large_requests"]["answered"] > 0
    assert sum(found["large_requests"].values()) == 2 * sum(
        found["large_requests"].get(end, 0) for end in ("answered", "left", "not answered")
    )
    assert (CutFollowers.name in found["faults_left_out"]) == (found["network"] == "loopback")
    console = Console(width=120, record=True)
    print_result(run, console)
    assert "acknowledged and lost" in console.export_text()
    assert "kills of brokers" in progress_line(run)


def test_a_run_without_an_end_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["brokers", "--minutes", "0", "--kills", "0"])
    assert "nor both 0" in capsys.readouterr().err
