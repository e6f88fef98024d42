"""A world that leaves no snapshot open and has not failed when its test has ended."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kraftbase.runtime import awaited
from tests.raft.snapshot_delivery.world import World, settled


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    world.runtime.may_go_on.set()
    await awaited(world.delivery.close)
    world.snapshots.close()
    await settled()
    assert world.files.open_snapshots() == []
    assert world.fatal == []
    world.log.close()
