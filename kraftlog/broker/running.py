"""A data broker as a whole: its directories, its copy of the metadata, its partitions and its listeners.

    async with running(settings, endpoints, tell) as broker:
        await broker.ended()

How it starts, in this order:

1. Its own directory is locked, and its log directories are opened and recovered.
2. It follows the metadata log, listens (without answering), and registers.
3. When it has applied its own registration it takes its partitions over. Not earlier: consider a topic that was deleted
   and made again under its name while the broker was down. By metadata from before, the new topic's log would be
   deleted, or the old one's served.
4. It answers clients, and tells the controller how far it has applied the metadata; so it is unfenced.

At its end the controller gives its partitions other leaders first. Then it closes its connections and its logs.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import structlog

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.files.files import join
from kraftbase.files.posix import PosixFileSystem
from kraftbase.runtime import AsyncioRuntime, awaited
from kraftbase.sentinels import UNKNOWN_EPOCH
from kraftbase.uuids import random_uuid, uuid_to_text
from kraftlog.admin.client.client import AdminClient
from kraftlog.broker.broker import Broker
from kraftlog.broker.clients import ClientApis
from kraftlog.broker.controller_channel import ControllerChannel
from kraftlog.broker.directory import BrokerDirectory
from kraftlog.broker.first_answer import cluster_id_when_known
from kraftlog.broker.lifecycle import BrokerLifecycle
from kraftlog.broker.loop_watch import watch_loop
from kraftlog.broker.metadata.topic_configs import last_known_configs
from kraftlog.broker.registered_epochs import RegisteredEpochs
from kraftlog.broker.settings import (
    ALLOW_PLAINTEXT,
    AUTO_CREATE_TOPICS,
    CONNECTIONS_MAX_IDLE,
    HEARTBEAT_INTERVAL,
    LOOP_REPORT_INTERVAL,
    QUEUED_BYTES,
    REQUEST_BYTES,
    BrokerSettings,
)
from kraftlog.kafka import record_reader
from kraftlog.network.serving import Limits, Listener, serving
from kraftlog.storage.loading import RecoveryProgress
from kraftlog.storage.log_manager import LogManager
from raft.observe import observe
from raft.storage.directory import META_NAME
from statemachine.apply.machine_listener import MachineListener, machine_on_loop
from statemachine.apply.run_writer import OnLoop
from statemachine.store.store import MetadataStore
from statemachine.words.config_definitions import CONNECTIONS_MAX, MAX_CONNECTIONS_PER_IP

logger = structlog.get_logger(__name__)

METADATA_NAME: Final = "metadata.db"

APPLIED_ON_LOOP: Final = OnLoop(bytes_max=4 * 1024, rows_max=64)
"""A broker's clients wait for its event loop, and nobody waits for what it applies."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Whom a broker tells what."""

    tell: Callable[[str], None] = lambda line: None
    """Called with a message when the broker has to wait for longer than a moment, and when the wait has ended."""
    on_progress: Callable[[RecoveryProgress], None] = lambda progress: None
    """Called while logs are recovered, in a thread."""


@asynccontextmanager
async def running(
    settings: BrokerSettings, endpoints: Sequence[Endpoint], callbacks: Callbacks = Callbacks()
) -> AsyncIterator[Broker]:
    """A broker that is unfenced within the block, and shuts down controlled at its end.

    `endpoints` are nodes of the cluster. Raises ApiError, DirectoryError, StorageError, and OSError if a port is taken.
    """
    # Its clients' administration has connections of its own: a large request there would delay heartbeats.
    async with AdminClient(endpoints) as client, AdminClient(endpoints) as client_of_clients:
        directory = BrokerDirectory.open(PosixFileSystem(), str(settings.directory), settings.broker_id)
        try:
            cluster_id = directory.cluster_id or await cluster_id_when_known(client, callbacks.tell)
            directory.claim(cluster_id, directory.directory_id or random_uuid())
            with (
                ThreadPoolExecutor(1, thread_name_prefix="kraftlog-logs") as executor,
                closing(MetadataStore.open(settings.directory / METADATA_NAME, cluster_id)) as store,
                machine_on_loop(store, APPLIED_ON_LOOP) as machine,
            ):
                runtime = AsyncioRuntime(executor)
                logs = await _open_logs(settings, directory, cluster_id, runtime, callbacks)
                broker = Broker(settings, cluster_id, logs, machine, client, runtime)
                following = observe(
                    endpoints,
                    MachineListener(machine),
                    start_offset=store.applied_end_offset or None,
                    cluster_id=cluster_id,
                    name=f"broker-{settings.broker_id}",
                )
                broker.run(asyncio.create_task(_endless(following)))
                try:
                    controller = ControllerChannel(client_of_clients, endpoints)
                    async with _serving(broker, client, controller, directory, runtime, callbacks):
                        yield broker
                finally:
                    await broker.stop_tasks()
        finally:
            # Once it has registered, `BrokerLifecycle.stop` has closed it. Before that nothing has changed.
            directory.close(directory.clean_epoch if directory.is_open else None)


async def _open_logs(
    settings: BrokerSettings,
    directory: BrokerDirectory,
    cluster_id: str,
    runtime: AsyncioRuntime,
    callbacks: Callbacks,
) -> LogManager:
    new_id = _directory_ids(settings, directory).__next__

    def opening() -> LogManager:
        path = settings.directory / METADATA_NAME
        with last_known_configs(path, settings.broker_id, settings.broker_configs) as configs:
            return LogManager.open(
                PosixFileSystem(),
                settings.log_paths,
                runtime,
                cluster_id=cluster_id,
                node_id=settings.broker_id,
                config_of=lambda partition: configs.log_config(partition.topic),
                on_progress=callbacks.on_progress,
                new_id=new_id,
            )

    logger.info("records are read", loop=record_reader.loop.name)
    logs = await asyncio.to_thread(opening)
    directory.note_log_directories()
    directory.trust_clean_epoch_of_logs(logs.clean_broker_epoch)
    if not logs.online:
        reasons = "; ".join([*logs.failed.values(), *(of.offline_reason for of in logs.directories)])
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"no log directory can be used: {reasons}")
    return logs


def _directory_ids(settings: BrokerSettings, directory: BrokerDirectory) -> Iterator[UUID]:
    """For new log directories: the first that a broker ever has, has the id that the broker's own directory has.

    A broker of an earlier version has registered that one, and its partitions are assigned to it. An empty directory in
    the place of one that had logs gets another id, or the controller would take it for that one with its logs.
    """
    files = PosixFileSystem()
    is_first = not directory.has_log_directories and not any(
        files.exists(join(path, META_NAME)) for path in settings.log_paths
    )
    if is_first and directory.directory_id is not None:
        yield directory.directory_id
    while True:
        yield random_uuid()


@asynccontextmanager
async def _serving(
    broker: Broker,
    client: AdminClient,
    controller: ControllerChannel,
    directory: BrokerDirectory,
    runtime: AsyncioRuntime,
    callbacks: Callbacks,
) -> AsyncIterator[None]:
    """Registered and unfenced within the block, at whose end `controller` is closed."""
    settings = broker.settings
    listening = AsyncExitStack()
    auto_create = broker.parts.requests if settings.is_on(AUTO_CREATE_TOPICS) else None
    apis = ClientApis(broker, controller, broker.parts.requests.producer_ids, auto_create, runtime)
    life: BrokerLifecycle | None = None
    try:
        listeners = [Listener(of.name, of.host, of.port) for of in settings.listeners]
        network = await listening.enter_async_context(
            serving(
                apis.handle,
                listeners,
                _limits(settings),
                apis.offered,
                on_fatal=broker.fail,
                allow_plaintext=settings.is_on(ALLOW_PLAINTEXT),
            )
        )
        broker.ports.update(network.ports)
        report_interval_ms = settings.whole(LOOP_REPORT_INTERVAL)
        broker.run(asyncio.create_task(watch_loop(network.longest_request, report_interval_ms)))
        life = _lifecycle(broker, client, directory, callbacks, runtime)
        life.start()
        broker.run(asyncio.create_task(_endless(life.ended())))
        await broker.unless_ended(asyncio.create_task(_take_over(broker, life)))
        broker.is_serving = True
        await broker.unless_ended(asyncio.create_task(life.unfenced()))
        yield
        await life.shut_down()
    finally:
        broker.parts.fetchers.stop()
        broker.parts.isr_changes.stop()
        await controller.close()  # while the answers can still be sent
        await listening.aclose()
        broker.parts.assignments.stop()
        await broker.close_channels()
        broker.leave_metadata()
        broker.parts.maintenance.stop()
        await broker.stop_tasks()  # nothing else may touch the logs while they are closed, in a thread
        broker.logs.stop_work()  # from here on there are no flushes but those that somebody waits for
        await awaited(functools.partial(runtime.run_on_disk, lambda: None))  # what was begun in the thread has ended
        while not all(directory.commits.is_idle for directory in broker.logs.online):
            await awaited(functools.partial(runtime.run_on_disk, lambda: None))
        clean_epoch = directory.clean_epoch if life is None else life.clean_epoch
        is_clean = await asyncio.to_thread(broker.logs.close, UNKNOWN_EPOCH if clean_epoch is None else clean_epoch)
        if life is not None:
            await life.stop(is_clean=is_clean)


def _limits(settings: BrokerSettings) -> Limits:
    return Limits(
        connections_max=int(settings.broker_value(CONNECTIONS_MAX)),
        address_connections_max=int(settings.broker_value(MAX_CONNECTIONS_PER_IP)),
        request_bytes_max=settings.whole(REQUEST_BYTES),
        queued_bytes_max=settings.whole(QUEUED_BYTES),
        idle_timeout_ms=settings.whole(CONNECTIONS_MAX_IDLE),
    )


def _lifecycle(
    broker: Broker,
    client: AdminClient,
    directory: BrokerDirectory,
    callbacks: Callbacks,
    runtime: AsyncioRuntime,
) -> BrokerLifecycle:
    settings = broker.settings
    online = broker.logs.online
    return BrokerLifecycle(
        client,
        broker_id=settings.broker_id,
        listeners=[settings.advertised_as(name, port) for name, port in broker.ports.items()],
        rack=settings.rack,
        log_dirs=[uuid_to_text(of.directory_id) for of in online],
        heartbeat_interval_ms=settings.whole(HEARTBEAT_INTERVAL),
        metadata_offset=broker.applied_end_offset,
        directory=directory,
        offline_log_dirs=broker.offline_directories,
        log_dir_space=broker.parts.maintenance.room.told,
        tell=callbacks.tell,
        epochs=RegisteredEpochs(PosixFileSystem(), online, runtime),
    )


async def _take_over(broker: Broker, life: BrokerLifecycle) -> None:
    await life.registered()
    broker.epoch_of = lambda: life.last_broker_epoch

    def log_lost() -> None:
        broker.log_lost()
        life.tell_now()

    for directory in broker.logs.directories:
        directory.on_lost = functools.partial(asyncio.get_running_loop().call_soon, log_lost)
        directory.full_disk.on_change = life.tell_now
    await broker.take_over(life.broker_epoch)
    broker.parts.assignments.start()
    broker.parts.maintenance.start()


async def _endless(work: Awaitable[object]) -> None:
    await work
