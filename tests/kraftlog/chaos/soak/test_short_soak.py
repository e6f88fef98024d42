"""A soak of some seconds on real processes: every kind of figure is there, and every bound holds for so short."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from kraftlog.chaos.command import main
from kraftlog.chaos.lanes import Lane
from kraftlog.chaos.nemesis import KillLeader
from kraftlog.chaos.schedule import Kind
from kraftlog.chaos.soak.faults import SlowReader, TakeSnapshot
from kraftlog.chaos.soak.report import figures, plot, print_result, progress_line
from kraftlog.chaos.soak.run import Plan, Soak

pytestmark = pytest.mark.process

LANES = (
    Lane("processes", (Kind(KillLeader, 1, (0.05, 0.1)),), (1.0, 1.5)),
    Lane("others", (Kind(SlowReader, 1, (1.0, 2.0)), Kind(TakeSnapshot, 1, (0.1, 0.2))), (0.1, 0.2)),
)


@pytest.mark.slow  # CI runs `make soak-short`
async def test_what_the_nodes_take_is_measured_and_bounded(tmp_path: Path) -> None:
    soak = Soak(Plan(seconds=6, seed=1, directory=tmp_path, operations_per_second=200, lanes=LANES))
    assert progress_line(soak) == "starting"
    await soak.run()
    assert soak.violations == []
    found = figures(soak)
    assert {bound["name"] for bound in found["bounds"]} >= {
        "metadata.db-wal bytes",
        "log bytes",
        "metadata.db bytes",
        "snapshots",
        "resident bytes",
        "descriptors",
        "threads",
        "seconds to start",
    }
    assert [phase["name"] for phase in found["phases"]] == ["without faults", "with faults"]
    assert all(phase["acknowledged"] > 0 for phase in found["phases"])
    assert [phase["elections"] > 0 for phase in found["phases"]] == [False, True]
    assert found["faults"]["kills"] >= 1
    assert found["faults"]["slow readers"] >= 1
    assert len(found["bytes_over_time"]) >= 4
    assert max(point["log"] for point in found["bytes_over_time"]) > 0
    json.dumps(found)
    ElementTree.fromstring(plot(soak))
    console = Console(width=120, record=True)
    print_result(soak, console)
    assert "metadata.db-wal" in console.export_text()
    assert "operations;" in progress_line(soak)


@pytest.mark.slow
async def test_an_election_without_a_fault_is_a_violation(tmp_path: Path) -> None:
    soak = Soak(Plan(seconds=8, seed=1, directory=tmp_path, operations_per_second=100, lanes=()))
    running = asyncio.create_task(soak.run())
    while not soak.phases or soak.load is None or not soak.load.acknowledged_at:
        await asyncio.sleep(0.05)
    arena = soak.arena
    assert arena is not None
    leader, epoch = await arena.cluster.wait_for_leader(), await arena.cluster.newest_epoch()
    arena.pause(leader)
    while await arena.cluster.newest_epoch() <= epoch:
        await asyncio.sleep(0.05)
    arena.resume(leader)
    assert not await running
    assert [phase.name for phase in soak.phases] == ["without faults"]
    (found,) = soak.violations
    assert found.startswith("without faults, in 8 s, the epoch rose by ")


@pytest.mark.parametrize("words", [[], ["soak"], ["soak", "--brokers"], ["full-disks"]])
def test_a_directory_that_holds_something_is_refused(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").write_text("precious")
    assert main([*words, "--dir", str(tmp_path)]) == 2
    assert "is not empty; name a new directory" in capsys.readouterr().out
    assert (tmp_path / "mine").read_text() == "precious"


@pytest.mark.parametrize(
    "words",
    [["--minutes", "0"], ["soak", "--minutes", "0"], ["soak", "--rate", "-1"], ["soak", "--brokers", "--rate", "0"]],
)
def test_nonsense_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(words)
    assert refused.value.code == 2
    assert "must be above 0" in capsys.readouterr().err
