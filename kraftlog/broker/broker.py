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
from kraftlog.broker.metadata.cluster_view import ClusterView
from kraftlog.broker.metadata.in_order import InOrder
from kraftlog.broker.metadata.own_registration import OwnRegistration
from kraftlog.broker.metadata.topic_configs import TopicConfigs
from kraftlog.broker.quotas.client_quotas import ClientQuotas
from kraftlog.broker.settings import REPLICA_LAG_MAX, BrokerSettings
from kraftlog.replicas.partitions.partition import Replication
from kraftlog.replicas.partitions.partitions import Partitions
from kraftlog.storage.log_manager import LogManager
from statemachine.apply.machine import MetadataMachine

APPLIED_TIMEOUT_MS: Final = 60_000
"""How long a starting broker waits for its own registration before it says so, and waits on."""

logger = structlog.get_logger(__name__)


class Broker:
    """A broker that serves, for one event loop. Use `running`."""

    def __init__(
        self, settings: BrokerSettings, cluster_id: str, logs: LogManager, machine: MetadataMachine, runtime: Runtime
    ) -> None:
        self.settings = settings
        self.logs = logs
        self.machine = machine
        self.cluster = ClusterView(cluster_id)
        self.configs = TopicConfigs(settings.broker_id, settings.broker_configs)
        self.quotas = ClientQuotas()
        self.registration = OwnRegistration(settings.broker_id, lambda: self.epoch)
        replication = Replication(settings.broker_id, self.cluster, settings.whole(REPLICA_LAG_MAX), runtime.now_ms)
        self.partitions = Partitions(logs, self.configs, replication)
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
        parts = (self.registration, self.cluster, self.configs, self.quotas, self.partitions)
        self.partitions.on_failed = self.fail
        self._publisher = InOrder(parts, lambda: self.partitions.when_level(is_taken_over.set), self.fail)
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
