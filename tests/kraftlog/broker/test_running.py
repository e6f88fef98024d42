"""A broker as a process has it: its end, and an end before it serves."""

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


def settings_in(directory: Path) -> BrokerSettings:
    listeners = (BrokerListener("PLAINTEXT", "127.0.0.1", 0),)
    return BrokerSettings(broker_id=1, directory=directory / "broker", listeners=listeners, configs={})


async def test_the_end_of_the_block_is_a_clean_shutdown_that_the_controller_knows(tmp_path: Path) -> None:
    async with admin_cluster(tmp_path / "nodes") as cluster:
        endpoints = list(cluster.endpoints.values())
        async with running(settings_in(tmp_path), endpoints):
            pass
        async with AdminClient(endpoints) as client:
            (registered,) = (await client.list_brokers()).brokers
    assert registered.fenced
    assert take_clean_epoch(PosixFileSystem(), str(tmp_path / "broker")) == registered.broker_epoch


async def test_a_start_that_is_cancelled_once_the_broker_is_registered_is_a_clean_shutdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller has its new epoch by then: the next start has to name that one."""
    waits = asyncio.Event()

    def never_applied(*_: object) -> None:
        waits.set()

    monkeypatch.setattr(FollowedMetadata, "wait_applied", never_applied)
    async with admin_cluster(tmp_path / "nodes") as cluster:
        endpoints = list(cluster.endpoints.values())

        async def run() -> None:
            async with running(settings_in(tmp_path), endpoints):
                pytest.fail("it has not taken its partitions over")

        starting = asyncio.create_task(run())
        await asyncio.wait((starting, asyncio.create_task(waits.wait())), return_when=asyncio.FIRST_COMPLETED)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        assert starting.cancelled()
        async with AdminClient(endpoints) as client:
            (registered,) = (await client.list_brokers()).brokers
    assert take_clean_epoch(PosixFileSystem(), str(tmp_path / "broker")) == registered.broker_epoch
