"""Nodes and their snapshots run our code, whatever the user has in the working directory."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from kraftlog.local.cluster import LocalCluster
from kraftlog.local.cluster_directory import open_or_create
from tests.forked_starts import by_exec
from tests.kraftlog.command_line import Run
from tests.process.conftest import addresses

pytestmark = pytest.mark.process

NAMES = ("kraftlog", "raft", "snapshot", "statemachine", "struct")


def test_modules_in_the_working_directory_are_left_alone(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for name in NAMES:
        (work / f"{name}.py").write_text("raise SystemExit(f'{__file__} was run')\n")
    monkeypatch.chdir(work)
    monkeypatch.setattr(subprocess, "_fork_exec", by_exec)
    cluster = LocalCluster(open_or_create(tmp_path / "cluster", voters=1))
    try:
        asyncio.run(cluster.start())
        asyncio.run(cluster.wait_for_leader())
        said = run("snapshot", "create", "--bootstrap-server", addresses(cluster), "--output", "json")
        assert said.json()["IsNew"]
    finally:
        asyncio.run(cluster.stop())
