"""`kraftlog reassign` on a cluster that obeys: from a proposal to its completion, with and without a throttle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftbase.partition import TopicPartition
from kraftlog.admin.client.client import NewTopic
from kraftlog.commands.partition_files import reassignment_json
from statemachine.query.partition_descriptions import IsrAlteration, IsrBroker
from tests.kraftlog.cli.test_partition_commands import Commands, living_cluster
from tests.kraftlog.partitions import written


async def throttles(ask: Commands) -> tuple[list[str], list[str]]:
    """The rates as broker:rate, by name, and the lists of the topic `clicks`."""
    found = await ask.json("configs", "describe", "--entity-type", "brokers")
    rates = [(of["Name"], f"{of['Entity']}:{of['Value']}") for of in found if "replication.throttled" in of["Name"]]
    listed = await ask.json("configs", "describe", "--entity-type", "topics", "--entity-name", "clicks")
    lists = {of["Name"]: of["Value"] for of in listed}
    names = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
    return [rate for _, rate in sorted(rates)], [lists[name] for name in names if name in lists]


@pytest.mark.process
async def test_a_reassignment_is_generated_executed_followed_cancelled_and_completed(tmp_path: Path) -> None:
    async with living_cluster(tmp_path, [1, 2, 3]) as (ask, client, (first, *_)):
        await client.create_topics([NewTopic("clicks", assignments={0: [1, 2], 1: [2, 1]})])
        at, before = TopicPartition("clicks", 0), {TopicPartition("clicks", 0): [1, 2]}
        generate = ("reassign", "generate", "--topics", "clicks")
        proposal = await ask.json(*generate, "--brokers", "1,2,3")
        assert proposal["Current"] == reassignment_json({**before, TopicPartition("clicks", 1): [2, 1]})
        assert all(len(set(entry["replicas"])) == 2 for entry in proposal["Proposed"]["partitions"])
        lines = (await ask(*generate, "--brokers", "3,2")).lines()
        assert [lines[0], lines[3]] == [
            "Current partition replica assignment",
            "Proposed partition reassignment configuration",
        ]
        assert json.loads(lines[1]) == proposal["Current"]
        assert (await ask(*generate, "--brokers", "1,4")).is_error(
            ErrorCode.BROKER_ID_NOT_REGISTERED, "broker 4 is not registered; these are: 1, 2, 3"
        )

        file = written(tmp_path / "moves.json", reassignment_json({at: [1, 3]}))
        executed = await ask.json("reassign", "execute", "--file", file, "--throttle", 1_000)
        assert await throttles(ask) == (["1:1000", "2:1000", "3:1000"] * 2, ["0:1,0:2", "0:3"])
        assert executed["Current"] == reassignment_json(before)
        assert [part["Result"] for part in executed["Partitions"]] == ["accepted"]
        assert await ask.json("reassign", "list") == [
            {
                "Topic": "clicks",
                "Partition": 0,
                "Replicas": [1, 3, 2],
                "Isr": [1, 2],
                "Adding": [3],
                "Removing": [2],
            }
        ]
        (row,) = await ask.json("reassign", "verify", "--file", file, code=1)
        assert (row["Status"], row["Wanted"]) == ("in progress", [1, 3])
        assert len(await throttles(ask)) == 2
        (row,) = await ask.json("reassign", "cancel", "--file", file, "--preserve-throttles")
        assert row["Result"] == "cancelled"
        assert any(await throttles(ask))
        (row,) = await ask.json("reassign", "cancel", "--file", file)
        assert (row["Result"], row["Error"]) == ("not in progress", None)
        assert await throttles(ask) == ([], [])
        (row,) = await ask.json("reassign", "verify", "--file", file, code=1)
        assert (row["Status"], row["Replicas"]) == ("different", [1, 2])

        lines = (await ask("reassign", "execute", "--file", file, "--throttle", 1_000)).lines()
        assert json.loads(lines[1]) == reassignment_json(before)
        assert lines[-1].startswith("Their copying is throttled until")
        assert lines[-2].split() == ["clicks", "0", "accepted"]
        (described,) = (await client.describe_topics(["clicks"])).topics
        partition = described.partitions[0]
        members = tuple(map(IsrBroker, (1, 2, 3)))
        alteration = IsrAlteration(described.topic_id, 0, partition.leader_epoch, partition.partition_epoch, members)
        (altered,) = await client.alter_partition(1, first.broker_epoch, [alteration])
        assert (altered.code, altered.isr) == (ErrorCode.NONE, (1, 3))
        (row,) = await ask.json("reassign", "verify", "--file", file, "--preserve-throttles")
        assert (row["Status"], row["Replicas"]) == ("completed", [1, 3])
        assert any(await throttles(ask))
        assert (await ask("reassign", "verify", "--file", file)).lines()[-1] == "Removed the throttles."
        assert await throttles(ask) == ([], [])
        assert "throttles" not in (await ask("reassign", "verify", "--file", file)).output
        assert await ask.json("reassign", "list") == []


@pytest.mark.process
async def test_a_reassignment_of_what_is_not_there_is_refused(tmp_path: Path) -> None:
    async with living_cluster(tmp_path, [1]) as (ask, client, _):
        await client.create_topics([NewTopic("clicks", assignments={0: [1]})])
        file = tmp_path / "moves.json"
        for moves, code, words in (
            ({TopicPartition("clicks", 9): [1]}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "has no partition 9"),
            ({TopicPartition("clicks", 0): [1, 4]}, ErrorCode.BROKER_ID_NOT_REGISTERED, "broker 4 is not registered"),
        ):
            refused = await ask("reassign", "execute", "--file", written(file, reassignment_json(moves)))
            assert (refused.code, refused.errors.count("\n")) == (1, 1)
            assert code.name in refused.errors
            assert words in refused.errors
