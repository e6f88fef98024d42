"""A data broker: its partitions, its view of the cluster, and what makes it end."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Final

import structlog

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.runtime import Runtime, awaited
from kraftbase.types import Offset
from kraftbase.uuids import uuid_to_text
from kraftlog.admin.client.client import AdminClient
from kraftlog.broker.controller_channel import ControllerChannel
from kraftlog.broker.controller_link import ControllerLink
from kraftlog.broker.metadata.cluster_view import ClusterView
from kraftlog.broker.metadata.in_order import InOrder
from kraftlog.broker.metadata.topic_configs import TopicConfigs
from kraftlog.broker.settings import (
    CHECKPOINT_INTERVAL,
    HEARTBEAT_INTERVAL,
    HIGH_WATERMARK_CHECKPOINT_INTERVAL,
    PRODUCER_EXPIRATION_CHECK_INTERVAL,
    REPLICA_FETCH_BACKOFF,
    REPLICA_FETCH_BYTES,
    REPLICA_FETCH_BYTES_MIN,
    REPLICA_FETCH_RESPONSE_BYTES,
    REPLICA_FETCH_WAIT_MAX,
    REPLICA_LAG_MAX,
    REPLICA_SOCKET_TIMEOUT,
    RETENTION_CHECK_INTERVAL,
    BrokerSettings,
)
from kraftlog.broker.shell.directory_assignments import AssignmentsPace
from kraftlog.broker.shell.maintenance import MaintenanceIntervals
from kraftlog.broker.shell.parts import Parts, PartsPorts, PartsSettings
from kraftlog.replicas.leader_connection import BrokerConnections
from kraftlog.replicas.replication.replica_fetcher import FetchSettings
from kraftlog.storage.log_manager import LogManager
from statemachine.apply.machine import MetadataMachine

APPLIED_TIMEOUT_MS: Final = 60_000
"""How long a starting broker waits for its own registration before it says so, and waits on."""

logger = structlog.get_logger(__name__)


class Broker:
    """A broker that serves, for one event loop. Use `running`."""

    def __init__(
        self,
        settings: BrokerSettings,
        cluster_id: str,
        logs: LogManager,
        machine: MetadataMachine,
        client: AdminClient,
        runtime: Runtime,
    ) -> None:
        """`client` is the broker's own, which stays its owner's."""
        self.settings = settings
        self.logs = logs
        self.machine = machine
        self.cluster = ClusterView(cluster_id)
        self.configs = TopicConfigs(settings.broker_id, settings.broker_configs)
        self._link, self._channel = ControllerLink(client, self.fail), ControllerChannel(client, ())
        work = _settings_of_parts(settings)
        ports = PartsPorts(
            runtime=runtime,
            controller=self._link,
            operations=self._channel,
            connector=BrokerConnections(
                lambda broker_id: self.cluster.node(broker_id, settings.inter_broker_listener),
                client_id=f"broker-{settings.broker_id}-fetcher",
                timeout_ms=work.fetch.wait_max_ms + settings.whole(REPLICA_SOCKET_TIMEOUT),
                on_fatal=self.fail,
            ),
            broker_epoch=lambda: self.epoch,
            on_failed=self.fail,
        )
        self.parts = Parts(work, ports, logs=logs, cluster=self.cluster, configs=self.configs)
        self.quotas = self.parts.quotas
        self.partitions = self.parts.partitions
        self.ports: dict[str, int] = {}
        """By listener, the port that it is bound to."""
        self.epoch_of: Callable[[], int] = lambda: -1
        """Returns the epoch of its last registration, -1 before the first."""
        self.is_serving = False
        """Whether it answers clients."""
        self._publisher: InOrder | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def epoch(self) -> int:
        """The epoch of its last registration."""
        return self.epoch_of()

    def run(self, work: asyncio.Task[None]) -> None:
        """Have the broker end when `work` does."""
        self._tasks.append(work)

    def fail(self, error: BaseException) -> None:
        """End the broker: it cannot go on."""
        if not self._failed.done():
            self._failed.set_exception(error)

    async def ended(self) -> None:
        """Wait until it cannot go on; raises why."""
        await asyncio.wait((self._failed, *self._tasks), return_when=asyncio.FIRST_COMPLETED)
        for done in (self._failed, *self._tasks):
            if done.done():
                done.result()

    async def unless_ended(self, work: asyncio.Task[None]) -> None:
        """Wait for `work`; raises what ends the broker before."""
        ending = asyncio.create_task(self.ended())
        try:
            await asyncio.wait((work, ending), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                await ending
            await work
        finally:
            for task in (work, ending):
                task.cancel()
            await asyncio.gather(work, ending, return_exceptions=True)

    async def stop_tasks(self) -> None:
        """Cancel what runs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._failed.cancel()

    async def close_channels(self) -> None:
        """Ask the controller for nothing any more."""
        await self._channel.close()
        await self._link.close()

    # --- metadata -----------------------------------------------------------------------------------------------------

    async def applied_end_offset(self) -> int:
        """What it tells the controller: nothing until it has taken its partitions over, so it is not unfenced."""
        return self.machine.applied_end_offset if self.is_serving else 0

    async def take_over(self, broker_epoch: int) -> None:
        """Apply its own registration, then take its partitions over."""
        while True:
            try:
                await awaited(
                    functools.partial(self.machine.wait_applied, Offset(broker_epoch + 1), APPLIED_TIMEOUT_MS)
                )
                break
            except ApiError as error:
                if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                    raise
                logger.warning("the broker waits for its own registration", reason=str(error))
        is_taken_over = asyncio.Event()
        on_changed = functools.partial(self.partitions.when_level, is_taken_over.set)
        self._publisher = InOrder(self.parts.publishers, on_changed, self.fail)
        self.machine.install_publisher(self._publisher)
        await is_taken_over.wait()

    def leave_metadata(self) -> None:
        """Carry out no change of the metadata any more."""
        if self._publisher is not None:
            self._publisher.stop()
        self.partitions.stop()

    # --- log directories ----------------------------------------------------------------------------------------------

    def offline_directories(self) -> list[str]:
        """The ids of the directories that have failed since the start."""
        return [uuid_to_text(of.directory_id) for of in self.logs.directories if of.offline_reason]

    def log_lost(self) -> None:
        """A directory or a partition has gone offline."""
        self.partitions.check_logs()
        if not self.logs.online:
            self.fail(
                ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "all log directories are offline; repair one, and restart")
            )


def _settings_of_parts(settings: BrokerSettings) -> PartsSettings:
    return PartsSettings(
        broker_id=settings.broker_id,
        lag_max_ms=settings.whole(REPLICA_LAG_MAX),
        fetch=FetchSettings(
            wait_max_ms=settings.whole(REPLICA_FETCH_WAIT_MAX),
            min_bytes=settings.whole(REPLICA_FETCH_BYTES_MIN),
            max_bytes=settings.whole(REPLICA_FETCH_BYTES),
            response_max_bytes=settings.whole(REPLICA_FETCH_RESPONSE_BYTES),
            backoff_ms=settings.whole(REPLICA_FETCH_BACKOFF),
        ),
        intervals=MaintenanceIntervals(
            retention_ms=settings.whole(RETENTION_CHECK_INTERVAL),
            checkpoint_ms=settings.whole(CHECKPOINT_INTERVAL),
            high_watermarks_ms=settings.whole(HIGH_WATERMARK_CHECKPOINT_INTERVAL),
            isr_ms=settings.whole(REPLICA_LAG_MAX) / 2,
            producers_ms=settings.whole(PRODUCER_EXPIRATION_CHECK_INTERVAL),
            room_ms=settings.whole(HEARTBEAT_INTERVAL),
        ),
        assignments=AssignmentsPace(),
    )
