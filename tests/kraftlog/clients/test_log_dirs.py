"""What brokers say of their log directories, as rows."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ErrorCode
from kraftlog.kafka.connections import Request
from kraftlog.kafka.messages.describe_log_dirs import (
    FIRST_VERSION_WITH_TAGS,
    FULL,
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kraftlog.kafka.notation import Message, Versions
from tests.kraftlog.clients.peers import broker, metadata, peer
from tests.kraftlog.command_line import Run, run
from tests.raft.nodes import free_port

__all__ = ["run"]

METADATA, DESCRIBE_LOG_DIRS = 3, 35
TOPIC = DescribeLogDirsTopic(
    name="t",
    partitions=(
        DescribeLogDirsPartition(partition_index=1, partition_size=10, offset_lag=3, is_future_key=True),
        DescribeLogDirsPartition(partition_index=0, partition_size=5, offset_lag=0),
    ),
)
RESULTS = (
    DescribeLogDirsResult(
        log_dir="/b", topics=(TOPIC,), total_bytes=1_000, usable_bytes=600, is_cordoned=True, unknown_tags=(FULL,)
    ),
    DescribeLogDirsResult(log_dir="/a", error_code=ErrorCode.KAFKA_STORAGE_ERROR),
)
BROKER, GONE = 4, 9


class Cluster:
    """A broker that answers as it is told, and one that has gone."""

    def __init__(self) -> None:
        self.answer = DescribeLogDirsResponse(results=RESULTS)
        self.asked: list[Any] = []
        self.brokers: dict[int, Endpoint] = {}
        self.address = ""

    def answers(self, request: Request) -> Message:
        if request.api.key == METADATA:
            return metadata(self.brokers, {"t": 2})
        self.asked.append(request.body)
        answer = deepcopy(self.answer)
        for result in () if request.version >= FIRST_VERSION_WITH_TAGS else answer.results:
            result.unknown_tags = ()
        return answer


@pytest.fixture(params=[1, 5], ids=["oldest", "newest"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = Cluster()
    offered = {METADATA: Versions(0, 13), DESCRIBE_LOG_DIRS: Versions(1, request.param)}
    with peer(broker(offered, made.answers)) as endpoint:
        made.address = str(endpoint)
        made.brokers = {GONE: Endpoint("127.0.0.1", free_port()), BROKER: endpoint}
        yield made


def test_rows_are_in_order_and_a_directory_without_partitions_has_one(cluster: Cluster, run: Run) -> None:
    listed = run("log-dirs", "--bootstrap-server", cluster.address, "--broker", BROKER)
    assert listed.code == 1  # a directory has failed
    rows = [line.split() for line in listed.output.splitlines()[2:]]
    newest = ["1000", "600", "disk-full,", "cordoned"] if "1000" in listed.output else []
    assert rows == [
        ["4", "/a", "KAFKA_STORAGE_ERROR"],
        ["4", "/b", *newest, "t", "0", "5", "0", "False"],
        ["4", "/b", *newest, "t", "1", "10", "3", "True"],
    ]
    assert [asked.topics for asked in cluster.asked] == [None]


def test_a_broker_that_has_gone_has_a_row_with_its_error(cluster: Cluster, run: Run) -> None:
    cluster.answer = DescribeLogDirsResponse()
    listed = run("log-dirs", "--bootstrap-server", cluster.address, "--output", "json")
    assert (listed.code, listed.errors) == (1, "")
    assert '"Broker": 9' in listed.output
    assert "BROKER_NOT_AVAILABLE" in listed.output


def test_only_the_topics_that_are_asked_for(cluster: Cluster, run: Run) -> None:
    run("log-dirs", "--bootstrap-server", cluster.address, "--broker", BROKER, "--topic", "t")
    ((topic,),) = [asked.topics for asked in cluster.asked]
    assert (topic.topic, topic.partitions) == ("t", (0, 1))


def test_a_broker_that_refuses_and_one_that_is_not_there(cluster: Cluster, run: Run) -> None:
    at = ("--bootstrap-server", cluster.address)
    unknown = run("log-dirs", *at, "--broker", 5)
    assert unknown.is_error(ErrorCode.BROKER_ID_NOT_REGISTERED, "broker 5 is not alive; these are: 4, 9")
    cluster.answer = DescribeLogDirsResponse(error_code=31)
    refused = run("log-dirs", *at, "--broker", BROKER)
    is_told = refused.output.splitlines()[-1].split() == ["4", "error", "31"]
    assert is_told == (refused.code == 1)  # the oldest version has no place for it


def test_what_a_broker_says_is_shown_and_not_obeyed(cluster: Cluster, run: Run) -> None:
    cluster.answer = DescribeLogDirsResponse(results=(DescribeLogDirsResult(log_dir="/a\x1b[2J"),))
    listed = run("log-dirs", "--bootstrap-server", cluster.address, "--broker", BROKER)
    assert r"/a\x1b[2J" in listed.output
