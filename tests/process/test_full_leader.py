"""A leader whose disk is full hands over to another voter, and goes on as a follower when there is room (CT-29)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from kraftbase.errors import ApiError
from kraftbase.types import NodeId
from kraftlog.admin.client.client import AdminClient
from kraftlog.chaos.disk import DiskUnavailable, SmallDisk, mount_disks
from kraftlog.controller.rules.hand_over import STUCK_MS
from kraftlog.local.cluster import LocalCluster
from kraftlog.local.cluster_directory import open_or_create
from statemachine.query.cluster_descriptions import AccessControlEntry

pytestmark = pytest.mark.process

TOPIC, LITERAL, READ, ALLOW = 2, 3, 3, 3
ENTRIES: Final = 200
WAIT_SECONDS: Final = 60 + STUCK_MS / 1000


@pytest_asyncio.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def write(client: AdminClient, number: int) -> None:
    """Write some kilobytes, if the cluster takes them."""
    entries = (
        AccessControlEntry(TOPIC, f"topic-{number}-{entry}", LITERAL, "User:someone", "*", READ, ALLOW)
        for entry in range(ENTRIES)
    )
    with suppress(ApiError):
        await client.create_acls(entries)


async def test_another_voter_leads_and_the_first_one_follows(stack: AsyncExitStack, tmp_path: Path) -> None:
    directory = open_or_create(tmp_path / "cluster", voters=3, observers=0)
    cluster = LocalCluster(directory)
    try:
        disks = mount_disks({node_id: directory.data_path(node_id) for node_id in cluster.voter_ids}, stack)
    except DiskUnavailable as error:
        pytest.skip(f"no small disks here: {error}")
    stack.push_async_callback(cluster.stop)
    await cluster.start()
    await cluster.wait_until_voters_take_part()
    full = disk_of(disks, await cluster.wait_for_leader())
    async with AdminClient([cluster.endpoint(node_id) for node_id in cluster.voter_ids]) as client:
        full.fill()
        async with asyncio.timeout(WAIT_SECONDS):
            for number in itertools.count():  # the first ones fit into what is reserved
                await write(client, number)
                if await cluster.wait_for_leader() != full.node_id:
                    break
        full.free()
        end_offset = (await client.list_topics()).applied_end_offset
        await client.wait_for(end_offset, at=cluster.endpoint(full.node_id), timeout_ms=round(1000 * WAIT_SECONDS))


def disk_of(disks: list[SmallDisk], node_id: NodeId) -> SmallDisk:
    return next(disk for disk in disks if disk.node_id == node_id)
