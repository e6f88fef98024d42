"""One cluster for each module."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.kraftlog.broker.administration.world import AdministrationWorld, administration_world


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AdministrationWorld]:
    """A quorum and a broker."""
    async with administration_world(tmp_path_factory.mktemp("administration")) as world:
        yield world
