"""A data broker as a whole: its directories, its copy of the metadata, its partitions and its listeners.

    async with running(settings, endpoints, callbacks) as broker:
        await broker.ended()

How it starts and ends is `kraftlog.broker.shell.broker_shell`. Before that its own directory is locked, and the cluster
is found to which it belongs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from kraftbase.endpoint import Endpoint
from kraftbase.files.posix import PosixFileSystem
from kraftbase.runtime import AsyncioRuntime
from kraftbase.uuids import random_uuid
from kraftlog.admin.client.client import AdminClient
from kraftlog.broker.broker import Broker
from kraftlog.broker.directory import BrokerDirectory
from kraftlog.broker.first_answer import cluster_id_when_known
from kraftlog.broker.settings import BrokerSettings
from kraftlog.broker.shell_settings import shell_settings
from kraftlog.kafka import record_reader
from kraftlog.storage.loading import RecoveryProgress
from raft.observe import observe
from statemachine.apply.machine_listener import MachineListener, machine_on_loop
from statemachine.apply.run_writer import OnLoop
from statemachine.store.store import MetadataStore

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
    is_debugged: bool = False
    """Whether the log has a line at level debug for what it decides."""


@asynccontextmanager
async def running(
    settings: BrokerSettings, endpoints: Sequence[Endpoint], callbacks: Callbacks = Callbacks()
) -> AsyncIterator[Broker]:
    """A broker that is unfenced within the block, and shuts down controlled at its end.

    If it is cancelled before, it shuts down controlled as well. `endpoints` are nodes of the cluster. Raises ApiError,
    DirectoryError, StorageError, and OSError if a port is taken.
    """
    # Its clients' administration has connections of its own: a large request there would delay heartbeats.
    async with AdminClient(endpoints) as client, AdminClient(endpoints) as client_of_clients:
        with _own_directory(settings) as directory:
            cluster_id = directory.cluster_id or await cluster_id_when_known(client, callbacks.tell)
            directory.claim(cluster_id, directory.directory_id or random_uuid())
            metadata_path = settings.directory / METADATA_NAME
            with (
                ThreadPoolExecutor(1, thread_name_prefix="kraftlog-logs") as executor,
                closing(MetadataStore.open(metadata_path, cluster_id)) as store,
                machine_on_loop(store, APPLIED_ON_LOOP) as machine,
            ):
                logger.info("records are read", loop=record_reader.loop.name)
                broker = Broker(
                    settings,
                    shell_settings(settings, cluster_id, metadata_path, callbacks.on_progress),
                    endpoints=endpoints,
                    client=client,
                    client_of_clients=client_of_clients,
                    directory=directory,
                    machine=machine,
                    following=partial(
                        observe,
                        endpoints,
                        MachineListener(machine),
                        start_offset=store.applied_end_offset or None,
                        cluster_id=cluster_id,
                        name=f"broker-{settings.broker_id}",
                    ),
                    runtime=AsyncioRuntime(executor),
                    tell=callbacks.tell,
                    is_debugged=callbacks.is_debugged,
                )
                broker.start()
                try:
                    await _unfenced(broker)
                    yield broker
                    await broker.shut_down()
                finally:
                    await broker.close()


async def _unfenced(broker: Broker) -> None:
    """Wait until it is unfenced.

    Who is told to stop by then may have registered, or be about to: without a controlled shutdown the next start would
    count as one after a crash, and its replicas would be eligible no longer.
    """
    try:
        await broker.unfenced()
    except asyncio.CancelledError:
        await broker.shut_down()
        raise


@contextmanager
def _own_directory(settings: BrokerSettings) -> Iterator[BrokerDirectory]:
    """Locked within the block."""
    directory = BrokerDirectory.open(PosixFileSystem(), str(settings.directory), settings.broker_id)
    try:
        yield directory
    finally:
        # Once the broker has begun, its shell has closed it. Before that nothing has changed.
        directory.close(directory.clean_epoch if directory.is_open else None)
