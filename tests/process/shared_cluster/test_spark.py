"""The exported log, each node's SQLite and Spark agree."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from kraftlog.local.cluster import LocalCluster
from kraftlog.local.consistency_check import node_counts
from tests.kraftlog.command_line import kraftlog

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(400)]


def test_what_spark_counts_is_what_every_nodes_sqlite_holds(ask, cluster: LocalCluster, tmp_path: Path) -> None:
    for number in range(3):
        assert ask("topics", "create", f"counted-{number}", "--partitions", 3, "--replication-factor", 2).code == 0
    assert ask("topics", "delete", "counted-1").code == 0
    assert ask("topics", "create", "counted-1", "--replication-factor", 1, "--config", "retention.ms=1").code == 0
    asyncio.run(cluster.wait_until_level())
    exported = ask("export", "--to", tmp_path / "export", "--output", "json").json()
    asyncio.run(cluster.wait_until_applied(exported["EndOffset"]))
    reported = kraftlog("report", "--from", tmp_path / "export", "--output", "json", timeout=350)
    assert reported.code == 0, reported.errors
    counts = json.loads(reported.output)["counts"]
    assert counts["end_offset"] == exported["EndOffset"]
    for node_id in cluster.node_ids:
        assert asdict(node_counts(cluster.directory.data_path(node_id))) == counts, f"node {node_id}"
