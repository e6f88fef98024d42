"""`kraftlog topics`, `configs` and `brokers` on a cluster: what they print for each, also if nothing changed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.admin.client.client import AdminClient, NewTopic, NotSent
from kraftlog.broker.lifecycle import living_brokers
from kraftlog.commands import admin
from kraftlog.commands.topic_files import WantedTopic
from kraftlog.commands.topic_plans import apply_plan, make_plan, plan_on
from kraftlog.controller.controller_config import ControllerConfig
from tests.kraftlog.admin.admin_nodes import admin_cluster
from tests.kraftlog.command_line import Finished, kraftlog


class Commands:
    """Runs commands against a cluster, outside the loop on which it runs."""

    def __init__(self, address: object, client: AdminClient) -> None:
        self._address = address
        self.client = client

    async def __call__(self, *arguments: object, given: str = "") -> Finished:
        return await asyncio.to_thread(kraftlog, *arguments, "--bootstrap-server", self._address, given=given)

    async def topics(self) -> list[str]:
        """The names of all topics."""
        return [topic.name for topic in (await self.client.list_topics()).topics]


@asynccontextmanager
async def commands(path: Path, *topics: str, config: ControllerConfig | None = None) -> AsyncIterator[Commands]:
    """A cluster with a broker and these topics."""
    async with (
        admin_cluster(path, config=config) as cluster,
        AdminClient([cluster.endpoints[1]], timeout_ms=20_000) as client,
        living_brokers(client, [1]),
    ):
        await client.create_topics([NewTopic(name, 1, 1) for name in topics])
        yield Commands(cluster.endpoints[1], client)


async def test_each_topic_that_is_to_be_deleted_is_tried_and_told_of(tmp_path: Path) -> None:
    async with commands(tmp_path, "a", "b", "c") as run:
        said = await run("topics", "delete", "a", "nobody", "b", "no one")
        assert (said.code, said.output) == (1, "Deleted topic a.\nDeleted topic b.\n")
        assert said.errors.splitlines() == [
            f"error: UNKNOWN_TOPIC_OR_PARTITION: there is no topic '{name}'" for name in ("nobody", "no one")
        ]
        assert await run.topics() == ["c"]
        said = await run("topics", "delete", "nobody", "c", "--if-exists")
        assert said.lines() == ["Topic nobody does not exist.", "Deleted topic c."]


async def test_without_a_leader_the_topics_that_are_left_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        async def delete_topics(self, names: list[str]) -> None:
            if names != ["a"]:
                raise NotSent(ErrorCode.LEADER_NOT_AVAILABLE, "no leader was found in time")

    @asynccontextmanager
    async def connected(endpoints: object) -> AsyncIterator[Client]:
        yield Client()

    monkeypatch.setattr(admin, "connected_client", connected)
    deletions = admin.delete_topics([], ["a", "b", "c"])
    assert await anext(deletions) == ("a", None)
    with pytest.raises(NotSent, match="in time; not deleted: b, c"):
        await anext(deletions)


async def test_what_prune_cannot_delete_is_found_before_anything_is_changed(tmp_path: Path) -> None:
    file = tmp_path / "topics.yaml"
    file.write_text("topics: [{name: new}, {name: kept}]")
    async with commands(tmp_path, "kept", "left", config=ControllerConfig(delete_topic_enable=False)) as run:
        before = (await run.client.list_topics()).applied_end_offset
        for options in (("--dry-run",), ("--yes",)):
            said = await run("topics", "apply", "-f", file, "--prune", *options)
            assert said.is_error(
                ErrorCode.TOPIC_DELETION_DISABLED, "'left'", "leave it out, or set delete.topic.enable"
            )
            assert "run it again" not in said.errors
        assert await run.topics() == ["kept", "left"]
        late = make_plan([WantedTopic("kept")], {}, (await run.client.list_topics()).topics, prune=True)
        late.creations.clear()
        with pytest.raises(ApiError, match=r"\(0 of 1 changes are made\)$"):
            await apply_plan(run.client, late, lambda made, of: None)
        assert (await run.client.list_topics()).applied_end_offset == before


async def test_that_topics_can_be_deleted_is_found_without_a_record(tmp_path: Path) -> None:
    async with commands(tmp_path, "kept", "left") as run:
        before = (await run.client.list_topics()).applied_end_offset
        assert (await plan_on(run.client, [WantedTopic("kept")], prune=True)).deletions == ["left"]
        assert (await run.client.list_topics()).applied_end_offset == before


async def test_apply_reads_standard_input_and_tells_of_what_it_leaves_alone(tmp_path: Path) -> None:
    strimzi = {"apiVersion": "kafka.strimzi.io/v1", "kind": "KafkaTopic", "spec": {"partitions": 1}}
    unmanaged = {"name": "left", "annotations": {"strimzi.io/managed": "false"}}
    items = [{**strimzi, "metadata": {"name": "new"}}, {**strimzi, "metadata": unmanaged}]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    async with commands(tmp_path, "left", "pruned") as run:
        said = await run("topics", "apply", "-f", "-", "--prune", "--yes", "--output", "json", given=text)
        assert said.code == 0
        changes = json.loads(said.output)["Changes"]
        assert [(change["Topic"], change["Action"]) for change in changes] == [("new", "create"), ("pruned", "delete")]
        place = "standard input, document 1, item 2"
        assert said.errors == f"Topic left is not changed: strimzi.io/managed is false ({place}).\n"
        assert await run.topics() == ["left", "new"]


async def test_a_broker_is_one_object_with_lists(tmp_path: Path) -> None:
    async with commands(tmp_path) as run:
        described = (await run("brokers", "describe", "--id", 1, "--output", "json")).json()
        (listed,) = (await run("brokers", "list", "--output", "json")).json()
        assert {name: described[name] for name in listed} == listed
        assert (listed["Fenced"], listed["InControlledShutdown"]) == (False, False)
        assert [len(described[name]) for name in ("Endpoints", "LogDirs")] == [1, 1]
        levels = {of["Feature"]: (of["MinLevel"], of["MaxLevel"]) for of in described["Features"]}
        assert levels["metadata.version"][0] == 7
        rows = [line.split() for line in (await run("brokers", "describe", "--id", 1)).lines()]
        assert ["Endpoints", *described["Endpoints"]] in rows
        lowest, highest = levels["metadata.version"]
        assert any(f"metadata.version {lowest}-{highest}" in " ".join(row) for row in rows if row[0] == "Features")
        table = (await run("brokers", "list")).lines()
        assert table[0].split()[-1] == "InControlledShutdown"
        assert table[2].split()[-2:] == ["False", "False"]


async def test_what_a_config_was_already_is_told(tmp_path: Path) -> None:
    async with commands(tmp_path, "t") as run:
        alter = ("configs", "alter", "--entity-type", "topics", "--entity-name", "t")
        hour = ("--add-config", "retention.ms=3600000")
        assert (await run(*alter, *hour)).lines() == ["Altered 1 config of topic t."]
        before = (await run.client.list_topics()).applied_end_offset
        assert (await run(*alter, *hour, "--delete-config", "segment.ms")).lines() == [
            "retention.ms of topic t was already 3600000; nothing was changed.",
            "segment.ms of topic t was not set; nothing was changed.",
        ]
        assert (await run("topics", "alter", "t", "--config", "retention.ms=3600000")).lines() == [
            "retention.ms of topic t was already 3600000; nothing was changed."
        ]
        assert (await run.client.list_topics()).applied_end_offset == before
        assert (await run(*alter, *hour, "--append-config", "cleanup.policy=compact")).lines() == [
            "Altered 1 config of topic t.",
            "retention.ms of topic t was already 3600000; nothing was changed.",
        ]
        assert (await run(*alter, "--append-config", "cleanup.policy=compact")).lines() == [
            "cleanup.policy of topic t was already delete,compact; nothing was changed."
        ]
        without = (*alter, "--subtract-config", "cleanup.policy=compact,delete")
        assert (await run(*without)).lines() == ["Altered 1 config of topic t."]
        assert (await run(*without)).lines() == ["cleanup.policy of topic t was already empty; nothing was changed."]
        same_and_more = ("--config", "retention.ms=3600000", "--config", "segment.ms=9", "--partitions", 3)
        assert (await run("topics", "alter", "t", *same_and_more)).lines() == [
            "Altered topic t: 1 config, it has 3 partitions now.",
            "retention.ms of topic t was already 3600000; nothing was changed.",
        ]
        gone = await run("configs", "alter", "--entity-type", "topics", "--entity-name", "nobody", *hour)
        assert gone.is_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nobody")


async def test_a_topic_can_be_validated_only(tmp_path: Path) -> None:
    async with commands(tmp_path, "there") as run:
        create = ("topics", "create", "--validate-only", "--partitions", 2)
        assert (await run(*create, "new")).lines() == [
            "Topic new could be created with 2 partitions, replication factor 1."
        ]
        assert (await run(*create, "there")).is_error(ErrorCode.TOPIC_ALREADY_EXISTS, "'there'")
        assert (await run(*create, "there", "--if-not-exists")).lines() == ["Topic there already exists."]
        refused = await run(*create, "new", "--replication-factor", 2)
        assert refused.is_error(ErrorCode.INVALID_REPLICATION_FACTOR)
        assert await run.topics() == ["there"]
