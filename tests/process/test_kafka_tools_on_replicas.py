"""Kafka 4.3's tools about replicas with several of our brokers: topics, reassignments, elections. For `make peers`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from kraftlog.local.cluster import LocalCluster
from kraftlog.local.cluster_directory import open_or_create
from tests.kraftlog.command_line import kraftlog, running_brokers
from tests.process.conftest import addresses, running
from tests.process.test_kafka_tools import CONFIGS, CONSUMER, COUNT, TOPICS, VERSIONS, Kafka
from tests.process.test_kafka_tools import pytestmark as needs_tools

pytestmark = needs_tools

REASSIGN: Final = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT: Final = "org.apache.kafka.tools.LeaderElectionCommand"
MANY: Final = 8_000
"""Records of 1 KB: more than a follower is given at once."""
FOURTH, FIFTH = 4, 5
"""Brokers that a test starts and stops."""


@dataclass
class Cluster:
    """Three brokers, with the tools of both projects."""

    kafka: Kafka
    nodes: str
    directory: Path

    def own(self, *arguments: object) -> Any:
        """What a command of ours prints."""
        return kraftlog(*arguments, "--bootstrap-server", self.nodes, "--output", "json").json()

    def broker(self, broker_id: int) -> AbstractContextManager[object]:
        """One more, which shuts down at the end of the block, and keeps its data."""
        return running_brokers(self.nodes, broker_id, options=("--data-dir", self.directory / f"broker-{broker_id}"))

    def create(self, topic: str, *replicas: int) -> None:
        """A topic with one partition."""
        self.kafka.tool(
            TOPICS, "--create", "--topic", topic, "--replica-assignment", ":".join(map(str, replicas)),
        )  # fmt: skip

    def partition(self, topic: str) -> dict[str, Any]:
        """Partition 0, as the controller has it."""
        found: dict[str, Any] = self.own("partitions", "describe", topic)[0]
        return found

    def wait_for_isr(self, topic: str, *members: int) -> None:
        """Return when these are in sync."""
        until(lambda: set(self.partition(topic)["Isr"]) == set(members))

    def values(self, topic: str, count: int) -> list[str]:
        """So many records of partition 0, from the start."""
        options = ("--partition", 0, "--offset", "earliest", "--max-messages", count)
        return self.kafka.tool(CONSUMER, "--topic", topic, *options).splitlines()

    def described(self, topic: str, *options: object) -> list[tuple[str, str, set[str]]]:
        """Leader, replicas and ISR of each partition, as kafka-topics --describe prints them."""
        printed = self.kafka.tool(TOPICS, "--describe", "--topic", topic, *options)
        rows = re.findall(r"Partition: \d+\s+Leader: (\S+)\s+Replicas: (\S+)\s+Isr: (\S*)", printed)
        return [(leader, replicas, set(isr.split(","))) for leader, replicas, isr in rows]

    def on_file(self, name: str, topic: str, *replicas: int) -> Path:
        """A file for kafka-reassign-partitions, or, without replicas, for kafka-leader-election."""
        partition = {"topic": topic, "partition": 0, **({"replicas": list(replicas)} if replicas else {})}
        path = self.directory / name
        path.write_text(json.dumps({"version": 1, "partitions": [partition]}))
        return path


def until(holds: Callable[[], bool]) -> None:
    """Return when it holds; the test's time limit ends it."""
    while not holds():
        pass


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("kafka-tools")
    nodes = LocalCluster(open_or_create(directory / "cluster", voters=1))
    with running(nodes), running_brokers(addresses(nodes), 1, 2, 3) as servers:
        yield Cluster(Kafka(",".join(servers), directory), addresses(nodes), directory)


def test_no_tool_is_told_of_an_api_that_no_kafka_has(cluster: Cluster) -> None:
    printed = cluster.kafka.tool(VERSIONS)
    assert len(re.findall(r"^\S+:\d+ \(id: [123] rack: ", printed, re.MULTILINE)) == 3
    assert "10000" not in printed
    assert "UNKNOWN" not in printed


def test_kafka_topics_shows_who_is_in_sync(cluster: Cluster) -> None:
    cluster.kafka.create("shown", "--replication-factor", 3, "--config", "min.insync.replicas=2")
    cluster.kafka.write("shown", range(COUNT))
    assert [(len(replicas), isr) for _, replicas, isr in cluster.described("shown")] == [(5, {"1", "2", "3"})] * 3
    assert {leader for leader, _, _ in cluster.described("shown")} == {"1", "2", "3"}
    with cluster.broker(FOURTH):
        cluster.create("half", 1, FOURTH)
        cluster.wait_for_isr("half", 1, FOURTH)
        assert cluster.described("half", "--under-replicated-partitions") == []
    cluster.wait_for_isr("half", 1)
    assert cluster.described("half", "--under-replicated-partitions") == [("1", "1,4", {"1"})]
    assert cluster.described("half", "--at-min-isr-partitions") == [("1", "1,4", {"1"})]
    assert cluster.described("half", "--unavailable-partitions") == []
    with cluster.broker(FOURTH):
        cluster.wait_for_isr("half", 1, FOURTH)


def test_kafka_reassign_partitions_moves_with_a_throttle(cluster: Cluster) -> None:
    cluster.create("moved", 1, 2)
    cluster.kafka.write("moved", range(COUNT))
    topics = cluster.directory / "topics.json"
    topics.write_text('{"version": 1, "topics": [{"topic": "moved"}]}')
    proposed = cluster.kafka.tool(REASSIGN, "--generate", "--topics-to-move-json-file", topics, "--broker-list", "2,3")
    assert '"topic":"moved","partition":0,"replicas":[1,2]' in proposed
    plan = ("--reassignment-json-file", cluster.on_file("moves.json", "moved", 3, 2))
    begun = cluster.kafka.tool(REASSIGN, "--execute", *plan, "--throttle", 50_000_000)
    assert "Successfully started partition reassignment for moved-0" in begun
    until(lambda: "moved-0 is completed" in cluster.kafka.tool(REASSIGN, "--verify", *plan))
    assert cluster.partition("moved")["Replicas"] == [3, 2]
    assert "moved-0" not in cluster.kafka.tool(REASSIGN, "--list")
    for entity, name in (("topics", "moved"), ("brokers", 1), ("brokers", 3)):
        set_by_hand = cluster.kafka.tool(CONFIGS, "--describe", "--entity-type", entity, "--entity-name", name)
        assert "throttled" not in set_by_hand
    assert cluster.values("moved", COUNT) == [f"value-{number}" for number in range(COUNT)]


def test_kafka_reassign_partitions_lists_and_cancels_what_a_throttle_holds_up(cluster: Cluster) -> None:
    cluster.create("stays", 1, 2)
    lines = "".join(f"{number:01000}\n" for number in range(MANY))
    assert kraftlog("produce", "stays", "--bootstrap-server", cluster.kafka.servers, given=lines).code == 0
    with cluster.broker(FOURTH):
        plan = ("--reassignment-json-file", cluster.on_file("waits.json", "stays", FOURTH, 2))
        cluster.kafka.tool(REASSIGN, "--execute", *plan, "--throttle", 1)
        assert "stays-0: replicas: 4,2,1. adding: 4. removing: 1." in cluster.kafka.tool(REASSIGN, "--list")
        assert "stays-0 is still in progress" in cluster.kafka.tool(REASSIGN, "--verify", *plan)
        (replica,) = [
            row for row in cluster.own("topics", "describe", "stays", "--replicas") if row["Broker"] == FOURTH
        ]
        assert (replica["InSync"], replica["IsAdding"]) == (False, True)
        assert replica["Lag"] is None or replica["Lag"] > 0
        cluster.kafka.tool(REASSIGN, "--cancel", *plan)
        assert set(cluster.partition("stays")["Replicas"]) == {1, 2}


def test_kafka_leader_election_of_the_preferred_leader(cluster: Cluster) -> None:
    with cluster.broker(FOURTH):
        cluster.create("elected", FOURTH, 1)
        cluster.wait_for_isr("elected", FOURTH, 1)
        cluster.kafka.write("elected", range(COUNT))
    until(lambda: cluster.partition("elected")["Leader"] == 1)
    with cluster.broker(FOURTH):
        cluster.wait_for_isr("elected", FOURTH, 1)
        file = cluster.on_file("election.json", "elected")
        printed = cluster.kafka.tool(ELECT, "--election-type", "PREFERRED", "--path-to-json-file", file)
        assert "Successfully completed leader election (PREFERRED) for partitions elected-0" in printed
        assert cluster.partition("elected")["Leader"] == FOURTH
        assert cluster.values("elected", COUNT) == [f"value-{number}" for number in range(COUNT)]


def test_kafka_leader_election_that_is_unclean_loses_what_only_others_have(cluster: Cluster) -> None:
    with cluster.broker(FOURTH):
        with cluster.broker(FIFTH):
            cluster.create("torn", FOURTH, FIFTH)
            cluster.wait_for_isr("torn", FOURTH, FIFTH)
            cluster.kafka.write("torn", range(COUNT))
        cluster.wait_for_isr("torn", FOURTH)
        cluster.kafka.write("torn", range(COUNT, COUNT + 10))
    until(lambda: cluster.partition("torn")["Leader"] == -1)
    with cluster.broker(FIFTH):
        where = ("--topic", "torn", "--partition", 0)
        printed = cluster.kafka.tool(ELECT, "--election-type", "UNCLEAN", *where)
        assert "Successfully completed leader election (UNCLEAN) for partitions torn-0" in printed
        assert cluster.kafka.offsets("torn") == {0: COUNT}
        with cluster.broker(FOURTH):
            cluster.wait_for_isr("torn", FOURTH, FIFTH)
            assert cluster.values("torn", COUNT) == [f"value-{number}" for number in range(COUNT)]
            (follower,) = [
                row for row in cluster.own("topics", "describe", "torn", "--replicas") if row["Broker"] == FOURTH
            ]
            assert (follower["LogEnd"], follower["Lag"]) == (COUNT, 0)
