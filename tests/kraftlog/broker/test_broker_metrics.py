"""What a broker shows of its replicas, logs, sessions and quotas, and how it says so over the wire."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from kraftlog.broker.apis.metrics import DescribeMetricsApi
from kraftlog.broker.broker_metrics import ReplicaMetrics, show_broker
from kraftlog.broker.quotas.client_quotas import ClientQuotas, QuotaKind
from kraftlog.broker.quotas.quota_usage import QuotaUsage
from kraftlog.kafka.messages.describe_metrics import DescribedMetric, DescribeMetricsRequest, DescribeMetricsResponse
from kraftlog.replicas.partitions.fetch_sessions import FetchSessionCache
from kraftlog.telemetry.registry import TIME_BOUNDS_MS, Kind, Registry
from tests.kraftlog.broker.broker_world import BrokerWorld, registration, replicas, topic
from tests.kraftlog.broker.services import services
from tests.kraftlog.storage.builders import batch


class Metrics:
    """A broker that leads four partitions and follows in two, and its registry."""

    def __init__(self, directory: Path) -> None:
        self.world = BrokerWorld(
            directory,
            [
                *(registration(1), registration(2), registration(3)),
                topic("clicks"),
                replicas(on=[1, 2], isr=[1, 2]),
                replicas(index=1, on=[1, 2, 3], isr=[1, 2]),
                replicas(index=2, on=[1, 2, 3], isr=[1]),
                replicas(index=3, on=[1]),
                replicas(index=4, on=[2, 1], leader=2),
                replicas(index=5, on=[2, 1], leader=-1),
            ],
            own={"min.insync.replicas": "2"},
        )
        self.registry, self.usage = Registry(), QuotaUsage(ClientQuotas())
        self.replicas = ReplicaMetrics(self.world.partitions, (), self.world.logs)
        show_broker(self.registry, self.replicas, FetchSessionCache(lambda: 1), self.usage)

    def ask(self) -> dict[tuple[str, str], DescribedMetric]:
        """What the broker answers, by name and label."""
        handle = DescribeMetricsApi(services(registry=self.registry, count_metrics=self.replicas.count)).handle
        answer = self.world.answer_to(handle, DescribeMetricsRequest(), 0, DescribeMetricsResponse)
        return {(of.name, of.label): of for of in answer.metrics}

    def value(self, name: str, label: str = "") -> int:
        return self.ask()[name, label].value


@pytest.fixture
def metrics(tmp_path: Path) -> Metrics:
    return Metrics(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PartitionCount", 6),
        ("LeaderCount", 4),
        ("UnderReplicatedPartitions", 2),
        ("UnderMinIsrPartitionCount", 1),  # of partition 3 one replica is all that there can be
        ("AtMinIsrPartitionCount", 3),
        ("PartitionsWithoutLeader", 1),
        ("OfflineReplicaCount", 0),
        ("ReassigningPartitions", 0),
    ],
)
def test_partitions_are_counted_as_kafka_counts_them(metrics: Metrics, name: str, value: int) -> None:
    assert metrics.value(name) == value


def test_a_replica_whose_disk_has_failed_is_offline(metrics: Metrics) -> None:
    (directory,) = metrics.world.logs.directories
    assert (metrics.value("LogDirectoryOffline", "data"), metrics.value("OfflineLogDirectoryCount")) == (0, 0)
    directory.fail(OSError("gone"))
    metrics.world.partitions.check_logs()
    assert (metrics.value("LogDirectoryOffline", "data"), metrics.value("OfflineLogDirectoryCount")) == (1, 1)
    assert metrics.value("OfflineReplicaCount") == 6
    assert metrics.value("UnderMinIsrPartitionCount") == 0  # Kafka counts those that have a log


def test_logs_have_a_size_and_flushes_a_time(metrics: Metrics) -> None:
    assert (metrics.value("Size", "data"), metrics.value("LogFlushRateAndTimeMs", "data")) == (0, 0)
    sent = batch(4)
    metrics.world.send((0, sent), acks=1)
    metrics.world.runtime.run()
    shown = metrics.ask()
    assert shown["Size", "data"].value == len(sent)
    flushes = shown["LogFlushRateAndTimeMs", "data"]
    assert (flushes.kind, flushes.value, flushes.total) == (Kind.HISTOGRAM.value, 1, 0)
    assert [of.upper_bound for of in flushes.buckets] == [*TIME_BOUNDS_MS, math.inf]
    assert [of.count for of in flushes.buckets] == [1] + [0] * len(TIME_BOUNDS_MS)
    assert (flushes.label_name, flushes.group) == ("logDirectory", "LogFlushStats")


def test_a_quota_that_lets_clients_wait_shows(metrics: Metrics) -> None:
    metrics.usage.throttle_times[QuotaKind.PRODUCE].observe(300)
    shown = metrics.ask()
    assert (shown["QuotaThrottleTimeMs", "producer_byte_rate"].total, shown["QuotaClientCount", ""].value) == (300, 0)
    assert shown["QuotaThrottleTimeMs", "consumer_byte_rate"].value == 0
