"""A broker that returns: what it knows of how it was shut down, and how it waits for its other incarnation."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kraftbase.errors import ApiError, DirectoryError, ErrorCode
from kraftlog.admin.client.client import AdminClient, NewTopic
from kraftlog.broker.clean_shutdown import FILE_NAME
from kraftlog.broker.lifecycle import BrokerLifecycle
from kraftlog.controller.controller_config import ControllerConfig
from raft.storage.directory import META_NAME
from tests.kraftlog.admin.admin_nodes import AdminCluster, admin_cluster
from tests.kraftlog.command_line import command, environment, kraftlog
from tests.statemachine.waiting import until

LISTENERS = [("PLAINTEXT", "localhost", 9092)]
WAITS = "Broker 1 waits: another incarnation of it runs"
SHORT_SESSION = ControllerConfig(broker_session_timeout_ms=2_000)


@asynccontextmanager
async def a_client(base: Path) -> AsyncIterator[tuple[AdminCluster, AdminClient]]:
    async with (
        admin_cluster(base / "nodes", config=SHORT_SESSION) as cluster,
        AdminClient(list(cluster.endpoints.values()), timeout_ms=20_000) as client,
    ):
        yield cluster, client


def a_life(client: AdminClient, broker_id: int = 1, data_dir: Path | None = None, **options: object) -> BrokerLifecycle:
    return BrokerLifecycle(
        client,
        broker_id=broker_id,
        listeners=LISTENERS,
        heartbeat_interval_ms=20,
        data_dir=None if data_dir is None else str(data_dir),
        **options,  # type: ignore[arg-type]
    )


# --- how it was shut down ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_directory", [True, False])
async def test_ct56_one_that_was_shut_down_in_good_order_stays_eligible_if_it_can_tell(
    tmp_path: Path, has_directory: bool
) -> None:
    first_dir = tmp_path / "first" if has_directory else None
    async with a_client(tmp_path) as (_, client), a_life(client, 2) as second:
        async with a_life(client, 1, first_dir) as first:
            for life in (first, second):
                await life.unfenced()
            configs = {"min.insync.replicas": "2"}
            await client.create_topics([NewTopic("clicks", assignments={0: [1, 2]}, configs=configs)])
        async with a_life(client, 1, first_dir) as again:
            await until(lambda: again.broker_epoch > first.broker_epoch)
            (topic,) = (await client.describe_topics(["clicks"], min_applied_end_offset=again.broker_epoch + 1)).topics
            assert topic.partitions[0].eligible_leader_replicas == ((1,) if has_directory else ())


async def test_one_that_dies_leaves_nothing_and_one_that_goes_leaves_its_epoch(tmp_path: Path) -> None:
    file = tmp_path / "broker" / FILE_NAME
    async with a_client(tmp_path) as (_, client):
        life = a_life(client, data_dir=file.parent)
        for is_asked_to_go in (True, False):
            life.start()
            await life.unfenced()
            assert not file.exists()
            if is_asked_to_go:
                assert await life.shut_down()
            await life.stop()
            assert file.exists() is is_asked_to_go


async def test_one_that_has_not_registered_leaves_what_it_found(tmp_path: Path) -> None:
    directory = tmp_path / "broker"
    async with a_client(tmp_path) as (_, client):
        async with a_life(client, data_dir=directory) as life:
            await life.unfenced()
        content = (directory / FILE_NAME).read_bytes()
        assert f"broker.epoch={life.broker_epoch}\n".encode() in content
        async with a_life(client) as other:
            await other.unfenced()
            told: list[str] = []
            waiting = a_life(client, data_dir=directory, tell=told.append)
            waiting.start()
            await until(lambda: bool(told))
            assert not (directory / FILE_NAME).exists()
            await waiting.stop()
        assert (directory / FILE_NAME).read_bytes() == content


# --- who owns the directory -------------------------------------------------------------------------------------------


async def test_a_broker_with_a_directory_stays_with_its_cluster(tmp_path: Path) -> None:
    directory = tmp_path / "broker"
    async with a_client(tmp_path / "a") as (_, client), a_life(client, data_dir=directory) as life:
        await life.unfenced()
        assert f"cluster.id={await client.cluster_id()}\n" in (directory / META_NAME).read_text()
    left = (directory / FILE_NAME).read_bytes()
    async with a_client(tmp_path / "b") as (_, client):
        life = a_life(client, data_dir=directory)
        life.start()
        with pytest.raises(ApiError, match=r"this is cluster .* check the address") as refused:
            await life.unfenced()
        await life.stop()
        assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
        assert (await client.list_brokers()).brokers == ()
    assert (directory / FILE_NAME).read_bytes() == left


async def test_a_directory_is_one_brokers_and_one_process_uses_it(tmp_path: Path) -> None:
    directory = tmp_path / "broker"
    async with a_client(tmp_path) as (_, client):
        async with a_life(client, data_dir=directory) as life:
            await life.unfenced()
            with pytest.raises(DirectoryError, match="in use by another process"):
                a_life(client, data_dir=directory).start()
        with pytest.raises(DirectoryError, match="belongs to node 1, not to node 2"):
            a_life(client, 2, directory).start()
        assert (directory / FILE_NAME).exists()  # what was refused has removed nothing from it


async def test_a_directory_with_something_else_in_it_is_refused_before_anything_is_registered(tmp_path: Path) -> None:
    directory = tmp_path / "broker"
    directory.mkdir()
    (directory / "holiday.jpg").write_bytes(b"")
    async with a_client(tmp_path) as (_, client):
        life = a_life(client, data_dir=directory)
        life.start()
        with pytest.raises(DirectoryError, match=r"not empty, it holds holiday\.jpg"):
            await life.unfenced()
        await life.stop()
        assert (await client.list_brokers()).brokers == ()
    assert [path.name for path in directory.iterdir()] == ["holiday.jpg"]


# --- another incarnation ----------------------------------------------------------------------------------------------


async def test_one_that_waits_for_its_other_incarnation_says_so_once_and_when_it_is_over(tmp_path: Path) -> None:
    told: list[str] = []
    async with a_client(tmp_path) as (_, client):
        first, second = a_life(client), a_life(client, tell=told.append)
        first.start()
        await first.unfenced()
        with capture_logs() as lines:
            second.start()
            await until(lambda: sum("registration or heartbeat failed" in line["event"] for line in lines) >= 3)
        assert len(told) == 1
        assert told[0].startswith(WAITS)
        await first.stop()
        await second.unfenced()
        assert told[1:] == ["The other incarnation's session has expired: broker 1 is registered."]
        await second.stop()


async def test_one_that_waits_may_go_at_once(tmp_path: Path) -> None:
    told: list[str] = []
    async with a_client(tmp_path) as (_, client), a_life(client) as first:
        await first.unfenced()
        async with a_life(client, tell=told.append) as second:
            await until(lambda: bool(told))
            assert await second.shut_down()
        assert second.broker_epoch == -1
        (registered,) = (await client.list_brokers()).brokers
        assert registered.broker_epoch == first.broker_epoch


@pytest.mark.process
async def test_the_command_says_that_it_waits_and_ends_on_ctrl_c(tmp_path: Path) -> None:
    async with a_client(tmp_path) as (cluster, client), a_life(client) as life:
        await life.unfenced()
        options = ("--id", 1, "--endpoint", "PLAINTEXT://localhost:0", "--data-dir", tmp_path / "broker")
        line = command("brokers", "run", *options, "--bootstrap-server", cluster.endpoints[1])
        process = await asyncio.create_subprocess_exec(
            *line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
        )
        try:
            assert process.stderr is not None
            assert (await process.stderr.readline()).decode().startswith(WAITS)
            process.send_signal(signal.SIGINT)
            output, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert (process.returncode, output, errors) == (0, b"Broker 1 has shut down.\n", b"")


async def test_a_file_in_the_place_of_the_directory_is_found_before_anything_is_registered(tmp_path: Path) -> None:
    file = tmp_path / "broker"
    file.write_text("")
    async with a_client(tmp_path) as (cluster, client):
        options = ("--id", 1, "--endpoint", "PLAINTEXT://localhost:9093", "--data-dir", file)
        said = await asyncio.to_thread(kraftlog, "brokers", "run", *options, "--bootstrap-server", cluster.endpoints[1])
        assert said.is_error(ErrorCode.KAFKA_STORAGE_ERROR, str(file), "Not a directory")
        assert (await client.list_brokers()).brokers == ()
