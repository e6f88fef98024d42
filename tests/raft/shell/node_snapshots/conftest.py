"""A node that has only snapshots, on every file system."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kraftbase.files.files import FileSystem
from tests.raft.shell.node_snapshots.desk import Desk, Fetch


@pytest.fixture
def desk(files: FileSystem) -> Iterator[Desk]:
    desk = Desk(files)
    yield desk
    assert not desk.fatal


@pytest.fixture
def fetch(desk: Desk) -> Iterator[Fetch]:
    snapshots = desk.open()
    yield Fetch(desk, snapshots)
    snapshots.close()
    desk.runtime.run()
    assert desk.descriptors() == set()
