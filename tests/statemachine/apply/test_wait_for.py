"""An acknowledged operation returns an offset, and a client waits for it at the node from which it reads."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.runtime import OnDone, Timer
from kraftbase.types import Offset
from kraftlog.admin.client import node_reader
from kraftlog.admin.client.client import AdminClient
from kraftpb.v1 import admin_pb2
from kraftpb.v1.metadata_pb2 import QuotaEntity
from raft.core.types import Batch
from statemachine.apply.machine import MetadataMachine
from statemachine.words.limits import NOTHING_WRITTEN
from tests.kraftlog.admin.admin_nodes import AdminCluster, admin_cluster
from tests.raft.nodes import free_port
from tests.statemachine.builders import alter, alteration, register
from tests.statemachine.waiting import until

OBSERVER = 4


class Held:
    """Keeps a node from applying anything until the test releases it, and counts the requests that wait for that."""

    def __init__(self, machine: MetadataMachine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.goes_on = asyncio.Event()
        self.waits = 0
        handle_commit, wait_applied = machine.handle_commit, machine.wait_applied

        async def wait_and_apply(batches: tuple[Batch, ...], on_done: OnDone) -> None:
            await self.goes_on.wait()
            handle_commit(batches, on_done)

        def hold(batches: tuple[Batch, ...], on_done: OnDone) -> None:
            self._held = asyncio.create_task(wait_and_apply(batches, on_done))

        def count_and_wait(end_offset: Offset, timeout_ms: float, on_done: OnDone) -> Timer | None:
            self.waits += end_offset > machine.applied_end_offset
            return wait_applied(end_offset, timeout_ms, on_done)

        monkeypatch.setattr(machine, "handle_commit", hold)
        monkeypatch.setattr(machine, "wait_applied", count_and_wait)

    async def has_waits(self, count: int = 1) -> None:
        """Wait until this many requests have arrived that have to wait."""
        await until(lambda: self.waits >= count)


def client_at(cluster: AdminCluster, node_id: int, timeout_ms: int = 20_000) -> AdminClient:
    return AdminClient([cluster.endpoints[node_id]], timeout_ms=timeout_ms)


async def change(client: AdminClient, broker_id: int) -> int:
    """Register a broker; returns the offset to wait for."""
    result = await client.execute(register(broker_id))
    assert result.error_code == 0
    return result.end_offset


def limit_user() -> admin_pb2.Operation:
    entity = [QuotaEntity(entity_type="user", entity_name="u")]
    wanted = admin_pb2.ClientQuotaAlteration(entity=entity, key="producer_byte_rate", value=5)
    return admin_pb2.Operation(alter_client_quotas=admin_pb2.AlterClientQuotasRequest(alterations=[wanted]))


async def brokers_at(client: AdminClient) -> list[int]:
    """Which brokers a node knows of, without waiting for anything."""
    return [broker.broker_id for broker in (await client.list_brokers()).brokers]


async def test_reads_are_as_new_as_what_was_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with admin_cluster(tmp_path, voter_count=3, observer_count=1) as cluster:
        held = Held(cluster.nodes[OBSERVER].machine, monkeypatch)
        async with client_at(cluster, 1) as changing, client_at(cluster, OBSERVER) as reading:
            end_offset = await change(changing, 7)
            assert changing.last_end_offset == end_offset > 0
            assert await brokers_at(reading) == []
            waiting = asyncio.create_task(reading.wait_for(end_offset))
            await held.has_waits()
            assert not waiting.done()
            held.goes_on.set()
            assert await waiting >= end_offset
            assert await brokers_at(reading) == [7]


async def test_another_node_than_the_one_that_is_read_from_can_be_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with admin_cluster(tmp_path, voter_count=3, observer_count=1) as cluster:
        held = Held(cluster.nodes[OBSERVER].machine, monkeypatch)
        async with client_at(cluster, 1) as client:
            end_offset = await change(client, 7)
            assert await client.wait_for(end_offset) >= end_offset  # at node 1
            waiting = asyncio.create_task(client.wait_for(end_offset, at=cluster.endpoints[OBSERVER]))
            await held.has_waits()
            assert not waiting.done()
            held.goes_on.set()
            await waiting
            assert cluster.nodes[OBSERVER].store.applied_end_offset >= end_offset


async def test_later_reads_wait_too_whichever_node_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with admin_cluster(tmp_path, observer_count=1) as cluster:
        held = Held(cluster.nodes[2].machine, monkeypatch)
        async with client_at(cluster, 1) as changing, client_at(cluster, 2) as reading:
            end_offset = await change(changing, 7)
            await reading.wait_for(end_offset, at=cluster.endpoints[1])
            listing = asyncio.create_task(brokers_at(reading))
            await held.has_waits()
            assert not listing.done()
            held.goes_on.set()
            assert await listing == [7]


async def test_a_wait_goes_on_when_a_single_read_has_waited_long_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraftlog.admin.client.node_reader.READ_SECONDS_MAX", 0.05)
    async with admin_cluster(tmp_path, observer_count=1) as cluster:
        held = Held(cluster.nodes[2].machine, monkeypatch)
        async with client_at(cluster, 1) as changing, client_at(cluster, 2) as reading:
            end_offset = await change(changing, 7)
            waiting = asyncio.create_task(reading.wait_for(end_offset))
            await held.has_waits(3)
            assert not waiting.done()
            held.goes_on.set()
            assert await waiting >= end_offset


async def test_a_wait_that_is_too_long_says_how_far_the_node_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with admin_cluster(tmp_path) as cluster, client_at(cluster, 1) as client:
        end_offset = await change(client, 7)
        words = f"applied end offset of the node is {end_offset}, below {end_offset + 9}; wait longer"
        with pytest.raises(ApiError, match=words) as late:
            await client.wait_for(end_offset + 9, timeout_ms=1_000)
        assert late.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert client.last_end_offset == end_offset
        assert await brokers_at(client) == [7]  # which waits for no offset that may never come


async def test_a_node_that_does_not_answer_cannot_be_waited_for(tmp_path: Path) -> None:
    async with admin_cluster(tmp_path) as cluster, client_at(cluster, 1) as client:
        with pytest.raises(ApiError) as nobody:
            await client.wait_for(1, at=Endpoint("127.0.0.1", free_port()), timeout_ms=200)
        assert nobody.value.code is ErrorCode.BROKER_NOT_AVAILABLE


async def test_there_is_nothing_to_wait_for_when_nothing_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with admin_cluster(tmp_path, observer_count=1) as cluster:
        held = Held(cluster.nodes[2].machine, monkeypatch)
        async with client_at(cluster, 1) as client:
            setting = alteration("1", "log.retention.ms", "5", resource_type=4)
            dry_run: admin_pb2.OperationResult = await client.execute(alter(setting, validate_only=True))
            assert dry_run.end_offset == NOTHING_WRITTEN
            await client.wait_for(dry_run.end_offset, at=cluster.endpoints[2])
        assert held.waits == 0
        held.goes_on.set()


async def test_who_finds_a_change_made_already_reads_it_at_a_node_that_lags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_reader.random, "randrange", lambda _: 0)  # it begins at the observer
    async with admin_cluster(tmp_path, voter_count=3, observer_count=1) as cluster:
        held = Held(cluster.nodes[OBSERVER].machine, monkeypatch)
        addresses = [cluster.endpoints[OBSERVER], cluster.endpoints[1]]
        async with client_at(cluster, 1) as first, AdminClient(addresses, timeout_ms=20_000) as second:
            wrote, found = await first.execute(limit_user()), await second.execute(limit_user())
            assert (found.error_code, found.end_offset) == (ErrorCode.NONE, NOTHING_WRITTEN)
            assert second.last_end_offset == found.state_end_offset >= wrote.end_offset > 0
            reading = asyncio.create_task(second.query("SELECT value FROM client_quotas"))
            await held.has_waits()
            assert not reading.done()
            held.goes_on.set()
            assert [row[0] for row in (await reading).rows] == [5.0]


async def test_a_broker_whose_node_lags_is_heard_all_the_same(tmp_path: Path) -> None:
    async with admin_cluster(tmp_path) as cluster, client_at(cluster, 1) as changing, client_at(cluster, 1) as broker:
        epoch = await broker.register_broker(7, [("PLAINTEXT", "localhost", 9092)])
        await broker.broker_heartbeat(7, epoch, epoch + 1)
        unfenced_at = broker.last_end_offset
        assert await change(changing, 8) > unfenced_at > epoch
        await broker.broker_heartbeat(7, epoch, epoch + 1)
        assert (
            broker.last_end_offset == unfenced_at
        )  # the client changed nothing, and its next read needs no newer node
