"""Metrics of a broker's parts: replicas, logs, fetch sessions and quotas.

Gauges that need a pass over all replicas are counted only when a client asks for the metrics, in slices.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from kraftbase.sentinels import NO_LEADER
from kraftlog.broker.quotas.quota_usage import QuotaUsage
from kraftlog.network.requests import Steps
from kraftlog.replicas.partitions.fetch_sessions import FetchSessionCache
from kraftlog.replicas.partitions.partition import Partition
from kraftlog.replicas.partitions.partitions import Partitions
from kraftlog.replicas.replication.followed_partition import FollowedPartition, State
from kraftlog.storage.log_directory import LogDirectory
from kraftlog.storage.log_manager import LogManager
from kraftlog.storage.slices import SLICE_LINES, slices
from kraftlog.telemetry import catalogue
from kraftlog.telemetry.registry import Metric, Registry

_OF_PARTITIONS = (
    catalogue.LEADER_COUNT, catalogue.UNDER_REPLICATED, catalogue.UNDER_MIN_ISR, catalogue.AT_MIN_ISR,
    catalogue.REASSIGNING, catalogue.OFFLINE_REPLICAS, catalogue.WITHOUT_LEADER,
)  # fmt: skip
_OF_FOLLOWED = (catalogue.MAX_LAG, catalogue.FAILED_PARTITIONS)


class ReplicaMetrics:
    """Counts replicas on request."""

    def __init__(self, partitions: Partitions, fetchers: Iterable[FollowedPartition], logs: LogManager) -> None:
        """`fetchers` yields the partitions that are followed now, on each iteration."""
        self.partitions = partitions
        self.logs = logs
        self._fetchers = fetchers
        self.counts: dict[Metric, int] = dict.fromkeys((*_OF_PARTITIONS, *_OF_FOLLOWED), 0)
        """The counts of the last `count`."""
        self.log_bytes: dict[str, int] = {directory.path: 0 for directory in logs.directories}
        """The bytes of the logs in each log directory, as of the last `count`."""

    def count(self) -> Steps:
        """Count all replicas and logs. Changes between two slices may or may not be counted."""
        counts = dict.fromkeys(self.counts, 0)
        for some in slices(list(self.partitions), SLICE_LINES):
            for partition in some:
                for metric in _what_counts(partition):
                    counts[metric] += 1
            yield None
        for followed_ones in slices(list(self._fetchers), SLICE_LINES):
            for followed in followed_ones:
                counts[catalogue.MAX_LAG] = max(counts[catalogue.MAX_LAG], followed.lag or 0)
                counts[catalogue.FAILED_PARTITIONS] += followed.state is State.STOPPED
            yield None
        self.counts = counts
        for directory in self.logs.directories:
            size_bytes = 0
            for logs in slices(list(directory.logs.values()), SLICE_LINES):
                size_bytes += sum(log.size_bytes for log in logs)
                yield None
            self.log_bytes[directory.path] = size_bytes


def _what_counts(partition: Partition) -> list[Metric]:
    """The gauges that count a partition, by the rules of Kafka's `Partition`."""
    record = partition.record
    found = []
    if partition.log is None:
        found.append(catalogue.OFFLINE_REPLICAS)
    if record.leader == NO_LEADER:
        found.append(catalogue.WITHOUT_LEADER)
    if not partition.is_leader:
        return found
    found.append(catalogue.LEADER_COUNT)
    in_sync = len(partition.isr)
    if in_sync < len(record.replicas) - len(record.adding_replicas):
        found.append(catalogue.UNDER_REPLICATED)
    if partition.log is not None and in_sync <= partition.effective_min_isr:
        is_below = in_sync < partition.effective_min_isr
        found.append(catalogue.UNDER_MIN_ISR if is_below else catalogue.AT_MIN_ISR)
    if record.adding_replicas or record.removing_replicas:
        found.append(catalogue.REASSIGNING)
    return found


def show_broker(registry: Registry, replicas: ReplicaMetrics, sessions: FetchSessionCache, usage: QuotaUsage) -> None:
    """Add these metrics to a registry."""
    registry.read(catalogue.PARTITION_COUNT, lambda: len(replicas.partitions))
    for metric in replicas.counts:
        registry.read(metric, partial(_count_of, replicas, metric))
    _show_logs(registry, replicas)
    registry.read(catalogue.FETCH_SESSIONS, lambda: len(sessions))
    registry.read(catalogue.SESSION_PARTITIONS, lambda: sessions.partition_count)
    registry.read(catalogue.SESSION_EVICTIONS, lambda: sessions.eviction_count)
    registry.read(catalogue.QUOTA_CLIENTS, lambda: len(usage))
    for kind, histogram in usage.throttle_times.items():
        registry.histogram(catalogue.THROTTLE_TIME, histogram, kind.value)


def _show_logs(registry: Registry, replicas: ReplicaMetrics) -> None:
    logs = replicas.logs
    registry.read(
        catalogue.OFFLINE_DIRECTORIES,
        lambda: len(logs.failed) + sum(bool(directory.offline_reason) for directory in logs.directories),
    )
    for path in logs.failed:
        registry.read(catalogue.DIRECTORY_OFFLINE, lambda: 1, path)
    for directory in logs.directories:
        path = directory.path
        registry.read(catalogue.LOG_SIZE, partial(replicas.log_bytes.__getitem__, path), path)
        registry.histogram(catalogue.LOG_FLUSHES, directory.commits.flush_times, path)
        registry.read(catalogue.DIRECTORY_OFFLINE, partial(_is_offline, directory), path)


def _is_offline(directory: LogDirectory) -> bool:
    return bool(directory.offline_reason)


def _count_of(replicas: ReplicaMetrics, metric: Metric) -> int:
    return replicas.counts[metric]
