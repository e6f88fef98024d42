"""One voter for the brokers of all the tests of this package, which one process of tests runs (`tests.by_file`)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from kraftlog.local.cluster import LocalCluster
from kraftlog.local.cluster_directory import open_or_create
from tests.process.conftest import SESSION_TIMEOUT_MS


@pytest.fixture(scope="package")
def voter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster of one node, for brokers that are killed: it considers one dead soon."""
    directory = tmp_path_factory.mktemp("voter")
    cluster = LocalCluster(
        open_or_create(directory, voters=1, observers=0, settings={"broker.session.timeout.ms": SESSION_TIMEOUT_MS})
    )
    try:
        asyncio.run(cluster.start())
        asyncio.run(cluster.wait_until_voters_take_part())
        asyncio.run(cluster.wait_for_leader())
        yield cluster
    finally:
        asyncio.run(cluster.stop())
