"""What a broker answers to Kafka's clients: every API's handler, over its partitions and its view of the cluster."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Mapping

from kraftbase.runtime import Runtime
from kraftlog.broker.administration import administration
from kraftlog.broker.apis.cluster import DescribeClusterApi, DescribeTopicPartitionsApi
from kraftlog.broker.apis.coordinators import FindCoordinatorApi, OffsetFetchApi
from kraftlog.broker.apis.init_producer_id import InitProducerIdApi
from kraftlog.broker.apis.logs import DescribeLogDirsApi, DiskSpace
from kraftlog.broker.apis.lookups import PartitionLookup
from kraftlog.broker.apis.metadata import MetadataApi
from kraftlog.broker.apis.metrics import DescribeMetricsApi
from kraftlog.broker.apis.replicas import DescribeReplicasApi
from kraftlog.broker.apis.scram_credentials import DescribeUserScramCredentialsApi
from kraftlog.broker.broker_metrics import ReplicaMetrics, show_broker
from kraftlog.broker.controller_channel import ControllerChannel
from kraftlog.broker.dispatch import Dispatch
from kraftlog.broker.quotas.quota_usage import QuotaUsage
from kraftlog.broker.quotas.request_quota import RequestQuota
from kraftlog.broker.record_handlers import record_handlers
from kraftlog.broker.settings import AUTO_CREATE_TOPICS, RACK_AWARE_SELECTOR, REPLICA_SELECTOR, BrokerSettings
from kraftlog.broker.shell.parts import Parts
from kraftlog.kafka.notation import Versions
from kraftlog.network.requests import ClientRequest, ConnectionRefused, Handler, Reply
from kraftlog.replicas.partitions.fetch_sessions import FetchSessionCache
from kraftlog.replicas.partitions.replica_choice import RackAwareChoice
from kraftlog.replicas.partitions.sent_to_followers import SentToFollowers
from kraftlog.telemetry.registry import Registry


class ClientApis:
    """The handlers of one broker. For one thread."""

    def __init__(
        self,
        settings: BrokerSettings,
        parts: Parts,
        controller: ControllerChannel,
        runtime: Runtime,
        is_serving: Callable[[], bool],
        registry: Registry,
    ) -> None:
        """`controller` is for what clients have the controller do. `is_serving` tells whether the broker serves.
        `registry` shows what is counted here."""
        self._settings, self._parts, self._is_serving = settings, parts, is_serving
        lookup = PartitionLookup(parts.partitions, parts.cluster)
        usage, sessions = QuotaUsage(parts.quotas), FetchSessionCache(_session_id)
        metrics = ReplicaMetrics(parts.partitions, parts.fetchers, parts.logs)
        show_broker(registry, metrics, sessions, usage)
        auto_create = parts.requests if settings.is_on(AUTO_CREATE_TOPICS) else None
        handlers: Mapping[str, Handler] = {
            **record_handlers(
                lookup,
                runtime,
                usage,
                sessions=sessions,
                observer=parts.observer,
                choice=self._replica_choice(),
                throttle=SentToFollowers(parts.configs, runtime.now_ms),
            ),
            "Metadata": MetadataApi(parts.cluster, auto_create).handle,
            "FindCoordinator": FindCoordinatorApi(settings.broker_id, parts.cluster).handle,
            "OffsetFetch": OffsetFetchApi(parts.cluster).handle,
            "InitProducerId": InitProducerIdApi(parts.requests.producer_ids).handle,
            "DescribeLogDirs": DescribeLogDirsApi(parts.logs, disk_space).handle,
            "DescribeCluster": DescribeClusterApi(parts.cluster).handle,
            "DescribeTopicPartitions": DescribeTopicPartitionsApi(parts.cluster).handle,
            "DescribeUserScramCredentials": DescribeUserScramCredentialsApi().handle,
            "DescribeReplicas": DescribeReplicasApi(lookup, parts.partitions, parts.cluster).handle,
            "DescribeMetrics": DescribeMetricsApi(registry, metrics.count).handle,
            **administration(settings, parts.cluster, controller, runtime),
        }
        self._dispatch = Dispatch(handlers, parts.cluster)
        self._handle = RequestQuota(self._dispatch.handle, usage, runtime).handle

    def _replica_choice(self) -> RackAwareChoice | None:
        settings = self._settings
        if settings.static_value(REPLICA_SELECTOR) != RACK_AWARE_SELECTOR:
            return None
        return RackAwareChoice(settings.broker_id, self._parts.cluster)

    @property
    def offered(self) -> Mapping[int, Versions]:
        """The versions of each API that are answered, by the API's key."""
        return self._dispatch.offered

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Have a request answered. A broker that does not serve yet closes the connection: the client tries again."""
        if not self._is_serving():
            raise ConnectionRefused("the broker is starting")
        self._handle(request, reply)


def _session_id() -> int:
    """An id that nobody can guess: who knows it can change what its reader gets."""
    return 1 + secrets.randbelow(2**31 - 1)


def disk_space(path: str) -> DiskSpace:
    """The size of the disk that a directory is on."""
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return DiskSpace()
    return DiskSpace(usage.total, usage.free)
