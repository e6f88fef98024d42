"""One cluster of real processes for all the tests of this package: three voters, two observers and three brokers.

It belongs to no event loop, so tests of every kind share it. A test that takes nodes away gives them back.
One process of tests runs the whole package (`tests.by_file`), and stops the cluster after its last test: an idle
cluster takes 4 % of a processor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftlog.local.cluster import LocalCluster
from kraftlog.local.cluster_directory import open_or_create
from tests.kraftlog.command_line import kraftlog, running_brokers
from tests.process.conftest import addresses


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Running, with a leader and three brokers that live."""
    directory: Path = tmp_path_factory.mktemp("cluster")
    cluster = LocalCluster(open_or_create(directory, voters=3, observers=2))
    try:
        asyncio.run(cluster.start())
        asyncio.run(cluster.wait_until_voters_take_part())
        asyncio.run(cluster.wait_for_leader())
        with running_brokers(addresses(cluster), 1, 2, 3):
            yield cluster
    finally:
        asyncio.run(cluster.stop())


@pytest.fixture(scope="package")
def kafka_servers(cluster: LocalCluster) -> str:
    """`bootstrap.servers` of the cluster's brokers."""
    brokers = kraftlog("brokers", "list", "--bootstrap-server", addresses(cluster), "--output", "json").json()
    return ",".join(broker["Endpoints"][0].partition("://")[2] for broker in brokers)
