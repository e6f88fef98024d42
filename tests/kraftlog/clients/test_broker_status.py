"""OT-57: `brokers status`, with brokers that say what a test wants."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ErrorCode
from kraftlog.broker.dispatch import KEYS
from kraftlog.clients import broker_status
from kraftlog.kafka.connections import Request
from kraftlog.kafka.messages.api_versions import ApiVersionsRequest
from kraftlog.kafka.messages.describe_metrics import DescribedBucket, DescribedMetric, DescribeMetricsResponse
from kraftlog.kafka.notation import Message, Versions
from statemachine.query.descriptions import BrokerDescription, BrokerListener, ListedBrokers
from tests.kraftlog.clients.peers import broker, peer, versions_of
from tests.kraftlog.command_line import Run, run
from tests.raft.nodes import free_port

__all__ = ["run"]

AT = ("--bootstrap-server", "127.0.0.1:1")
OLD, OWN = {3: Versions(0, 13)}, {KEYS["DescribeMetrics"]: Versions(0, 0)}
METRICS = (
    DescribedMetric(group="KafkaServer", name="BrokerState", kind=1, value=3),
    DescribedMetric(group="ReplicaManager", name="UnderReplicatedPartitions", kind=1, value=2),
    DescribedMetric(
        group="RequestMetrics",
        name="TotalTimeMs",
        label_name="request",
        label="Fetch",
        kind=2,
        value=4,
        total=50.0,
        buckets=(DescribedBucket(upper_bound=1, count=3), DescribedBucket(upper_bound=math.inf, count=1)),
    ),
)


class Cluster:
    """Metadata without nodes, and one broker that answers."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.brokers = {1: endpoint}
        self.offered = OWN

    def answer(self, request: Request) -> Message:
        if isinstance(request.body, ApiVersionsRequest):
            return versions_of(self.offered)
        return DescribeMetricsResponse(metrics=METRICS)

    async def list_brokers(self, *, min_applied_end_offset: int) -> ListedBrokers:
        """As an AdminClient."""
        return ListedBrokers(
            1,
            tuple(
                BrokerDescription(of, 10, "", (BrokerListener("PLAINTEXT", *at),), None, of == 2, False, ())
                for of, at in self.brokers.items()
            ),
        )


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    made: list[Cluster] = []

    @asynccontextmanager
    async def connected(endpoints: object) -> AsyncIterator[Cluster]:
        yield made[0]

    async def committed(endpoints: object) -> int:
        return 1

    monkeypatch.setattr(broker_status, "connected_client", connected)
    monkeypatch.setattr(broker_status, "committed_end_offset", committed)
    with peer(broker(OLD, lambda request: made[0].answer(request), is_naming=True)) as endpoint:
        made.append(Cluster(endpoint))
        yield made[0]


def test_ot57_a_broker_has_a_row_with_its_figures(cluster: Cluster, run: Run) -> None:
    finished = run("brokers", "status", *AT)
    assert finished.code == 0
    (row,) = [line.split() for line in finished.lines()[2:]]
    assert row[:3] == ["1", "False", "running"]
    assert "2" in row[3:]


def test_json_has_all_and_buckets_of_histograms(cluster: Cluster, run: Run) -> None:
    (shown,) = run("brokers", "status", *AT, "--output", "json").json()
    assert (shown["BrokerId"], shown["Fenced"], shown["State"], shown["Error"]) == (1, False, "running", None)
    state, _, times = shown["Metrics"]
    assert state == {"Group": "KafkaServer", "Name": "BrokerState", "Labels": {}, "Kind": "gauge", "Value": 3}
    assert (times["Labels"], times["Kind"], times["Value"], times["Total"]) == (
        {"request": "Fetch"},
        "histogram",
        4,
        50,
    )
    assert times["Buckets"] == [{"UpTo": 1, "Count": 3}, {"UpTo": None, "Count": 1}]


def test_one_brokers_table_has_all_with_the_mean_of_a_histogram(cluster: Cluster, run: Run) -> None:
    lines = run("brokers", "status", *AT, "--id", 1).lines()
    assert "RequestMetrics   TotalTimeMs                 Fetch   4 times, 12.5 ms on average" in lines


def test_a_broker_of_an_older_version_does_not_report_which_is_no_error(cluster: Cluster, run: Run) -> None:
    cluster.offered = OLD
    finished = run("brokers", "status", *AT)
    assert finished.code == 0
    assert "1          False    does not report" in finished.output
    assert finished.errors == "broker 1 does not report: it is of an older version\n"
    (shown,) = run("brokers", "status", *AT, "--output", "json").json()
    assert (shown["State"], shown["Metrics"], shown["Error"]) == ("does not report", None, None)


def test_a_broker_that_does_not_answer_is_named_beside_the_others_and_the_exit_code_is_1(
    cluster: Cluster, run: Run
) -> None:
    cluster.brokers[2] = Endpoint("127.0.0.1", free_port())
    finished = run("brokers", "status", *AT)
    assert finished.code == 1
    assert [line.split()[:5] for line in finished.output.splitlines()[2:]][1] == ["2", "True", "does", "not", "answer"]
    assert finished.errors.startswith(f"broker 2: the broker at {cluster.brokers[2]} does not answer")
    run_again = run("brokers", "status", *AT, "--output", "json")
    assert run_again.code == 1
    assert '"Error": "BROKER_NOT_AVAILABLE' in run_again.output


def test_a_broker_that_is_not_registered_is_an_error(cluster: Cluster, run: Run) -> None:
    finished = run("brokers", "status", *AT, "--id", 7)
    assert finished.is_error(ErrorCode.BROKER_ID_NOT_REGISTERED, "broker 7 is not registered; these are: 1")
