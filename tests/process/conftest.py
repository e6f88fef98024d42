"""What the tests of real processes use to start a cluster and to ask it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from kraftlog.local.cluster import LocalCluster
from tests.kraftlog.command_line import Finished, Run, run

__all__ = ["run"]

SESSION_TIMEOUT_MS: Final = 1_500
"""Of brokers that report every 100 ms."""


@pytest.fixture
def ask(run: Run, cluster: LocalCluster):
    """Runs a command against the cluster."""

    def ask(*arguments: object) -> Finished:
        return run(*arguments, "--bootstrap-server", addresses(cluster))

    return ask


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
