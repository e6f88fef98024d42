"""The demo's data broker: records are written to it by a Kafka client, it is killed, and they are read again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from kraftbase.endpoint import Endpoint
from kraftlog.admin.client.client import AdminClient, NewTopic
from kraftlog.demo.command import run_command
from kraftlog.local.brokers import LocalBrokers
from kraftlog.local.cluster import LocalCluster

TOPIC: Final = "clicks"
PARTITIONS: Final = 3
RECORDS: Final = 100_000


class Digest(NamedTuple):
    """What was written, or read: the same for the same records in any order."""

    records: int
    checksum: str


def data_broker(cluster: LocalCluster, client: AdminClient) -> LocalBrokers:
    """The broker, beside the nodes of the cluster; not started."""
    return LocalBrokers(client, cluster.bootstrap_servers, cluster.directory.path, 1, None)


async def create_topic(client: AdminClient, broker_id: int) -> None:
    """A topic that is on the data broker only: the demo's other brokers keep nothing."""
    assignments = {partition: [broker_id] for partition in range(PARTITIONS)}
    await client.create_topics([NewTopic(TOPIC, assignments=assignments)])


async def write(servers: Endpoint, directory: Path) -> Digest:
    """Write `RECORDS` records by `kraftlog produce`, which uses confluent-kafka."""
    path = directory / "clicks.jsonl"
    with path.open("w") as file:
        file.writelines(_lines())
    options = ("--json", "--file", str(path), "--compression", "lz4", "--checksum", "--output", "json")
    return _digest(await run_command("produce", TOPIC, "--bootstrap-server", str(servers), *options))


async def read(servers: Endpoint) -> Digest:
    """Read all that is there by `kraftlog consume`."""
    options = ("--until-end", "--checksum", "--output", "json")
    return _digest(await run_command("consume", TOPIC, "--bootstrap-server", str(servers), *options))


def _digest(printed: dict[str, Any]) -> Digest:
    return Digest(printed["Records"], printed["Checksum"])


def _lines() -> Iterator[str]:
    for number in range(RECORDS):
        yield json.dumps({"key": f"user-{number % 1_000}", "value": f"page {number}"}) + "\n"
