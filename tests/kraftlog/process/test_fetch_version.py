"""Fetch 18 from the metadata.version on that brings it, and 17 before, while the nodes run (CT-62, PK-05)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.sentinels import HIGH_WATERMARK_NOT_SENT
from kraftbase.types import Offset
from kraftlog.admin.client.client import AdminClient
from raft.core.messages import FetchRequest, Request, Response
from raft.node import Node
from statemachine.query.cluster_descriptions import FeatureChange, UpgradeType
from statemachine.words.features import FETCH_VERSION_18, METADATA_VERSION
from tests.kraftlog.whole_nodes import WholeNodes
from tests.statemachine.waiting import until


class Fetches:
    """What the fetches that a node is asked to answer say of their senders' high watermarks."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        self.high_watermarks: list[Offset] = []
        answer = node.answer

        async def noting(request: Request) -> tuple[Response, bytes]:
            if isinstance(request, FetchRequest):
                self.high_watermarks.append(request.high_watermark)
            return await answer(request)

        monkeypatch.setattr(node, "answer", noting)

    @property
    def have_version_18(self) -> list[bool]:
        return [high_watermark != HIGH_WATERMARK_NOT_SENT for high_watermark in self.high_watermarks]

    async def come_to(self, *, version_18: bool) -> None:
        """Return when the last fetch is of that version."""
        await until(lambda: self.have_version_18[-1:] == [version_18])


async def set_metadata_version(client: AdminClient, level: int, upgrade_type: UpgradeType) -> None:
    await client.update_features([FeatureChange(METADATA_VERSION, level, upgrade_type)])


async def register_brokers(client: AdminClient, *broker_ids: int) -> None:
    for broker_id in broker_ids:
        await client.register_broker(broker_id, [("PLAINTEXT", "localhost", 9092)])


async def test_ct62_a_fetch_says_the_high_watermark_only_at_the_metadata_version_that_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with WholeNodes(tmp_path) as nodes:
        fetches = Fetches(await nodes.start(1), monkeypatch)
        await nodes.start(2)
        async with AdminClient([nodes.endpoints[1]]) as client:
            await fetches.come_to(version_18=True)

            await set_metadata_version(client, FETCH_VERSION_18 - 1, UpgradeType.SAFE_DOWNGRADE)
            await fetches.come_to(version_18=False)
            fetches.high_watermarks.clear()
            await register_brokers(client, 1, 2, 3)
            await until(lambda: len(fetches.high_watermarks) >= 3)
            assert not any(fetches.have_version_18)

            await set_metadata_version(client, FETCH_VERSION_18, UpgradeType.UPGRADE)
            await fetches.come_to(version_18=True)
            fetches.high_watermarks.clear()
            await register_brokers(client, 4, 5, 6)
            await until(lambda: len(fetches.high_watermarks) >= 3)
            assert all(fetches.have_version_18)


async def test_ct62_a_node_that_starts_below_that_metadata_version_never_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with WholeNodes(tmp_path) as nodes:
        fetches = Fetches(await nodes.start(1), monkeypatch)
        await nodes.start(2)
        async with AdminClient([nodes.endpoints[1]]) as client:
            await set_metadata_version(client, FETCH_VERSION_18 - 1, UpgradeType.SAFE_DOWNGRADE)
            await fetches.come_to(version_18=False)
            await nodes.stop(2)
            fetches.high_watermarks.clear()
            await nodes.start(2)
            await register_brokers(client, 1, 2, 3)
            await until(lambda: len(fetches.high_watermarks) >= 3)
            assert not any(fetches.have_version_18)
