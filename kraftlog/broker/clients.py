"""How a broker answers Kafka's clients: the handlers of all APIs, over its partitions and its view of the cluster."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Mapping

from kraftbase.runtime import Runtime
from kraftlog.broker.api_table import APIS, handlers
from kraftlog.broker.apis.lookups import PartitionLookup
from kraftlog.broker.apis.services import BrokerServices, DiskSpace
from kraftlog.broker.broker_metrics import ReplicaMetrics, show_broker
from kraftlog.broker.controller_channel import ControllerChannel
from kraftlog.broker.dispatch import Dispatch
from kraftlog.broker.metadata.configs_in_effect import ConfigsInEffect
from kraftlog.broker.quotas.quota_usage import QuotaUsage
from kraftlog.broker.quotas.request_quota import RequestQuota
from kraftlog.broker.settings import AUTO_CREATE_TOPICS, RACK_AWARE_SELECTOR, REPLICA_SELECTOR, BrokerSettings
from kraftlog.broker.shell.parts import Parts
from kraftlog.kafka.notation import Versions
from kraftlog.network.requests import ClientRequest, ConnectionRefused, Reply
from kraftlog.replicas.partitions.fetch_sessions import FetchSessionCache
from kraftlog.replicas.partitions.leader_throttle import LeaderThrottle
from kraftlog.replicas.partitions.replica_choice import RackAwareChoice
from kraftlog.telemetry.registry import Registry


class ClientApis:
    """The handlers of one broker. Not thread-safe."""

    def __init__(
        self,
        settings: BrokerSettings,
        parts: Parts,
        controller: ControllerChannel,
        runtime: Runtime,
        is_serving: Callable[[], bool],
        registry: Registry,
    ) -> None:
        """`controller` is for clients' requests to the controller. `is_serving` returns whether the broker serves
        clients. `registry` shows what is counted here."""
        self._settings, self._parts, self._is_serving = settings, parts, is_serving
        usage, sessions = QuotaUsage(parts.quotas), FetchSessionCache(_session_id)
        metrics = ReplicaMetrics(parts.partitions, parts.fetchers, parts.logs)
        show_broker(registry, metrics, sessions, usage)
        services = BrokerServices(
            lookup=PartitionLookup(parts.partitions, parts.cluster),
            runtime=runtime,
            usage=usage,
            sessions=sessions,
            observer=parts.observer,
            choice=self._replica_choice(),
            throttle=LeaderThrottle(parts.configs, runtime.now_ms),
            broker_id=settings.broker_id,
            cluster=parts.cluster,
            configs=ConfigsInEffect(settings, parts.cluster),
            controller=controller,
            partitions=parts.partitions,
            logs=parts.logs,
            disk_space=disk_space,
            producer_ids=parts.requests.producer_ids,
            auto_create=parts.requests if settings.is_on(AUTO_CREATE_TOPICS) else None,
            registry=registry,
            count_metrics=metrics.count,
        )
        self._dispatch = Dispatch(handlers(APIS, services), parts.cluster)
        self._handle = RequestQuota(self._dispatch.handle, usage, runtime).handle

    def _replica_choice(self) -> RackAwareChoice | None:
        settings = self._settings
        if settings.static_value(REPLICA_SELECTOR) != RACK_AWARE_SELECTOR:
            return None
        return RackAwareChoice(settings.broker_id, self._parts.cluster)

    @property
    def offered(self) -> Mapping[int, Versions]:
        """The offered versions of each API, by the API's key."""
        return self._dispatch.offered

    def handle(self, request: ClientRequest, reply: Reply) -> None:
        """Answer a request. Raises ConnectionRefused while the broker does not serve yet: the client retries."""
        if not self._is_serving():
            raise ConnectionRefused("the broker is starting")
        self._handle(request, reply)


def _session_id() -> int:
    """An unpredictable id: a client that knows another one's session id could change what that one gets."""
    return 1 + secrets.randbelow(2**31 - 1)


def disk_space(path: str) -> DiskSpace:
    """Return the size and the free space of a directory's file system; -1 each if they cannot be read."""
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return DiskSpace()
    return DiskSpace(usage.total, usage.free)
