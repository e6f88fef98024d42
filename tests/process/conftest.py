"""One cluster of real processes for all the tests of it: three voters and two observers.

It belongs to no event loop, so tests of every kind share it. A test that takes nodes away gives them back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from kraftlog.local.cluster import LocalCluster
from kraftlog.local.cluster_directory import open_or_create
from tests.kraftlog.command_line import Finished, Run, kraftlog, run, running_brokers

__all__ = ["run"]

SESSION_TIMEOUT_MS: Final = 1_500
"""Of brokers that report every 100 ms."""


@pytest.fixture(scope="session")
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


@pytest.fixture(scope="session")
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


@pytest.fixture
def ask(run: Run, cluster: LocalCluster):
    """Runs a command against the cluster."""

    def ask(*arguments: object) -> Finished:
        return run(*arguments, "--bootstrap-server", addresses(cluster))

    return ask


@pytest.fixture(scope="session")
def kafka_servers(cluster: LocalCluster) -> str:
    """`bootstrap.servers` of the cluster's brokers."""
    brokers = kraftlog("brokers", "list", "--bootstrap-server", addresses(cluster), "--output", "json").json()
    return ",".join(broker["Endpoints"][0].partition("://")[2] for broker in brokers)


@contextmanager
def running(cluster: LocalCluster) -> Iterator[LocalCluster]:
    """With a leader."""
    try:
        asyncio.run(cluster.start())
        asyncio.run(cluster.wait_until_voters_take_part())
        asyncio.run(cluster.wait_for_leader())
        yield cluster
    finally:
        asyncio.run(cluster.stop())


def addresses(cluster: LocalCluster) -> str:
    """What `--bootstrap-server` is given."""
    return ",".join(map(str, cluster.bootstrap_servers))
