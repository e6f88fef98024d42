"""Whatever values a request has, it is answered or its connection is closed; the next one is served as before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraftbase.errors import ErrorCode
from kraftlog.broker.apis.coordinators import FindCoordinatorApi, OffsetFetchApi
from kraftlog.broker.apis.delete_records import DeleteRecordsApi
from kraftlog.broker.apis.init_producer_id import InitProducerIdApi
from kraftlog.broker.apis.logs import DescribeLogDirsApi
from kraftlog.broker.apis.metrics import DescribeMetricsApi
from kraftlog.broker.apis.replicas import DescribeReplicasApi
from kraftlog.broker.apis.scram_credentials import DescribeUserScramCredentialsApi
from kraftlog.broker.apis.services import DiskSpace
from kraftlog.broker.dispatch import Dispatch
from kraftlog.broker.producer_ids import ProducerIds
from kraftlog.kafka.apis import api_of
from kraftlog.kafka.notation import Struct
from kraftlog.network.requests import ConnectionRefused
from kraftlog.telemetry.registry import Registry
from tests.effort import examples
from tests.kraftlog.broker.broker_world import BrokerWorld, registration, replicas, topic
from tests.kraftlog.broker.services import services
from tests.kraftlog.kafka.values import modest_values, values
from tests.kraftlog.storage.builders import batch
from tests.statemachine.builders import an_id

NAMES = {"name", "topic", "topic_name"}
INDEXES = {"index", "partition", "partition_index"}


def dispatch_of(world: BrokerWorld) -> Dispatch:
    return Dispatch(
        {
            "Produce": world.produce.handle,
            "Fetch": world.fetch.handle,
            "ListOffsets": world.list_offsets.handle,
            "Metadata": world.metadata.handle,
            "FindCoordinator": FindCoordinatorApi(world.services).handle,
            "OffsetFetch": OffsetFetchApi(world.services).handle,
            "DeleteRecords": DeleteRecordsApi(world.services).handle,
            "InitProducerId": InitProducerIdApi(services(producer_ids=ProducerIds(lambda: None))).handle,
            "OffsetForLeaderEpoch": world.epoch_ends.handle,
            "DescribeLogDirs": DescribeLogDirsApi(replace(world.services, disk_space=lambda path: DiskSpace())).handle,
            "DescribeCluster": world.describe_cluster.handle,
            "DescribeTopicPartitions": world.describe_topics.handle,
            "DescribeUserScramCredentials": DescribeUserScramCredentialsApi(world.services).handle,
            "DescribeReplicas": DescribeReplicasApi(world.services).handle,
            "DescribeMetrics": DescribeMetricsApi(services(registry=Registry(), count_metrics=lambda: iter(()))).handle,
        },
        world.cluster,
    )


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    """A broker that leads in one partition, and follows in another."""
    return BrokerWorld(
        tmp_path, [registration(1), registration(2), topic("clicks"), replicas()],
        [replicas(index=1, on=[1, 2], leader=2, epoch=5)],
    )  # fmt: skip


def structs_in(value: Any) -> Iterator[Struct]:
    """A message and all that is in it."""
    if isinstance(value, tuple):
        for one in value:
            yield from structs_in(one)
    elif isinstance(value, Struct):
        yield value
        for field in value.FIELDS:
            yield from structs_in(getattr(value, field.name))


def aim(body: Struct) -> None:
    """Have most of what a request names be there."""
    for struct in structs_in(body):
        for field in struct.FIELDS:
            name, value = field.name, getattr(struct, field.name)
            if name in NAMES and isinstance(value, str) and len(value) % 4:
                setattr(struct, name, "clicks")
            elif name == "topic_id" and value[-1] % 4:
                setattr(struct, name, an_id(1))
            elif name in INDEXES:
                setattr(struct, name, value % 3)


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_request_is_answered_or_closes_its_connection(world: BrokerWorld, data: st.DataObject) -> None:
    dispatch = dispatch_of(world)
    key = data.draw(st.sampled_from(sorted(dispatch.offered)))
    version = data.draw(st.sampled_from(list(dispatch.offered[key])))
    make = data.draw(st.sampled_from([values, modest_values]))
    body = data.draw(make(api_of(key).request, version))
    aim(body)
    world.answers.clear()
    try:
        world.ask(dispatch.handle, body, version)
    except ConnectionRefused:
        assert key == 0
    else:
        world.runtime.run()
        world.runtime.expire()
        world.partitions.check_logs()
        assert len(world.answers) == (0 if key == 22 and not world.answers else 1)
    end_offset = world.high_watermark()
    world.send((0, batch(1)))
    world.runtime.run()
    assert [(part.error_code, part.base_offset) for part in world.produced()] == [(ErrorCode.NONE, end_offset)]
