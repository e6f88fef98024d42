"""A broker's life with a real cluster: it registers, sends heartbeats, and hands over when it stops."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftlog.admin.client.client import AdminClient, NewTopic
from kraftlog.broker.lifecycle import BrokerLifecycle, living_brokers
from kraftlog.broker.shell import membership_messages
from kraftlog.broker.shell.membership import REQUEST_TIMEOUT_MS
from kraftlog.broker.shell.membership_messages import CONTROLLER_BACK, CONTROLLER_LOST
from kraftpb.v1 import admin_pb2
from statemachine.query.descriptions import BrokerDescription
from tests.kraftlog.admin.admin_nodes import AdminCluster, admin_cluster
from tests.kraftlog.admin.client.scripted_node import executed, refused, scripted_nodes
from tests.raft.nodes import free_port
from tests.statemachine.waiting import until

LISTENERS = [("PLAINTEXT", "localhost", 9092)]


def client_of(cluster: AdminCluster) -> AdminClient:
    return AdminClient(list(cluster.endpoints.values()), timeout_ms=20_000)


async def the_broker(client: AdminClient) -> BrokerDescription:
    (found,) = (await client.list_brokers()).brokers
    return found


async def test_it_is_unfenced_and_shuts_down_controlled(tmp_path: Path) -> None:
    async with admin_cluster(tmp_path) as cluster, client_of(cluster) as client:
        async with BrokerLifecycle(client, broker_id=1, listeners=LISTENERS, heartbeat_interval_ms=50) as life:
            await life.unfenced()
            found = await the_broker(client)
            assert (found.broker_epoch, found.fenced) == (life.broker_epoch, False)
        assert (await the_broker(client)).fenced


async def test_one_that_was_let_go_may_start_again(tmp_path: Path) -> None:
    async with admin_cluster(tmp_path) as cluster, client_of(cluster) as client:
        life = BrokerLifecycle(client, broker_id=1, listeners=LISTENERS, heartbeat_interval_ms=20)
        epochs = []
        for _ in range(2):
            life.start()
            await life.unfenced()
            epochs.append((await the_broker(client)).broker_epoch)
            assert not (await the_broker(client)).fenced
            assert await life.shut_down()
            await life.ended()
            assert (await the_broker(client)).fenced
        assert epochs[0] < epochs[1] == life.broker_epoch


async def test_partitions_go_to_another_broker_when_one_shuts_down(tmp_path: Path) -> None:
    async with (
        admin_cluster(tmp_path) as cluster,
        client_of(cluster) as client,
        living_brokers(client, [1, 2]) as (first, _),
    ):
        await client.create_topics([NewTopic("clicks", assignments={0: [1, 2], 1: [2, 1]})])
        assert await first.shut_down()
        (topic,) = (await client.describe_topics(["clicks"])).topics
        assert [partition.leader for partition in topic.partitions] == [2, 2]


async def test_it_registers_anew_when_its_registration_is_gone(tmp_path: Path) -> None:
    async with (
        admin_cluster(tmp_path) as cluster,
        client_of(cluster) as client,
        BrokerLifecycle(client, broker_id=1, listeners=LISTENERS, heartbeat_interval_ms=20) as life,
    ):
        await life.unfenced()
        before = life.broker_epoch
        await client.unregister_broker(1)
        await until(lambda: life.broker_epoch != before)
        assert (life.broker_epoch, life.last_broker_epoch) == (-1, before)  # its fetches have an epoch all the time
        await until(lambda: life.broker_epoch > before and not life.is_fenced)
        assert life.last_broker_epoch == life.broker_epoch


async def test_it_lives_on_when_the_leader_changes(tmp_path: Path) -> None:
    async with (
        admin_cluster(tmp_path, voter_count=3) as cluster,
        client_of(cluster) as client,
        BrokerLifecycle(client, broker_id=1, listeners=LISTENERS, heartbeat_interval_ms=50) as life,
    ):
        await life.unfenced()
        await cluster.stop(await cluster.leader())
        await cluster.leader()
        await client.create_topics([NewTopic("clicks")])
        assert not life.is_fenced


async def test_ct65_a_heartbeat_follows_at_once_when_the_connection_to_the_controller_breaks(tmp_path: Path) -> None:
    """The controller takes it for dead otherwise, if its listener is not reached."""
    async with admin_cluster(tmp_path) as cluster, client_of(cluster) as client:
        life = BrokerLifecycle(client, broker_id=1, listeners=LISTENERS, heartbeat_interval_ms=600_000)
        async with life:
            await life.unfenced()
            heartbeats = cluster.nodes[1].controller._context.heartbeats
            before_ms = heartbeats.last_contact_ms(1)
            stream = client._sender._stream
            assert stream is not None
            stream._call.cancel()
            await until(lambda: heartbeats.last_contact_ms(1) != before_ms)
            assert client._sender._stream is not stream


async def test_one_that_starts_again_leads_what_it_led(tmp_path: Path) -> None:
    """Its log directory has the same id as before: replicas that are assigned to another are not online."""
    async with admin_cluster(tmp_path) as cluster, client_of(cluster) as client:
        for attempt in range(2):
            async with BrokerLifecycle(client, broker_id=1, listeners=LISTENERS, heartbeat_interval_ms=50) as life:
                await life.unfenced()
                if attempt == 0:
                    await client.create_topics([NewTopic("clicks")])
                (topic,) = (await client.describe_topics(["clicks"])).topics
                assert [partition.leader for partition in topic.partitions] == [1]


async def test_it_outlives_that_all_nodes_are_down_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership_messages, "CONTROLLER_LOST_MS", 0)
    async with (
        admin_cluster(tmp_path) as cluster,
        AdminClient(list(cluster.endpoints.values()), timeout_ms=100) as client,
        BrokerLifecycle(client, broker_id=1, listeners=LISTENERS, heartbeat_interval_ms=20) as life,
    ):
        await life.unfenced()
        with capture_logs() as lines:
            await cluster.stop(1)
            await until(lambda: sum("no node answers" in line.get("reason", "") for line in lines) > 2)
            await cluster.start(1)
            async with client_of(cluster) as patient:
                await patient.create_topics([NewTopic("clicks")])
            await until(lambda: any(line["event"] == CONTROLLER_BACK for line in lines))
        told = [line["event"] for line in lines if line["log_level"] == "warning"]
        assert [of for of in told if "controller" in of] == [
            CONTROLLER_LOST,
            CONTROLLER_BACK,
        ]
        assert await life.shut_down()


async def test_one_that_has_registered_before_waits_for_nodes_that_are_up_later(tmp_path: Path) -> None:
    """As after a power cut: it knows from its directory that there is such a cluster."""
    told: list[str] = []
    async with (
        admin_cluster(tmp_path / "cluster") as cluster,
        AdminClient(list(cluster.endpoints.values()), timeout_ms=100) as client,
    ):
        life = BrokerLifecycle(
            client, broker_id=1, listeners=LISTENERS, data_dir=str(tmp_path / "broker"), tell=told.append
        )
        async with life:
            await life.registered()
        await cluster.stop(1)
        life.start()
        await until(lambda: bool(told))
        assert "waits for its cluster" in told[0]
        await cluster.start(1)
        await life.registered()
        await life.stop()
    assert len(told) == 1


async def test_a_wrong_address_ends_it(tmp_path: Path) -> None:
    async with AdminClient([Endpoint("127.0.0.1", free_port())], timeout_ms=100) as client:
        life = BrokerLifecycle(client, broker_id=1, listeners=LISTENERS)
        life.start()
        with pytest.raises(ApiError) as refused:
            await life.unfenced()
        await life.stop()
    assert refused.value.code is ErrorCode.BROKER_NOT_AVAILABLE


def registered() -> admin_pb2.OperationResult:
    return admin_pb2.OperationResult(register_broker=admin_pb2.RegisterBrokerResponse(broker_epoch=5), end_offset=6)


async def six() -> int:
    return 6


async def test_registrations_and_heartbeats_leave_a_leader_that_hangs_before_their_session_is_over() -> None:
    """However long the client may wait for anything else."""
    async with scripted_nodes() as (node,), AdminClient([node.endpoint], timeout_ms=60_000) as client:
        node.script = [registered(), None]
        life = BrokerLifecycle(client, broker_id=1, listeners=LISTENERS, metadata_offset=six)
        life.start()
        await until(lambda: len(node.received) == 2)
        await life.stop()
    assert [operation.WhichOneof("operation") for operation in node.received] == ["register_broker", "broker_heartbeat"]
    assert all(operation.timeout_ms <= REQUEST_TIMEOUT_MS for operation in node.received)


async def test_a_heartbeat_does_not_wait_for_what_the_broker_has_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraftlog.broker.lifecycle.OFFSET_TIMEOUT_MS", 50)
    offsets: asyncio.Queue[int] = asyncio.Queue()
    offsets.put_nowait(6)
    async with scripted_nodes() as (node,), AdminClient([node.endpoint]) as client:
        node.script = [registered(), executed()]
        life = BrokerLifecycle(
            client, broker_id=1, listeners=LISTENERS, metadata_offset=offsets.get, heartbeat_interval_ms=10
        )
        life.start()
        await until(lambda: len(node.received) == 3)
        await life.stop()
    assert [heartbeat.broker_heartbeat.current_metadata_offset for heartbeat in node.received[1:]] == [6, 6]


async def test_a_node_that_fails_does_not_end_a_broker_that_was_let_in() -> None:
    async with scripted_nodes() as (node,), AdminClient([node.endpoint]) as client:
        node.script = [registered(), refused(ErrorCode.UNKNOWN_SERVER_ERROR), executed()]
        life = BrokerLifecycle(client, broker_id=1, listeners=LISTENERS, metadata_offset=six)
        life.start()
        await life.unfenced()
        await life.stop()
    assert len(node.received) == 3


async def test_a_node_that_fails_ends_a_broker_that_was_never_let_in() -> None:
    async with scripted_nodes() as (node,), AdminClient([node.endpoint]) as client:
        node.script = [refused(ErrorCode.UNKNOWN_SERVER_ERROR)]
        life = BrokerLifecycle(client, broker_id=1, listeners=LISTENERS, metadata_offset=six)
        life.start()
        with pytest.raises(ApiError):
            await life.unfenced()
        await life.stop()
