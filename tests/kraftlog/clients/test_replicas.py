"""How far replicas are: `topics describe --replicas` and `sql --replicas`, with leaders that say what a test wants.

The first command is OT-56.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ErrorCode
from kraftlog.broker.dispatch import KEYS
from kraftlog.clients import replicas
from kraftlog.clients.replica_tables import ABOUT_TO_JOIN, TABLES
from kraftlog.kafka.apis import OWN_SOFTWARE
from kraftlog.kafka.connections import Request
from kraftlog.kafka.messages.api_versions import ApiVersionsRequest
from kraftlog.kafka.messages.describe_replicas import (
    DescribedPartition,
    DescribedReplica,
    DescribedTopic,
    DescribeReplicasRequest,
    DescribeReplicasResponse,
)
from kraftlog.kafka.notation import Message, Versions
from statemachine.query.descriptions import (
    BrokerDescription,
    BrokerListener,
    DescribedTopics,
    ListedBrokers,
    PartitionDescription,
    TopicDescription,
)
from tests.kraftlog.clients.peers import broker, peer, versions_of
from tests.kraftlog.command_line import Run, run
from tests.raft.nodes import free_port

__all__ = ["run"]

AT = ("--bootstrap-server", "127.0.0.1:1")
OWN_KEY = KEYS["DescribeReplicas"]
OLD, OWN = {3: Versions(0, 13)}, {OWN_KEY: Versions(0, 0)}
LEADER = DescribedReplica(broker_id=1, log_start_offset=2, log_end_offset=50, lag_ms=0, is_in_sync=True)
BEHIND = DescribedReplica(
    broker_id=2, log_start_offset=0, log_end_offset=40, lag_ms=31_000, reasons=("lagging", "below-high-watermark")
)
SILENT = DescribedReplica(
    broker_id=3, reasons=("never-fetched", "fenced", "lagging", "below-high-watermark", "below-epoch-start")
)


def described(*of: DescribedReplica, index: int = 0, error_code: int = 0) -> DescribedPartition:
    if error_code:
        return DescribedPartition(error_code=error_code, partition_index=index)
    return DescribedPartition(
        partition_index=index, leader_id=1, leader_epoch=4, high_watermark=45, log_end_offset=50, replicas=of
    )


class Cluster:
    """Metadata without nodes, and a leader, broker 1."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.brokers = {
            broker_id: BrokerDescription(broker_id, 10 * broker_id, "", (at,), None, broker_id == 3, False, ())
            for broker_id, at in {
                1: BrokerListener("PLAINTEXT", endpoint.host, endpoint.port),
                2: BrokerListener("PLAINTEXT", "127.0.0.1", free_port()),
                3: BrokerListener("PLAINTEXT", "127.0.0.1", 1),
            }.items()
        }
        self.partitions = [PartitionDescription(0, 1, 4, 7, (1, 2, 3), (1,))]
        self.answers: list[DescribedPartition] = [described(LEADER, BEHIND, SILENT)]
        self.asked: list[Any] = []
        self.offered = OWN
        self.looks = 0

    def answer(self, request: Request) -> Message:
        self.asked.append(request.body)
        if isinstance(request.body, ApiVersionsRequest):
            return versions_of(self.offered)
        return DescribeReplicasResponse(topics=(DescribedTopic(name="t", partitions=tuple(self.answers)),))

    # --- as an AdminClient ---

    async def describe_topics(self, names: Sequence[str], *, min_applied_end_offset: int) -> DescribedTopics:
        self.looks += 1
        return DescribedTopics(1, (TopicDescription("t", "id-of-t", tuple(self.partitions), ()),))

    async def list_brokers(self, *, min_applied_end_offset: int) -> ListedBrokers:
        return ListedBrokers(1, tuple(self.brokers.values()))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    made: list[Cluster] = []

    @asynccontextmanager
    async def connected(endpoints: object) -> AsyncIterator[Cluster]:
        yield made[0]

    async def committed(endpoints: object) -> int:
        return 1

    monkeypatch.setattr(replicas, "connected_client", connected)
    monkeypatch.setattr(replicas, "committed_end_offset", committed)
    with peer(broker(OLD, lambda request: made[0].answer(request), is_naming=True)) as endpoint:
        made.append(Cluster(endpoint))
        yield made[0]


def test_ot56_each_replica_has_a_row_with_its_lag_and_why_it_is_not_in_sync(cluster: Cluster, run: Run) -> None:
    printed = run("topics", "describe", "t", *AT, "--replicas").lines()
    rows = [line.replace(", ", ",").split() for line in printed[2:]]
    assert rows == [
        ["t", "0", "1", "leader", "2", "50", "0", "0", "True"],
        ["t", "0", "2", "follower", "0", "40", "10", "31000", "False", "lagging,below-high-watermark"],
        ["t", "0", "3", "follower", "False", "never-fetched,fenced"],
    ]
    named, asked = cluster.asked
    assert named.client_software_name == OWN_SOFTWARE
    assert [(of.name, of.partition_indexes) for of in asked.topics] == [("t", (0,))]


def test_json_has_more_and_tells_what_is_unknown_from_zero(cluster: Cluster, run: Run) -> None:
    leader, behind, silent = run("topics", "describe", *AT, "--replicas", "--output", "json").json()
    assert (leader["Lag"], leader["LagMs"], leader["HighWatermark"], leader["LeaderEpoch"]) == (0, 0, 45, 4)
    assert behind["Reasons"] == ["lagging", "below-high-watermark"]
    assert silent["Reasons"] == list(SILENT.reasons)
    assert silent["WhyNot"] == "never-fetched, fenced"  # the others follow from the first
    assert (silent["LogEnd"], silent["Lag"], silent["LagMs"], silent["Error"]) == (None, None, None, None)


def test_who_is_about_to_join_or_to_leave(cluster: Cluster, run: Run) -> None:
    joining = replace_all(BEHIND, reasons=("change-in-flight",), is_pending=True)
    leaving = replace_all(BEHIND, broker_id=3, reasons=(), is_in_sync=True, is_pending=True)
    cluster.answers = [described(LEADER, joining, leaving)]
    rows = run("topics", "describe", *AT, "--replicas", "--output", "json").json()
    assert [(row["InSync"], row["IsPending"], row["WhyNot"], row["Reasons"]) for row in rows[1:]] == [
        (False, True, "change-in-flight", ["change-in-flight"]),
        (True, True, "about-to-leave", []),
    ]
    cluster.answers = [described(LEADER, replace_all(BEHIND, reasons=()), SILENT)]
    rows = run("topics", "describe", *AT, "--replicas", "--output", "json").json()
    assert rows[1]["Reasons"] == [ABOUT_TO_JOIN]


def replace_all(of: DescribedReplica, **changes: Any) -> DescribedReplica:
    values = {field.name: getattr(of, field.name) for field in of.FIELDS}
    return DescribedReplica(**{**values, **changes})


def test_partitions_without_an_answer_show_what_the_metadata_says(cluster: Cluster, run: Run) -> None:
    (first,) = cluster.partitions
    cluster.partitions = [
        first,
        replace(first, partition_id=1, leader=-1, isr=()),
        replace(first, partition_id=2, leader=2, isr=(2, 3)),
        replace(first, partition_id=3, leader=9),
        replace(first, partition_id=4),
    ]
    cluster.answers += [described(index=4, error_code=ErrorCode.KAFKA_STORAGE_ERROR)]
    said = run("topics", "describe", *AT, "--replicas", "--output", "json")
    assert said.code == 1
    rows = json.loads(said.output)
    errors = {row["Partition"]: row["Error"] for row in rows}
    assert errors == {
        0: None, 1: "LEADER_NOT_AVAILABLE", 2: "BROKER_NOT_AVAILABLE", 3: "BROKER_NOT_AVAILABLE",
        4: "KAFKA_STORAGE_ERROR",
    }  # fmt: skip
    assert [(row["Broker"], row["InSync"], row["LogEnd"]) for row in rows if row["Partition"] == 2] == [
        (1, False, None), (2, True, None), (3, True, None),
    ]  # fmt: skip
    silent, unknown = said.errors.splitlines()
    assert silent.startswith(
        "error: BROKER_NOT_AVAILABLE: broker 2 leads, and does not report: the broker at 127.0.0.1:"
    )
    assert unknown.startswith("error: BROKER_NOT_AVAILABLE: broker 9 is not registered")


def test_a_broker_that_has_no_such_api_is_told_apart(cluster: Cluster, run: Run) -> None:
    cluster.offered = OLD
    said = run("topics", "describe", *AT, "--replicas")
    assert said.code == 1
    assert "error: UNSUPPORTED_VERSION: broker 1 leads, and does not report: " in said.errors
    assert "does not answer DescribeReplicas" in said.errors
    assert not any(isinstance(asked, DescribeReplicasRequest) for asked in cluster.asked)


def test_the_metadata_is_read_again_if_a_leader_has_changed(cluster: Cluster, run: Run) -> None:
    cluster.answers = [described(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    rows = run("topics", "describe", *AT, "--replicas", "--output", "json").json()
    assert {row["Error"] for row in rows} == {"NOT_LEADER_OR_FOLLOWER"}
    assert cluster.looks == replicas.LOOKS


# --- SQL --------------------------------------------------------------------------------------------------------------


def test_the_answers_of_all_leaders_are_asked_in_sql(cluster: Cluster, run: Run) -> None:
    statement = """
        SELECT r.broker_id, lag_offsets, p.high_watermark - r.log_end_offset AS missing, why.value AS why, fenced
        FROM replicas r JOIN partitions p USING (topic, partition_id) JOIN brokers USING (broker_id),
            json_each(reasons) why
        WHERE NOT in_sync ORDER BY 1, 4
    """
    assert run("sql", "--replicas", statement, *AT, "--output", "json").json() == [
        {"broker_id": 2, "lag_offsets": 10, "missing": 5, "why": "below-high-watermark", "fenced": 0},
        {"broker_id": 2, "lag_offsets": 10, "missing": 5, "why": "lagging", "fenced": 0},
        *(
            {"broker_id": 3, "lag_offsets": None, "missing": None, "why": why, "fenced": 1}
            for why in sorted(SILENT.reasons)
        ),
    ]
    for table, columns in TABLES.items():
        rows = run("sql", "--replicas", f"SELECT * FROM {table}", *AT, "--output", "json").json()
        assert [tuple(row) for row in rows[:1]] == [columns]


def test_a_leader_that_does_not_answer_is_told_of_beside_what_is_found(cluster: Cluster, run: Run) -> None:
    (first,) = cluster.partitions
    cluster.partitions = [first, replace(first, partition_id=1, leader=2)]
    said = run("sql", "--replicas", "SELECT partition_id, error FROM partitions", *AT, "--output", "json")
    assert said.code == 1
    first_row, second = json.loads(said.output)
    assert (first_row["error"], second["error"].split(":")[0]) == (None, "BROKER_NOT_AVAILABLE")
    assert said.errors.startswith("error: BROKER_NOT_AVAILABLE: broker 2 leads, and does not report: ")


def test_nothing_can_be_changed_and_names_are_suggested(cluster: Cluster, run: Run) -> None:
    assert run("sql", "--replicas", "DELETE FROM replicas", *AT).is_error(ErrorCode.INVALID_REQUEST)
    assert run("sql", "--replicas", "SELECT * FROM replica", *AT).is_error(ErrorCode.INVALID_REQUEST, "replicas")


@pytest.mark.parametrize(
    ("arguments", "words"), [(["--directory", "d", *AT], "name no file"), ([], "name nodes of the running cluster")]
)
def test_usage(run: Run, arguments: list[str], words: str) -> None:
    said = run("sql", "--replicas", "SELECT 1", *arguments)
    assert said.code == 2
    assert words in said.errors
