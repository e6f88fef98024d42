"""The stored quota controller_mutation_rate: which one applies to a client, and what it refuses (CT-20, KIP-599)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.admin.client.client import AdminClient, NewTopic
from kraftlog.controller.controller_config import ControllerConfig
from kraftpb.v1 import admin_pb2
from kraftpb.v1.admin_pb2 import Operation
from kraftpb.v1.metadata_pb2 import QuotaEntity
from statemachine.query.cluster_descriptions import QuotaAlteration, QuotaEntityPart
from tests.kraftlog.admin.admin_nodes import admin_cluster
from tests.statemachine.builders import alive, creatable, create, delete, register
from tests.statemachine.conftest import Bench, errors, execute, memory_bench
from tests.statemachine.waiting import until

SLOW = 0.001
"""Partitions per second: after the first one there is debt for a quarter of an hour."""

THROTTLED = [ErrorCode.THROTTLING_QUOTA_EXCEEDED]


def by(client_id: str, operation: Operation) -> Operation:
    operation.client_id = client_id
    return operation


def limiting(rate: float | None, *, client_id: str | None = None, user: str | None = None) -> Operation:
    """Set or remove the quota of a client id, or of the default; or of a user, whatever the client id."""
    entity = QuotaEntity(entity_type="client-id", entity_name=client_id)
    if user is not None:
        entity = QuotaEntity(entity_type="user", entity_name=user)
    alteration = admin_pb2.ClientQuotaAlteration(entity=[entity], key="controller_mutation_rate", value=rate)
    return Operation(alter_client_quotas=admin_pb2.AlterClientQuotasRequest(alterations=[alteration]))


def growing(topic: str, count: int) -> Operation:
    grown = admin_pb2.PartitionsOfTopic(name=topic, count=count)
    return Operation(create_partitions=admin_pb2.CreatePartitionsRequest(topics=[grown]))


async def limited(bench: Bench, *operations: Operation) -> None:
    """Broker 1, the topic `there`, and quotas."""
    await bench.with_brokers(1)
    await bench.done(create("there"))
    for operation in operations:
        await bench.done(operation)


async def in_debt(bench: Bench, client_id: str) -> str:
    """Why the second topic of a client is refused; empty if it is not."""
    await bench.done(by(client_id, create(f"first-of-{client_id}")))
    result = await bench.run(by(client_id, create(f"second-of-{client_id}")))
    assert errors(result) in ([], THROTTLED)
    return result.create_topics.topics[0].error_message


async def test_ct20_what_comes_to_nothing_costs_nothing(bench: Bench) -> None:
    """Neither what is too much for a batch, nor what the log refuses, puts the client into debt."""
    await limited(bench, limiting(SLOW, client_id="app"))
    too_many = await bench.run(by("app", create(creatable("a", 6_000), creatable("b", 6_000))))
    assert errors(too_many) == [ErrorCode.RECORD_LIST_TOO_LARGE]
    bench.log.refusal = ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too much is pending")
    assert errors(await bench.run(by("app", create("a")))) == THROTTLED
    bench.log.refusal = None
    await bench.done(by("app", create("a")))
    assert errors(await bench.run(by("app", create("b")))) == THROTTLED


@pytest.mark.parametrize("kind", ["create", "grow", "delete"])
async def test_ct20_what_a_client_id_may_do_is_charged_to_its_quota(bench: Bench, kind: str) -> None:
    await limited(bench, limiting(SLOW, client_id="app"))
    operations = {"create": create("more"), "grow": growing("there", 2), "delete": delete("there")}
    await bench.done(by("app", create("first")))
    appended = bench.log.next_append_offset
    result = await bench.run(by("app", operations[kind]))
    (answer,) = [*result.create_topics.topics, *result.create_partitions.topics, *result.delete_topics.topics]
    assert answer.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    for part in ("client 'app'", "the quota controller_mutation_rate of client-id 'app'", "again in", "raised"):
        assert part in answer.error_message
    assert bench.log.next_append_offset == appended
    await bench.done(by("other", operations[kind]))


async def test_ct20_its_own_quota_comes_before_the_default_of_client_ids(bench: Bench) -> None:
    await limited(bench, limiting(SLOW), limiting(1_000, client_id="fast"), limiting(SLOW, user="fast"))
    assert await in_debt(bench, "fast") == ""
    for client_id in ("slow", ""):
        assert "the quota controller_mutation_rate of client-id <default>" in await in_debt(bench, client_id)


async def test_ct20_what_is_stored_comes_before_the_setting(database: Path) -> None:
    config = ControllerConfig(controller_mutation_rate=SLOW)
    async with memory_bench(database, config=config) as bench:
        bench.log.lead()
        await bench.lead()
        await limited(bench, limiting(1_000, client_id="fast"))
        assert await in_debt(bench, "fast") == ""
        assert "the setting controller.mutation.rate" in await in_debt(bench, "slow")


async def test_ct20_a_quota_that_is_altered_holds_from_then_on(bench: Bench) -> None:
    await limited(bench, limiting(SLOW, client_id="app"))
    assert await in_debt(bench, "app") != ""
    await bench.done(limiting(None, client_id="app"))
    await bench.done(by("app", create("second-of-app")))
    await bench.done(limiting(SLOW))
    await bench.done(by("app", create("third-of-app")))
    assert errors(await bench.run(by("app", create("fourth-of-app")))) == THROTTLED


async def test_ct20_a_quota_that_is_not_committed_yet_holds_too(held: Bench) -> None:
    results = await held.submit(
        by("app", create("a")), limiting(SLOW, client_id="app"), by("app", create("b")), by("app", create("c"))
    )
    held.log.commit()
    await held.answered(results, 4)
    assert [errors(result) for result in results] == [[], [], [], THROTTLED]


async def test_ct15_another_leadership_looks_up_what_others_may_have_altered(bench: Bench) -> None:
    """The log that it lost is truncated where its quota was: the quota that it had looked up does not exist."""
    await limited(bench)
    bench.log.auto_commit = False
    results = await bench.submit(limiting(SLOW, client_id="app"), by("app", create("lost")))
    bench.log.auto_commit = True
    bench.log.lose_leadership()
    await until(lambda: len(results) == 2 and not bench.controller.is_active)
    bench.log.lead()
    await bench.lead()
    assert await in_debt(bench, "app") == ""


async def test_nothing_is_looked_up_when_no_quota_was_altered(bench: Bench) -> None:
    await limited(bench, limiting(1_000))
    asked: list[str] = []
    bench.store.reader.set_trace_callback(lambda sql: asked.append(sql) if "client_quotas" in sql else None)
    for number in range(5):
        await bench.done(by("app", create(f"t{number}")))
    assert len(asked) == 2  # for the client id, and for the default
    await bench.done(limiting(2_000, client_id="other"))
    asked.clear()
    await bench.done(by("app", delete("t0")))
    assert asked == []  # both are looked up again, and the overlay has kept them


async def test_ct20_through_grpc_the_message_names_the_client_and_the_quota(tmp_path: Path) -> None:
    slow = QuotaAlteration((QuotaEntityPart("client-id", "reports"),), "controller_mutation_rate", SLOW)
    async with admin_cluster(tmp_path) as cluster:
        endpoints = [cluster.endpoints[1]]
        async with AdminClient(endpoints, client_id="reports") as reports, AdminClient(endpoints) as other:
            controller = cluster.nodes[1].controller
            epoch = (await execute(controller, register(1))).register_broker.broker_epoch
            await execute(controller, alive(1, epoch))
            await other.alter_client_quotas([slow])
            await reports.create_topics([NewTopic("a")])
            with pytest.raises(ApiError) as failure:
                await reports.create_topics([NewTopic("b")])
            assert failure.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
            for part in ("'b'", "'reports'", "controller_mutation_rate of client-id 'reports'", "again in"):
                assert part in str(failure.value)
            await other.create_topics([NewTopic("b")])
