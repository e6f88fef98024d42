"""Two observers of one cluster of processes, one of which may only fetch with version 17 (KIP-1166)."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import pytest

from kraftbase.types import NodeId
from kraftlog.admin.client.client import AdminClient
from kraftlog.bench.probe import Visibility, probe_command
from kraftlog.bench.workload import create_topic_operation, execute_once, prepared
from kraftlog.local.cluster import LocalCluster
from kraftlog.local.cluster_directory import open_or_create

pytestmark = pytest.mark.process

FETCHES_18, FETCHES_17 = NodeId(4), NodeId(5)
OPERATIONS = 3
MAX_WAIT_MS = 4_000
"""Far above what a busy machine adds."""
PATIENT = {"controller.quorum.fetch.timeout.ms": 5_000, "controller.quorum.request.timeout.ms": 5_000}
"""Above that wait."""


async def test_an_observer_with_fetch_18_sees_commits_that_one_with_17_waits_for(tmp_path: Path) -> None:
    """Both have the records at once. One learns at once that they are committed, the other when its wait has ended."""
    directory = open_or_create(tmp_path / "cluster", voters=3, observers=2, settings=PATIENT)
    with directory.config_path(FETCHES_17).open("a") as config:
        config.write(f"fetch.version=17\ncontroller.quorum.fetch.max.wait.ms={MAX_WAIT_MS}\n")
    with (
        Visibility.listening(frozenset({FETCHES_18})) as at_18,
        Visibility.listening(frozenset({FETCHES_17})) as at_17,
    ):

        def command(config: Path) -> list[str]:
            return probe_command(at_17 if config == directory.config_path(FETCHES_17) else at_18)(config)

        cluster = LocalCluster(directory, command)
        async with cluster.running():
            await cluster.wait_for_leader()
            async with AdminClient(cluster.bootstrap_servers) as client, prepared(client):
                found = [await lags_ms(client, at_18, at_17, f"topic-{number}") for number in range(OPERATIONS)]
    lag_18, lag_17 = (median(lags) for lags in zip(*found, strict=True))
    assert lag_18 < MAX_WAIT_MS / 2 < lag_17


async def lags_ms(client: AdminClient, at_18: Visibility, at_17: Visibility, topic: str) -> tuple[float, float]:
    """How long after the acknowledgement of one operation either observer showed it: nothing else happens meanwhile."""
    result = await execute_once(client, create_topic_operation(topic))
    acknowledged_ns = time.monotonic_ns()
    seen_at_18 = await at_18.wait_for(result.end_offset)
    seen_at_17 = await at_17.wait_for(result.end_offset)
    return (seen_at_18 - acknowledged_ns) / 1e6, (seen_at_17 - acknowledged_ns) / 1e6
