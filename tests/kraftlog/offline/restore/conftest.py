"""A snapshot of an old cluster, and a place for the directories that are made of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.kraftlog.node_directories import make_node_with_snapshot, only_snapshot
from tests.kraftlog.offline.restore.builders import write_config


@pytest.fixture(scope="package")
def old_node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a node of the old cluster, which was stopped and has a snapshot."""
    return make_node_with_snapshot(tmp_path_factory.mktemp("old") / "node")


@pytest.fixture
def snapshot(old_node: Path, tmp_path: Path) -> Path:
    """A copy of that snapshot."""
    (tmp_path / "backup").mkdir()
    return Path(shutil.copy(only_snapshot(old_node), tmp_path / "backup"))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Where everything is made, and nothing is that is refused."""
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def config(work: Path) -> Path:
    return write_config(work / "node-1.toml")
