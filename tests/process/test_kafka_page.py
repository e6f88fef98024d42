"""The commands in docs/operations/kafka.md do what the page says, in its order, on a real Kafka's directories."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kraftlog.command_line import Run, run
from tests.kraftlog.kafka.conftest import kafka_data
from tests.paths import ROOT
from tests.process.test_up import up
from tests.shells import run_block

__all__ = ["kafka_data", "run"]
pytestmark = pytest.mark.process

PAGE = (ROOT / "docs" / "operations" / "kafka.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def shell(block: str, directory: Path) -> str:
    """Run one block as a user does; what it printed on both streams."""
    finished = run_block(block, directory, stderr=subprocess.STDOUT)
    assert finished.returncode == 0, finished.stdout
    return finished.stdout


def test_the_page(kafka_data: Path, tmp_path: Path, run: Run) -> None:
    shutil.copytree(kafka_data / "controller-3", tmp_path / "copy")
    shutil.copytree(kafka_data / "controller-2-killed", tmp_path / "other")
    described, asked, dumped, parquet, compared, taken_over, exported = (shell(block, tmp_path) for block in BLOCKS)
    assert re.search(r"^CommittedAtLeast: +676$", described, re.MULTILINE)
    assert "may be uncommitted" in asked and "orders-0" in asked
    offsets = [json.loads(line)["offset"] for line in dumped.splitlines() if line.startswith("{")]
    assert "may be uncommitted" in dumped
    assert offsets[:20] == list(range(700, 720))
    assert len(offsets) > 400
    assert re.search(r"^Rows: +676$", parquet, re.MULTILINE) and "--with-tail" in parquet
    assert "No differences" in compared
    assert "1 scram_credentials" in taken_over and "group.version=1" in taken_over
    assert taken_over.endswith("Start it: kraftlog up --dir restored\n")
    topics = [json.loads(line)["data"]["name"] for line in exported.splitlines() if line.startswith("{")]
    assert len(topics) == 38
    with up(tmp_path / "restored") as (_, addresses):
        rows = run("sql", "--bootstrap-server", addresses, "SELECT name FROM topics", "--output", "json").json()
    assert sorted(row["name"] for row in rows) == sorted(topics)
