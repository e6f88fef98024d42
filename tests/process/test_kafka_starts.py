"""A stock Kafka 4.3 starts from what `kraftlog kafka export` writes, with all topics and configs."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError
from kraftbase.uuids import random_cluster_id
from kraftlog.bench.peers.installed import find_peers
from kraftlog.bench.peers.kafka_requests import Connection
from kraftlog.bench.peers.processes import servers
from kraftlog.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from kraftlog.kafka.messages.metadata import MetadataRequest, MetadataResponse
from kraftlog.local.child import ChildProcess
from kraftlog.local.cluster_directory import free_endpoints
from tests.kraftlog.command_line import Run, run
from tests.kraftlog.kafka.conftest import kafka_data
from tests.paths import ROOT

__all__ = ["kafka_data", "run"]

PEERS = find_peers(ROOT / "build" / "peers")
if PEERS.kafka is None:
    pytest.skip(f"no Kafka: {PEERS.missing['Kafka']}", allow_module_level=True)

pytestmark = [pytest.mark.process, pytest.mark.timeout(400)]

JAVA = [str(PEERS.kafka.java), "-Xmx512M", "-cp", str(PEERS.kafka.jars / "*")]
SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{controller}
controller.listener.names=CONTROLLER
listeners=CONTROLLER://{controller},PLAINTEXT://{broker}
advertised.listeners=PLAINTEXT://{broker}
log.dirs={directory}
"""
TOPIC, BROKER = 2, 4
SET_FOR_TOPIC, SET_FOR_ALL_BROKERS = 1, 3
"""Sources of a config: not its default."""


def rows_of(run: Run, checkpoint: Path, statement: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = run("sql", "--snapshot", checkpoint, statement, "--output", "json").json()
    return rows


async def metadata_from(broker: Endpoint) -> MetadataResponse | None:
    """All topics; None while the broker is not there."""
    try:
        connection = await Connection.open(broker)
    except ApiError:
        return None
    try:
        found = await connection.call(MetadataRequest(topics=None), 13, MetadataResponse)
    except ApiError:
        return None
    finally:
        connection.close()
    return found if found.brokers else None


async def configs_from(broker: Endpoint, kind: int, names: list[str], source: int) -> dict[tuple[str, str], str | None]:
    resources = tuple(
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None) for name in names
    )
    connection = await Connection.open(broker)
    try:
        answer = await connection.call(DescribeConfigsRequest(resources=resources), 4, DescribeConfigsResponse)
    finally:
        connection.close()
    assert {result.error_code for result in answer.results} == {0}
    return {
        (result.resource_name, config.name): config.value
        for result in answer.results
        for config in result.configs
        if config.config_source == source
    }


class Shown(NamedTuple):
    """What the Kafka answers."""

    partitions: dict[tuple[str | None, int], list[int]]
    """The replicas, by topic and number."""
    topic_configs: dict[tuple[str, str], str | None]
    broker_configs: dict[tuple[str, str], str | None]


async def started_from(checkpoint: Path, directory: Path) -> Shown:
    """Format a directory, put the checkpoint into it, start a Kafka there, and ask it."""
    controller, broker = free_endpoints(2)
    data, settings = directory / "kafka", directory / "kafka.properties"
    settings.write_text(SETTINGS.format(controller=controller, broker=broker, directory=data))
    tool = [*JAVA, "kafka.tools.StorageTool", "format", "-t", random_cluster_id(), "-c", str(settings)]
    formatting = ChildProcess(tool, directory / "format.log", os.environ)
    assert await formatting.wait() == 0, formatting.last_lines(5)
    (data / "__cluster_metadata-0").mkdir(exist_ok=True)
    shutil.copy(checkpoint, data / "__cluster_metadata-0")
    async with servers("Kafka", {"kafka": [*JAVA, "kafka.Kafka", str(settings)]}, directory, os.environ) as running:
        found = await running.until(lambda: metadata_from(broker))
        names = sorted(topic.name or "" for topic in found.topics)
        return Shown(
            {
                (topic.name, partition.partition_index): list(partition.replica_nodes)
                for topic in found.topics
                for partition in topic.partitions
            },
            await configs_from(broker, TOPIC, names, SET_FOR_TOPIC),
            await configs_from(broker, BROKER, [""], SET_FOR_ALL_BROKERS),
        )


def test_a_kafka_starts_from_what_was_exported(kafka_data: Path, tmp_path: Path, run: Run) -> None:
    taken, exported = tmp_path / "taken", tmp_path / "exported"
    taken.mkdir()
    exported.mkdir()
    imported = run("kafka", "import", kafka_data / "controller-3", "--to", taken, "--output", "json")
    snapshot = Path(json.loads(imported.output)["Path"])
    run("kafka", "export", "--snapshot", snapshot, "--to", exported)
    (checkpoint,) = exported.iterdir()
    shown = asyncio.run(started_from(checkpoint, tmp_path))

    partitions = rows_of(
        run, snapshot, "SELECT name, partition_id, replicas FROM partitions JOIN topics USING (topic_id)"
    )
    assert len(partitions) == 97
    assert shown.partitions == {(row["name"], row["partition_id"]): json.loads(row["replicas"]) for row in partitions}
    configs = rows_of(run, snapshot, "SELECT resource_type, resource_name, name, value FROM configs")
    expected: dict[int, dict[tuple[str, str], str]] = {TOPIC: {}, BROKER: {}}
    for row in configs:
        if row["resource_type"] == TOPIC or row["resource_name"] == "":
            expected[row["resource_type"]][row["resource_name"], row["name"]] = row["value"]
    assert len(expected[TOPIC]) > 20
    assert shown.topic_configs == expected[TOPIC]
    assert shown.broker_configs == expected[BROKER] != {}
