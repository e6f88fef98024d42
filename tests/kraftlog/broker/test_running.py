"""A broker in a process that is told to stop before it serves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kraftbase.files.posix import PosixFileSystem
from kraftlog.admin.client.client import AdminClient
from kraftlog.broker.clean_shutdown import take_clean_epoch
from kraftlog.broker.followed_metadata import FollowedMetadata
from kraftlog.broker.running import running
from kraftlog.broker.settings import BrokerSettings
from statemachine.query.descriptions import BrokerListener
from tests.kraftlog.admin.admin_nodes import admin_cluster


async def test_a_start_that_is_cancelled_once_the_broker_is_registered_is_a_clean_shutdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller has its new epoch by then: the next start has to name that one."""
    waits = asyncio.Event()

    def never_applied(*_: object) -> None:
        waits.set()

    monkeypatch.setattr(FollowedMetadata, "wait_applied", never_applied)
    settings = BrokerSettings(
        broker_id=1, directory=tmp_path / "broker", listeners=(BrokerListener("PLAINTEXT", "127.0.0.1", 0),), configs={}
    )
    async with admin_cluster(tmp_path / "nodes") as cluster:
        endpoints = list(cluster.endpoints.values())

        async def run() -> None:
            async with running(settings, endpoints):
                pytest.fail("it has not taken its partitions over")

        starting = asyncio.create_task(run())
        await asyncio.wait((starting, asyncio.create_task(waits.wait())), return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        assert starting.cancelled()
        async with AdminClient(endpoints) as client:
            (registered,) = (await client.list_brokers()).brokers
    assert take_clean_epoch(PosixFileSystem(), str(tmp_path / "broker")) == registered.broker_epoch
