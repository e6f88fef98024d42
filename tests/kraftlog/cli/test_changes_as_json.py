"""`--output json` on what changes things: what was made, with its ids, and what was so already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from kraftbase.errors import ErrorCode
from kraftlog.cli.main import app
from tests.kraftlog.cli.test_topic_commands import Commands, commands

STREAMS = ("watch", "shell", "brokers run")
"""They print as long as they run."""


def asking_commands(command: Any, path: str = "") -> dict[str, Any]:
    """The commands that ask a cluster, by their names."""
    found: dict[str, Any] = {}
    for name, of_group in getattr(command, "commands", {}).items():
        found |= asking_commands(of_group, f"{path} {name}")
    if any(parameter.name == "bootstrap_server" for parameter in command.params):
        found[path.strip()] = command
    return found


ASKING = asking_commands(typer.main.get_command(app))


@pytest.mark.parametrize("name", [name for name in ASKING if name not in STREAMS])
def test_every_command_that_asks_a_cluster_has_json(name: str) -> None:
    assert any("--output" in parameter.opts for parameter in ASKING[name].params)


async def test_topics(tmp_path: Path) -> None:
    async with commands(tmp_path) as run:
        at = ("--output", "json")
        created = (await run("topics", "create", "orders", "--partitions", 2, *at)).json()
        (listed,) = (await run.client.list_topics()).topics
        assert created == {
            "Topic": "orders",
            "TopicId": listed.topic_id,
            "PartitionCount": 2,
            "ReplicationFactor": 1,
            "Created": True,
        }
        again = (await run("topics", "create", "orders", "--if-not-exists", *at)).json()
        assert again == {**created, "Created": False}
        validated = (await run("topics", "create", "other", "--validate-only", *at)).json()
        assert (validated["TopicId"], validated["Created"]) == (None, False)
        altered = await run("topics", "alter", "orders", "--partitions", 3, "--config", "retention.ms=5", *at)
        retention = {"Name": "retention.ms", "Before": None, "Altered": True}
        assert altered.json() == {"Topic": "orders", "PartitionCount": 3, "Configs": [retention]}
        assert (await run("partitions", "add", "orders", "--count", 4, *at)).json() == {
            "Topic": "orders",
            "PartitionCount": 4,
        }
        await _delete(run)


async def _delete(run: Commands) -> None:
    deleted = await run("topics", "delete", "orders", "nobody", "--output", "json")
    assert deleted.code == 1
    assert "UNKNOWN_TOPIC_OR_PARTITION" in deleted.errors
    assert deleted._replace(code=0, errors="").json() == [
        {"Topic": "orders", "Deleted": True, "Error": None},
        {"Topic": "nobody", "Deleted": False, "Error": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name},
    ]
    absent = await run("topics", "delete", "nobody", "--if-exists", "--output", "json")
    assert absent.json() == [{"Topic": "nobody", "Deleted": False, "Error": None}]


async def test_everything_else(tmp_path: Path) -> None:
    async with commands(tmp_path, "orders") as run:
        at = ("--output", "json")
        registered = await run("brokers", "register", "--id", 7, "--endpoint", "PLAINTEXT://localhost:9999", *at)
        epochs = {broker.broker_id: broker.broker_epoch for broker in (await run.client.list_brokers()).brokers}
        assert registered.json() == {"BrokerId": 7, "BrokerEpoch": epochs[7], "Fenced": True}
        assert (await run("brokers", "fence", "--id", 7, *at)).json() == {"BrokerId": 7, "Fenced": True}
        assert (await run("brokers", "unregister", "--id", 7, *at)).json() == {"BrokerId": 7, "Unregistered": True}

        whose = ("--entity-type", "topics", "--entity-name", "orders", "--add-config", "retention.ms=5", *at)
        for before, is_altered in ((None, True), ("5", False)):
            altered = (await run("configs", "alter", *whose)).json()
            assert (altered["EntityType"], altered["EntityName"]) == ("topics", "orders")
            assert altered["Configs"] == [{"Name": "retention.ms", "Before": before, "Altered": is_altered}]

        quota = ("quotas", "alter", "--client-id", "me", "--add-config", "producer_byte_rate=10", *at)
        for is_altered in (True, False):
            (of_quota,) = (await run(*quota)).json()["Quotas"]
            assert of_quota == {"Quota": "producer_byte_rate", "Value": 10, "Altered": is_altered}

        level = ("features", "downgrade", "--feature", "eligible.leader.replicas.version=0", *at)
        for option, was_so, is_altered in ((("--dry-run",), False, False), ((), False, True), ((), True, False)):
            (feature,) = (await run(*level, *option)).json()
            assert (feature["Feature"], feature["Level"]) == ("eligible.leader.replicas.version", 0)
            assert (feature["WasSo"], feature["Altered"]) == (was_so, is_altered)
