"""Kills, pauses and cuts on real processes for some seconds; everything is checked as in a long run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraftlog.chaos.namespaces import NamespacesUnavailable
from kraftlog.chaos.nemesis import KillLeader, KillOne, PauseLeader
from kraftlog.chaos.partitions import IsolateLeader, OneWayCut
from kraftlog.chaos.report import write_json
from kraftlog.chaos.run import Plan, Run
from kraftlog.chaos.schedule import Kind
from tests.effort import all_cases

pytestmark = pytest.mark.process

PROCESS_KINDS = (Kind(KillOne, 1, (0.05, 0.5)), Kind(KillLeader, 1, (0.05, 0.5)))
OTHER_KINDS = (
    Kind(PauseLeader, 1, (0.5, 1.0)),
    Kind(IsolateLeader, 1, (1.0, 2.0)),
    Kind(OneWayCut, 1, (1.0, 2.0)),
)


@pytest.mark.parametrize("network", ["namespaces", pytest.param("proxy", marks=pytest.mark.slow)])
async def test_nothing_acknowledged_is_lost(network: str, tmp_path: Path) -> None:
    """Each kind of fault comes at least once, however slow the machine is."""
    plan = Plan(
        seconds=5 if all_cases() else 3,
        seed=1,
        directory=tmp_path,
        voters=3,
        network=network,
        process_kinds=PROCESS_KINDS,
        other_kinds=OTHER_KINDS,
    )
    run = Run(plan)
    try:
        await run.run()
    except NamespacesUnavailable as error:
        pytest.skip(f"no network namespaces here: {error}")
    assert run.violations == []
    write_json(tmp_path / "figures.json", run)
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["faults"]["kills"] >= 2
    assert figures["faults"]["pauses"] >= 1
    assert figures["faults"]["partitions"] >= 2
    assert figures["operations"]["acknowledged"] > 0
    assert figures["lost"] == 0
    assert (tmp_path / "journal.txt").read_text().count("kill ") >= figures["faults"]["kills"]
