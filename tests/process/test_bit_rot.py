"""A row of a node's database rots: the node finds out and rebuilds the database, by itself, and the others serve."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from kraftbase.types import NodeId
from kraftlog.local.cluster import LocalCluster
from kraftlog.local.cluster_directory import open_or_create

pytestmark = pytest.mark.process

TIMEOUT_SECONDS = 60.0


def listeners(path: Path) -> list[tuple[int, str]]:
    """The controllers of a metadata database and where they listen; none if it cannot be read now."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            return connection.execute("SELECT controller_id, listeners FROM controllers ORDER BY 1").fetchall()
    except sqlite3.Error:
        return []


def wait_until(path: Path, expected: list[tuple[int, str]]) -> None:
    """Until the old database is set aside, and the new one has what was expected."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not path.with_name(path.name + ".damaged").exists() or listeners(path) != expected:
        assert time.monotonic() < deadline, listeners(path)
        time.sleep(0.1)


def test_a_node_whose_rows_rot_makes_its_database_anew_without_a_restart(tmp_path: Path) -> None:
    directory = open_or_create(tmp_path / "cluster", voters=3)
    cluster, corrupt = LocalCluster(directory), NodeId(2)
    path = directory.data_path(corrupt) / "metadata.db"
    try:
        asyncio.run(cluster.start())
        asyncio.run(cluster.wait_until_voters_take_part())
        asyncio.run(cluster.wait_for_leader())
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while len(right := listeners(path)) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        asyncio.run(cluster.stop([corrupt]))
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("UPDATE controllers SET listeners = '[]' WHERE controller_id = 1")
        asyncio.run(cluster.start([corrupt]))
        process_id = cluster.pid(corrupt)
        wait_until(path, right)
        assert cluster.pid(corrupt) == process_id
        assert listeners(path.with_name("metadata.db.damaged")) != right
        asyncio.run(cluster.wait_for_leader())
    finally:
        asyncio.run(cluster.stop())
