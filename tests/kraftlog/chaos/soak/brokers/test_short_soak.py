"""A soak of brokers for some seconds on real processes: every kind of figure is there, and every bound holds."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from kraftbase.types import NodeId
from kraftlog.chaos.brokers.cluster import with_brokers
from kraftlog.chaos.brokers.faults import KillLeadingBroker, PauseBroker
from kraftlog.chaos.lanes import Lane
from kraftlog.chaos.schedule import Kind
from kraftlog.chaos.soak.brokers.report import figures, plot, print_result, progress_line
from kraftlog.chaos.soak.brokers.run import BrokersSoak, Plan

pytestmark = pytest.mark.process

BROKER = NodeId(101)
LANES = (
    Lane("processes", (Kind(KillLeadingBroker, 1, (0.05, 0.1)),), (1.0, 1.5)),
    Lane("others", (Kind(PauseBroker, 1, (0.5, 1.0)),), (0.1, 0.2)),
)


@pytest.mark.slow
async def test_what_brokers_and_nodes_take_is_measured_and_bounded(tmp_path: Path) -> None:
    soak = BrokersSoak(Plan(seconds=30, seed=1, directory=tmp_path, records_per_second=400, lanes=LANES))
    assert progress_line(soak) == "starting"
    await soak.run()
    assert soak.violations == []
    found = figures(soak)
    assert {bound["name"] for bound in found["bounds"]} >= {
        "node descriptors",
        "node threads, at rest",
        "broker log bytes",
        "broker log files",
        "broker turn of the loop, ms",
        "broker fenced, without faults",
        "broker log lines a minute, without faults",
        "broker resident bytes",
        "broker descriptors, at rest",
    }
    assert {bound["name"]: bound["most"] for bound in found["bounds"]}["broker turn of the loop, ms"] > 0
    assert [phase["name"] for phase in found["phases"]] == ["without faults", "with faults"]
    assert all(0 < phase["acknowledged"] <= phase["read"] for phase in found["phases"])
    assert found["records"]["acknowledged and lost"] == 0
    assert found["faults"]["kills"] >= 1
    assert found["times_read_back"] >= 1
    assert found["beside"]["created"] >= 1
    assert found["beside"]["connections"] >= 1
    assert set(found["over_time"]) == {"1", "2", "3", "101", "102", "103"}
    json.dumps(found)
    ElementTree.fromstring(plot(soak))
    console = Console(width=120, record=True)
    print_result(soak, console)
    assert "broker resident bytes" in console.export_text()
    assert "records" in progress_line(soak)


@pytest.mark.slow
async def test_a_broker_that_is_fenced_without_a_fault_is_a_violation(tmp_path: Path) -> None:
    soak = BrokersSoak(Plan(seconds=30, seed=1, directory=tmp_path, records_per_second=50, lanes=()))
    running = asyncio.create_task(soak.run())
    while not soak.ledger.counts["acknowledged"]:
        await asyncio.sleep(0.05)
    arena = soak.arena
    assert arena is not None
    cluster = with_brokers(arena)
    arena.pause(BROKER)
    while not (await cluster.brokers.states())[BROKER].is_fenced:
        await asyncio.sleep(0.05)
    arena.resume(BROKER)
    assert not await running
    story, *others = soak.violations
    assert re.fullmatch(r"broker fenced, without faults: 101 had 1 at \d+ s; the bound is 0", story)
    assert others == []
