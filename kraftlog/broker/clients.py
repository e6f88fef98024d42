"""What a broker answers to Kafka's clients: every API's handler, over its partitions and its view of the cluster."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping

from kraftbase.runtime import Runtime
from kraftlog.broker.administration import administration
from kraftlog.broker.apis.cluster import DescribeClusterApi, DescribeTopicPartitionsApi
from kraftlog.broker.apis.coordinators import FindCoordinatorApi, OffsetFetchApi
from kraftlog.broker.apis.init_producer_id import InitProducerIdApi
from kraftlog.broker.apis.logs import DescribeLogDirsApi, DiskSpace
from kraftlog.broker.apis.lookups import PartitionLookup
from kraftlog.broker.apis.metadata import AutoCreate, MetadataApi
from kraftlog.broker.apis.replicas import DescribeReplicasApi
from kraftlog.broker.apis.scram_credentials import DescribeUserScramCredentialsApi
from kraftlog.broker.broker import Broker
from kraftlog.broker.controller_channel import ControllerChannel
from kraftlog.broker.dispatch import Dispatch
from kraftlog.broker.producer_ids import ProducerIds
from kraftlog.broker.quotas.quota_usage import QuotaUsage
from kraftlog.broker.quotas.request_quota import RequestQuota
from kraftlog.broker.record_handlers import record_handlers
from kraftlog.broker.settings import RACK_AWARE_SELECTOR, REPLICA_SELECTOR
from kraftlog.kafka.notation import Versions
from kraftlog.network.requests import ClientRequest, ConnectionRefused, Handler, Reply
from kraftlog.replicas.partitions.replica_choice import RackAwareChoice
from kraftlog.replicas.partitions.sent_to_followers import SentToFollowers


class ClientApis:
    """The handlers of one broker. For one thread."""

    def __init__(
        self,
        broker: Broker,
        controller: ControllerChannel,
        producer_ids: ProducerIds,
        auto_create: AutoCreate | None,
        runtime: Runtime,
    ) -> None:
        self._broker = broker
        lookup = PartitionLookup(broker.partitions, broker.cluster)
        usage = QuotaUsage(broker.quotas)
        handlers: Mapping[str, Handler] = {
            **record_handlers(
                lookup,
                broker.logs,
                runtime,
                usage,
                new_session_id=_session_id,
                choice=self._replica_choice(),
                throttle=SentToFollowers(broker.configs, runtime.now_ms),
            ),
            "Metadata": MetadataApi(broker.cluster, auto_create).handle,
            "FindCoordinator": FindCoordinatorApi(broker.settings.broker_id, broker.cluster).handle,
            "OffsetFetch": OffsetFetchApi(broker.cluster).handle,
            "InitProducerId": InitProducerIdApi(producer_ids).handle,
            "DescribeLogDirs": DescribeLogDirsApi(broker.logs, disk_space).handle,
            "DescribeCluster": DescribeClusterApi(broker.cluster).handle,
            "DescribeTopicPartitions": DescribeTopicPartitionsApi(broker.cluster).handle,
            "DescribeUserScramCredentials": DescribeUserScramCredentialsApi().handle,
            "DescribeReplicas": DescribeReplicasApi(lookup, broker.partitions, broker.cluster).handle,
            **administration(broker.settings, broker.cluster, controller, runtime),
        }
        self._dispatch = Dispatch(handlers, broker.cluster)
        self._handle = RequestQuota(self._dispatch.handle, usage, runtime).handle

    def _replica_choice(self) -> RackAwareChoice | None:
        settings = self._broker.settings
        if settings.static_value(REPLICA_SELECTOR) != RACK_AWARE_SELECTOR:
            return None
        return RackAwareChoice(settings.broker_id, self._broker.cluster)

    @property
    def offered(self) -> Mapping[int, Versions]:
        """The versions of each API that are answered, by the API's key."""
        return self._dispatch.offered

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Have a request answered. A broker that does not serve yet closes the connection: the client tries again."""
        if not self._broker.is_serving:
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
