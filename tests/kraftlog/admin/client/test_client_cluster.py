"""The admin client against whole nodes: everything it offers, and a leader that stops."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Offset
from kraftbase.uuids import random_uuid, uuid_to_text
from kraftlog.admin.client.client import AdminClient, Alteration, BrokerListener, NewTopic
from kraftlog.controller.controller_config import ControllerConfig
from kraftlog.controller.overlay import Overlay
from kraftpb.v1.admin_pb2 import QueryResponse
from raft.core.types import StateDigest
from statemachine.query.descriptions import ConfigValue
from statemachine.replay.replay import ReplayError
from statemachine.store.store import MetadataStore
from tests.kraftlog.admin.admin_nodes import AdminCluster, admin_cluster
from tests.statemachine.builders import BROKER, TOPIC, create
from tests.statemachine.machines import wait_applied
from tests.statemachine.store.test_sql import ENDLESS


def client_of(cluster: AdminCluster, *node_ids: int, timeout_ms: int = 20_000) -> AdminClient:
    return AdminClient([cluster.endpoints[node_id] for node_id in node_ids or (1,)], timeout_ms=timeout_ms)


async def unfenced_broker(client: AdminClient) -> None:
    """Broker 1, registered and alive."""
    epoch = await client.register_broker(1, [("PLAINTEXT", "localhost", 9092)])
    await client.broker_heartbeat(1, epoch, epoch + 1)


async def test_topics_are_created_described_listed_and_deleted(tmp_path: Path) -> None:
    async with admin_cluster(tmp_path) as cluster, client_of(cluster) as client:
        await unfenced_broker(client)
        created = await client.create_topics(
            [
                NewTopic("counted", num_partitions=2, replication_factor=1, configs={"retention.ms": "5"}),
                NewTopic("assigned", assignments={0: [1], 1: [1]}),
            ]
        )
        assert [(topic.name, topic.num_partitions, topic.replication_factor) for topic in created] == [
            ("counted", 2, 1),
            ("assigned", 2, 1),
        ]
        described = await client.describe_topics(["counted"], topic_ids=[created[1].topic_id])
        assert [topic.name for topic in described.topics] == ["counted", "assigned"]
        assert [partition.leader for partition in described.topics[0].partitions] == [1, 1]
        assert described.topics[0].configs == (ConfigValue("retention.ms", "5"),)
        assert [topic.name for topic in (await client.list_topics()).topics] == ["assigned", "counted"]
        await client.delete_topics(["counted"], topic_ids=[created[1].topic_id])
        assert (await client.describe_topics()).topics == ()
        with pytest.raises(ApiError) as failure:
            await client.describe_topics(["counted"])
        assert failure.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_ct18_records_that_cannot_be_replayed_are_not_written_and_end_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with admin_cluster(tmp_path) as cluster, client_of(cluster, timeout_ms=500) as client:
        await unfenced_broker(client)
        faults: list[BaseException] = []
        monkeypatch.setattr(cluster.nodes[1].node, "_on_fatal", faults.append)
        with monkeypatch.context() as patch:
            patch.setattr(Overlay, "replay", not_replayed)
            with pytest.raises(ApiError):
                await client.create_topics([NewTopic("a", num_partitions=1, replication_factor=1)])
        assert faults == []
        await client.wait_for(client.last_end_offset)
        assert (await client.list_topics()).topics == ()


def not_replayed(*_: object) -> None:
    raise ReplayError("a record cannot be replayed")


async def test_validate_only_tells_what_would_be_and_changes_nothing(tmp_path: Path) -> None:
    async with admin_cluster(tmp_path) as cluster, client_of(cluster) as client:
        await unfenced_broker(client)
        (topic,) = await client.create_topics([NewTopic("a")], validate_only=True)
        assert (topic.num_partitions, topic.replication_factor) == (1, 1)
        await client.alter_configs([Alteration(BROKER, "1", "num.partitions", "2")], validate_only=True)
        assert (await client.list_topics()).topics == ()
        assert (await client.describe_configs(BROKER, "1")).configs == ()


async def test_brokers_are_registered_and_listed(tmp_path: Path) -> None:
    async with admin_cluster(tmp_path) as cluster, client_of(cluster) as client:
        ids = [uuid_to_text(random_uuid()) for _ in range(2)]
        epoch = await client.register_broker(
            3,
            [BrokerListener("SSL", "broker.example", 9093, 1)],
            rack="r1",
            cluster_id=cluster.cluster_id,
            incarnation_id=ids[0],
            log_dirs=[ids[1]],
        )
        (broker,) = (await client.list_brokers()).brokers
        assert (broker.broker_id, broker.broker_epoch, broker.rack) == (3, epoch, "r1")
        assert (broker.incarnation_id, broker.log_dirs) == (ids[0], (ids[1],))
        assert broker.listeners == (BrokerListener("SSL", "broker.example", 9093, 1),)
        with pytest.raises(ApiError) as failure:
            await client.register_broker(4, [("PLAINTEXT", "localhost", 9092)], cluster_id="another")
        assert failure.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID


async def test_configs_are_set_removed_and_described(tmp_path: Path) -> None:
    async with admin_cluster(tmp_path) as cluster, client_of(cluster) as client:
        await unfenced_broker(client)
        await client.create_topics([NewTopic("t")])
        await client.alter_configs(
            [
                Alteration(TOPIC, "t", "retention.ms", "5"),
                Alteration(TOPIC, "t", "segment.ms", "6"),
                Alteration(BROKER, "", "num.partitions", "2"),
            ]
        )
        await client.alter_configs([Alteration(TOPIC, "t", "segment.ms", None)])
        assert (await client.describe_configs(TOPIC, "t")).configs == (ConfigValue("retention.ms", "5"),)
        assert (await client.describe_configs(BROKER, "")).configs == (ConfigValue("num.partitions", "2"),)
        with pytest.raises(ApiError) as failure:
            await client.alter_configs([Alteration(TOPIC, "t", "retention.ms", "soon")])
        assert failure.value.code is ErrorCode.INVALID_CONFIG


async def test_what_an_unregistered_broker_leaves_behind_is_described_until_it_is_deleted(tmp_path: Path) -> None:
    async with admin_cluster(tmp_path) as cluster, client_of(cluster) as client:
        await unfenced_broker(client)
        await client.alter_configs([Alteration(BROKER, "1", "num.io.threads", "3")])
        await client.unregister_broker(1)
        assert (await client.describe_configs(BROKER, "1")).configs == (ConfigValue("num.io.threads", "3"),)
        await client.alter_configs([Alteration(BROKER, "1", "num.io.threads", None)])
        for broker_id in ("1", "2"):
            with pytest.raises(ApiError, match=f"broker {broker_id} is not registered") as failure:
                await client.describe_configs(BROKER, broker_id)
            assert failure.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


async def test_ct20_each_client_has_a_mutation_quota_of_its_own(tmp_path: Path) -> None:
    config = ControllerConfig(controller_mutation_rate=0.001, controller_mutation_burst=1)
    async with admin_cluster(tmp_path, config=config) as cluster:
        endpoints = [cluster.endpoints[1]]
        async with AdminClient(endpoints, client_id="busy") as busy, AdminClient(endpoints, client_id="idle") as idle:
            await unfenced_broker(busy)
            await busy.create_topics([NewTopic("a", num_partitions=5)])
            with pytest.raises(ApiError, match="'b'") as failure:
                await busy.create_topics([NewTopic("b")])
            assert failure.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
            await idle.create_topics([NewTopic("c")])


async def test_a_client_of_an_observer_reads_its_own_writes_there(tmp_path: Path) -> None:
    async with admin_cluster(tmp_path, observer_count=1) as cluster, client_of(cluster, 2) as client:
        await unfenced_broker(client)
        for number in range(10):
            await client.create_topics([NewTopic(f"t{number}")])
            assert len((await client.list_topics()).topics) == number + 1


async def test_when_the_leader_stops_the_client_goes_on_with_the_next(tmp_path: Path) -> None:
    async with admin_cluster(tmp_path, voter_count=3) as cluster:
        async with client_of(cluster, 1, 2, 3) as client:
            await unfenced_broker(client)
            acknowledged: list[str] = []
            stop = asyncio.Event()

            async def write() -> None:
                number = 0
                while not stop.is_set():
                    number += 1
                    try:
                        await client.create_topics([NewTopic(f"t{number}")])
                    except ApiError:
                        continue
                    acknowledged.append(f"t{number}")

            async def acknowledges_more() -> None:
                wanted = len(acknowledged) + 5
                while len(acknowledged) < wanted:
                    await asyncio.sleep(0.001)

            writing = asyncio.create_task(write())
            async with asyncio.timeout(100):
                await acknowledges_more()
                await cluster.stop(await cluster.leader())
                await acknowledges_more()
            stop.set()
            await writing
            listed = {topic.name for topic in (await client.list_topics()).topics}
        assert set(acknowledged) <= listed
        end_offset = cluster.nodes[await cluster.leader()].machine.applied_end_offset
        for node in cluster.nodes.values():
            await wait_applied(node.machine, end_offset, 20_000)
        assert len({node.store.applied.digest for node in cluster.nodes.values()}) == 1


async def test_a_node_that_was_away_comes_to_the_same_state(tmp_path: Path) -> None:
    async with admin_cluster(tmp_path, voter_count=1, observer_count=1) as cluster, client_of(cluster) as client:
        await unfenced_broker(client)
        await cluster.stop(2)
        results = await asyncio.gather(*(client.execute(create(f"t{number}")) for number in range(100)))
        returned = await cluster.start(2)
        await wait_applied(returned.machine, Offset(max(result.end_offset for result in results)), 20_000)
        assert returned.store.applied == cluster.nodes[1].store.applied


async def test_reads_go_to_another_node_when_the_first_is_fenced(tmp_path: Path) -> None:
    async with admin_cluster(tmp_path, observer_count=1) as cluster:
        cluster.nodes[2].machine.fence(StateDigest(Offset(1), bytes(16)), StateDigest(Offset(1), bytes([7]) * 16))
        async with client_of(cluster, 2, 1) as client:
            assert (await client.list_topics()).topics == ()
        async with client_of(cluster, 2) as client:
            with pytest.raises(ApiError, match="its database is rebuilt") as failure:
                await client.list_topics()
            assert failure.value.code is ErrorCode.KAFKA_STORAGE_ERROR


# --- queries ----------------------------------------------------------------------------------------------------------


async def test_a_query_may_take_longer_than_another_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraftlog.admin.client.node_reader.READ_SECONDS_MAX", 0.001)
    async with admin_cluster(tmp_path) as cluster, client_of(cluster, timeout_ms=60_000) as client:
        answer = await client.query(f"{ENDLESS} count(*) FROM (SELECT x FROM n LIMIT 100000)")
        assert list(answer.rows) == [(100_000,)]


async def test_a_node_says_itself_that_a_query_took_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraftlog.admin.client.node_reader.READ_SECONDS_MAX", 0.02)
    monkeypatch.setattr("kraftlog.admin.server.service.STATEMENT_SECONDS_MAX", 0.1)
    async with admin_cluster(tmp_path) as cluster, client_of(cluster) as client:
        with pytest.raises(ApiError, match=r"the query took longer than 0\.1 s; ask for less"):
            await client.query(f"{ENDLESS} count(*) FROM n")


async def test_a_query_that_nobody_waits_for_any_more_is_not_run_on_the_next_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries: list[str] = []
    run = MetadataStore.run_statement

    async def run_statement(store: MetadataStore, sql: str, timeout_seconds: float) -> list[QueryResponse]:
        queries.append(sql)
        return await run(store, sql, timeout_seconds)

    monkeypatch.setattr(MetadataStore, "run_statement", run_statement)
    async with admin_cluster(tmp_path, voter_count=3) as cluster:
        async with client_of(cluster, 1, 2, 3, timeout_ms=1_000) as client:
            with pytest.raises(ApiError, match=r"has not answered the query in [\d.]+ s; ask for less") as late:
                await client.query(f"{ENDLESS} count(*) FROM n")
        assert late.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert len(queries) <= 1  # none where the machine is so busy that it did not begin in time
