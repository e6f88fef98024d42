"""Metadata, DescribeTopicPartitions and DescribeCluster: what clients learn of the cluster (DB-98)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.broker.apis.metadata import MetadataApi
from kraftlog.kafka.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kraftlog.kafka.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from kraftlog.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from tests.kraftlog.broker.broker_world import BrokerWorld, registration, replicas, topic
from tests.kraftlog.storage.builders import CLUSTER_ID
from tests.statemachine.builders import an_id, remove_topic

VERSIONS = range(14)
NOT_ASKED = -(2**31)
FENCED = 4
"""The broker that is fenced; broker 3 has no listener for clients, broker 9 is not registered."""
REACHABLE_BY_ALL, LED_WITHOUT_LISTENER, LED_BY_NOBODY, PARTLY_GONE = range(4)


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    """Two topics, in which everything is wrong that can be."""
    return BrokerWorld(
        tmp_path,
        [registration(1), registration(2), registration(3, listeners={"INTERNAL": 1}), registration(4, fenced=True)],
        [
            topic("clicks"),
            topic("views", 2),
            replicas(index=REACHABLE_BY_ALL, on=[2, 1]),
            replicas(index=LED_WITHOUT_LISTENER, on=[3, 1]),
            replicas(index=LED_BY_NOBODY, on=[4, 1], isr=[4], leader=-1),
            replicas(index=PARTLY_GONE, on=[1, 3, 4, 9], isr=[1, 3]),
            replicas(2, on=[2]),
        ],
    )


def asked(
    world: BrokerWorld, version: int, *names: str, ids: tuple[bytes, ...] = (), wants_all: bool = False
) -> MetadataResponse:
    """What Metadata says of some topics, or of all."""
    topics = (
        *(MetadataRequestTopic(name=name) for name in names),
        *(MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in ids),
    )
    body = MetadataRequest(topics=None if wants_all else topics)
    return world.answer_to(world.metadata.handle, body, version, MetadataResponse)


def partitions(world: BrokerWorld, version: int) -> tuple[MetadataResponsePartition, ...]:
    (found,) = asked(world, version, "clicks").topics
    return found.partitions


@pytest.mark.parametrize("version", VERSIONS)
def test_the_living_brokers_with_the_listener_are_named_with_the_cluster(world: BrokerWorld, version: int) -> None:
    response = asked(world, version, "clicks")
    assert [(node.node_id, node.host, node.port) for node in response.brokers] == [
        (1, "host1", 9093),
        (2, "host2", 9094),
    ]
    assert response.controller_id == (1 if version >= 1 else -1)
    assert response.cluster_id == (CLUSTER_ID if version >= 2 else None)
    assert response.cluster_authorized_operations == NOT_ASKED


@pytest.mark.parametrize("version", VERSIONS)
def test_leaders_and_the_reasons_why_there_are_none(world: BrokerWorld, version: int) -> None:
    led = [(part.leader_id, part.error_code) for part in partitions(world, version)]
    assert led == [
        (2, ErrorCode.NONE),
        (-1, ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE),
        (-1, ErrorCode.LEADER_NOT_AVAILABLE),
        (1, ErrorCode.NONE if version else ErrorCode.REPLICA_NOT_AVAILABLE),
    ]


def test_db98_a_leader_that_has_closed_its_connection_is_not_named_until_it_answers_again(world: BrokerWorld) -> None:
    before = partitions(world, 13)
    assert before[0].leader_id == 2
    world.cluster.doubt(2)
    doubted = partitions(world, 13)
    assert (doubted[0].leader_id, doubted[0].error_code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
    assert doubted[1:] == before[1:]
    world.cluster.trust(2)
    assert partitions(world, 13) == before


@pytest.mark.parametrize("version", VERSIONS)
def test_replicas_that_clients_cannot_reach_are_offline_and_in_version_0_left_out(
    world: BrokerWorld, version: int
) -> None:
    part = partitions(world, version)[PARTLY_GONE]
    assert part.replica_nodes == ((1, 3, 4, 9) if version else (1,))
    assert part.isr_nodes == ((1, 3) if version else (1,))
    assert part.offline_replicas == ((3, 4, 9) if version >= 5 else ())


def test_a_replica_in_a_directory_that_its_broker_has_lost_is_offline(tmp_path: Path) -> None:
    world = BrokerWorld(
        tmp_path,
        [registration(1, log_dirs=[an_id(1)]), topic("clicks")],
        [replicas(index=0, directory=an_id(1)), replicas(index=1, directory=an_id(2))],
    )
    assert [part.offline_replicas for part in partitions(world, 13)] == [(), (1,)]
    world.commit(registration(1))
    assert [part.offline_replicas for part in partitions(world, 13)] == [(), ()]


@pytest.mark.parametrize("version", VERSIONS)
def test_all_topics_none_or_some(world: BrokerWorld, version: int) -> None:
    if version:
        assert [found.name for found in asked(world, version, wants_all=True).topics] == ["clicks", "views"]
    assert [found.name for found in asked(world, version).topics] == ([] if version else ["clicks", "views"])
    some = asked(world, version, "views", "none", "views", "no good").topics
    assert [(found.name, found.error_code) for found in some] == [
        ("views", ErrorCode.NONE),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("no good", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]


def test_topics_by_their_ids_from_version_12_on(world: BrokerWorld) -> None:
    found = asked(world, 12, ids=(an_id(2), an_id(7))).topics
    assert [(one.name, one.topic_id, one.error_code) for one in found] == [
        ("views", an_id(2), ErrorCode.NONE),
        (None, an_id(7), ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    for version in (10, 11):
        refused = asked(world, version, "clicks", ids=(an_id(2),)).topics
        assert [(one.name, one.error_code) for one in refused] == [
            ("clicks", ErrorCode.INVALID_REQUEST),
            ("", ErrorCode.INVALID_REQUEST),
        ]


def test_answers_follow_the_metadata(world: BrokerWorld) -> None:
    asked(world, 13, wants_all=True)
    world.commit(replicas(2, on=[2], leader=-1, epoch=1))
    (views,) = asked(world, 13, "views").topics
    assert [part.leader_id for part in views.partitions] == [-1]
    world.commit(registration(2, fenced=True))
    assert partitions(world, 13)[REACHABLE_BY_ALL].leader_id == -1
    world.commit(remove_topic(2), topic("views", 3), replicas(3))
    (views,) = asked(world, 13, "views").topics
    assert (views.topic_id, [part.leader_id for part in views.partitions]) == (an_id(3), [1])
    (gone,) = asked(world, 13, ids=(an_id(2),)).topics
    assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_operations_are_told_to_those_who_ask(world: BrokerWorld) -> None:
    body = MetadataRequest(
        topics=(MetadataRequestTopic(name="views"),), include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )  # fmt: skip
    response = world.answer_to(world.metadata.handle, body, 10, MetadataResponse)
    assert response.cluster_authorized_operations > 0
    assert [found.topic_authorized_operations > 0 for found in response.topics] == [True]


class Wishes:
    """Notes which topics are to be made."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def create(self, name: str) -> None:
        self.names.append(name)


@pytest.mark.parametrize("allows", [True, False])
def test_a_topic_is_made_for_a_client_that_allows_it_if_it_may_have_that_name(world: BrokerWorld, allows: bool) -> None:
    wishes = Wishes()
    names = ("none", "no good", "views", "__cluster_metadata")
    body = MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=name) for name in names), allow_auto_topic_creation=allows
    )
    response = world.answer_to(
        MetadataApi(replace(world.services, auto_create=wishes)).handle, body, 13, MetadataResponse
    )
    assert [found.error_code for found in response.topics] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert wishes.names == (["none"] if allows else [])


# --- DescribeTopicPartitions ------------------------------------------------------------------------------------------


def described(
    world: BrokerWorld, *names: str, limit: int = 2_000, cursor: Cursor | None = None
) -> DescribeTopicPartitionsResponse:
    topics = tuple(TopicRequest(name=name) for name in names)
    body = DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor)
    return world.answer_to(world.describe_topics.handle, body, 0, DescribeTopicPartitionsResponse)


def pages(world: BrokerWorld, limit: int, *names: str) -> list[list[tuple[str | None, list[int]]]]:
    """All pages of an answer, each topic with its partitions."""
    found = []
    cursor: Cursor | None = None
    while True:
        response = described(world, *names, limit=limit, cursor=cursor)
        found.append([(one.name, [part.partition_index for part in one.partitions]) for one in response.topics])
        cursor = response.next_cursor
        if cursor is None:
            return found


@pytest.mark.parametrize("names", [(), ("views", "clicks", "clicks")])
def test_partitions_come_in_pages(world: BrokerWorld, names: tuple[str, ...]) -> None:
    assert pages(world, 2_000, *names) == [[("clicks", [0, 1, 2, 3]), ("views", [0])]]
    assert pages(world, 3, *names) == [[("clicks", [0, 1, 2])], [("clicks", [3]), ("views", [0])]]
    assert pages(world, 4, *names) == [[("clicks", [0, 1, 2, 3])], [("views", [0])]]
    assert pages(world, 0, *names) == [[("clicks", [at])] for at in range(4)] + [[("views", [0])]]


def test_topics_that_are_not_there_are_named_if_they_were_asked_for(world: BrokerWorld) -> None:
    found = described(world, "none", "no good", "views").topics
    assert [(one.name, one.error_code) for one in found] == [
        ("no good", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("views", ErrorCode.NONE),
    ]
    after = described(world, cursor=Cursor(topic_name="d", partition_index=0))
    assert [one.name for one in after.topics] == ["views"]
    beyond = described(world, cursor=Cursor(topic_name="clicks", partition_index=2**31 - 1))
    assert [(one.name, len(one.partitions)) for one in beyond.topics] == [("clicks", 0), ("views", 1)]


@pytest.mark.parametrize("cursor", [Cursor(topic_name="views", partition_index=-1), Cursor(topic_name="a")])
def test_a_cursor_that_no_answer_gave_is_refused(world: BrokerWorld, cursor: Cursor) -> None:
    response = described(world, "clicks", "views", cursor=cursor)
    assert [one.error_code for one in response.topics] == [ErrorCode.INVALID_REQUEST] * 2
    assert response.next_cursor is None


def test_a_partition_is_described_with_its_leader_and_what_is_offline(world: BrokerWorld) -> None:
    (found, _) = described(world).topics
    assert [(part.leader_id, part.offline_replicas, part.error_code) for part in found.partitions] == [
        (2, (), ErrorCode.NONE),
        (-1, (3,), ErrorCode.NONE),
        (-1, (4,), ErrorCode.NONE),
        (1, (3, 4, 9), ErrorCode.NONE),
    ]


# --- DescribeCluster --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_cluster_is_described_by_its_living_brokers(world: BrokerWorld, version: int) -> None:
    response = world.answer_to(
        world.describe_cluster.handle, DescribeClusterRequest(), version, DescribeClusterResponse
    )  # fmt: skip
    assert (response.error_code, response.cluster_id, response.controller_id) == (ErrorCode.NONE, CLUSTER_ID, 1)
    assert [one.broker_id for one in response.brokers] == [1, 2]
    assert response.cluster_authorized_operations == NOT_ASKED


def test_fenced_brokers_are_described_if_they_are_asked_for(world: BrokerWorld) -> None:
    body = DescribeClusterRequest(include_fenced_brokers=True, include_cluster_authorized_operations=True)
    response = world.answer_to(world.describe_cluster.handle, body, 2, DescribeClusterResponse)
    assert [(one.broker_id, one.is_fenced) for one in response.brokers] == [(1, False), (2, False), (4, True)]
    assert response.cluster_authorized_operations > 0


@pytest.mark.parametrize(
    ("endpoint_type", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_a_broker_describes_no_controllers(world: BrokerWorld, endpoint_type: int, code: ErrorCode) -> None:
    body = DescribeClusterRequest(endpoint_type=endpoint_type)
    response = world.answer_to(world.describe_cluster.handle, body, 1, DescribeClusterResponse)
    assert (response.error_code, response.brokers) == (code, ())
