"""The services that handlers use. All handlers have the same constructor, and take from the services what they need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kraftbase.runtime import Runtime
from kraftlog.broker.apis.lookups import PartitionLookup
from kraftlog.broker.controller_channel import ControllerChannel
from kraftlog.broker.metadata.cluster_view import ClusterView
from kraftlog.broker.metadata.configs_in_effect import ConfigsInEffect
from kraftlog.broker.producer_ids import ProducerIds
from kraftlog.broker.quotas.quota_usage import QuotaUsage
from kraftlog.network.requests import Steps
from kraftlog.replicas.partitions.fetch_sessions import FetchSessionCache
from kraftlog.replicas.partitions.leader_throttle import LeaderThrottle
from kraftlog.replicas.partitions.partitions import Partitions
from kraftlog.replicas.partitions.replica_choice import RackAwareChoice
from kraftlog.storage.log_manager import LogManager
from kraftlog.telemetry.observer import BrokerObserver
from kraftlog.telemetry.registry import Registry


class DiskSpace(NamedTuple):
    """The size of a file system in bytes; -1 if it is not known."""

    total_bytes: int = -1
    usable_bytes: int = -1


class AutoCreate(Protocol):
    """Creates topics because a client has asked for them (`auto.create.topics.enable`)."""

    def create(self, name: str) -> None:
        """Create a topic with the defaults of the cluster, some time later."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordServices:
    """The services for reading and writing records; brokers in the simulator have them, too."""

    lookup: PartitionLookup
    runtime: Runtime
    usage: QuotaUsage
    sessions: FetchSessionCache
    observer: BrokerObserver
    choice: RackAwareChoice | None
    """Sends consumers to replicas in their racks; None: to leaders."""
    throttle: LeaderThrottle | None
    """Limits what followers fetch; None: no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerServices(RecordServices):
    """The services of all handlers of a broker."""

    broker_id: int
    cluster: ClusterView
    configs: ConfigsInEffect
    controller: ControllerChannel
    """Carries out clients' requests to the controller."""
    partitions: Partitions
    logs: LogManager
    disk_space: Callable[[str], DiskSpace]
    """The size of the file system of a directory."""
    producer_ids: ProducerIds
    auto_create: AutoCreate | None
    """Creates topics that clients ask for; None: they are not created."""
    registry: Registry
    count_metrics: Callable[[], Steps]
    """Updates the gauges of `registry`."""
