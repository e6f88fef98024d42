"""`kraftlog topics` and `configs` on a cluster: what they tell of each topic, and of what was so already."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from broker.lifecycle import living_brokers
from statemachine.client import AdminClient, NewTopic
from statemachine.controller_config import ControllerConfig
from tests.kraftlog.commands import Finished, kraftlog
from tests.statemachine.admin_nodes import admin_cluster


class Commands:
    """Runs commands against a cluster, beside the loop on which it runs."""

    def __init__(self, address: object, client: AdminClient) -> None:
        self._address = address
        self.client = client

    async def __call__(self, *arguments: object) -> Finished:
        return await asyncio.to_thread(kraftlog, *arguments, "--bootstrap-server", self._address)

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
