"""Slow readers hold what they are meant to hold, and are reported."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from kraftbase.types import NodeId
from kraftlog.chaos.arena import Arena
from kraftlog.chaos.network import Loopback
from kraftlog.chaos.soak.faults import SlowReader, roomy_node
from statemachine.store.store import MetadataStore

ONE, TWO = NodeId(1), NodeId(2)
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MetadataStore]:
    (tmp_path / "node-1").mkdir()
    with closing(MetadataStore.open(tmp_path / "node-1" / "metadata.db", CLUSTER_ID)) as store:
        yield store


def arena_of(tmp_path: Path, node_ids: list[NodeId], small_disk: NodeId | None = None) -> Arena:
    directory = SimpleNamespace(data_path=lambda node_id: tmp_path / f"node-{node_id}")
    cluster: Any = SimpleNamespace(node_ids=node_ids, voter_ids=node_ids, directory=directory)
    disks: Any = () if small_disk is None else (SimpleNamespace(node_id=small_disk),)
    return Arena(cluster, Loopback(), disks, tmp_path / "journal.txt")


def checkpoint(path: Path) -> tuple[int, int, int]:
    """Whether a reader blocked it; pages in the write-ahead log, pages that were moved."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as connection:
        connection.executescript("CREATE TABLE IF NOT EXISTS written (x); INSERT INTO written VALUES (1)")
        found: tuple[int, int, int] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return found


async def test_a_slow_reader_is_in_the_way_of_a_checkpoint_until_it_stops(store: MetadataStore, tmp_path: Path) -> None:
    arena = arena_of(tmp_path, [ONE])
    assert checkpoint(store.path)[0] == 0
    reader = SlowReader(Random(1))
    await reader.start(arena)
    (reading,) = arena.readings
    assert reading.node_id == ONE
    assert reading.began <= arena.elapsed_seconds < reading.ended
    assert checkpoint(store.path)[0] == 1
    await reader.stop(arena)
    assert reading.began <= reading.ended <= arena.elapsed_seconds
    assert checkpoint(store.path) == (0, 0, 0)
    assert arena.counts["slow readers"] == 1


async def test_where_there_is_no_database_yet_nobody_reads(tmp_path: Path) -> None:
    arena = arena_of(tmp_path, [TWO])
    reader = SlowReader(Random(1))
    await reader.start(arena)
    await reader.stop(arena)
    assert arena.readings == []


def test_readers_leave_the_small_disk_alone(tmp_path: Path) -> None:
    random = Random(1)
    chosen = {roomy_node(arena_of(tmp_path, [ONE, TWO], small_disk=TWO), random) for _ in range(50)}
    assert chosen == {ONE}
    assert {roomy_node(arena_of(tmp_path, [ONE, TWO]), random) for _ in range(50)} == {ONE, TWO}
