"""A complete data broker: its directories, its copy of the metadata, its partitions and its listeners.

    async with running(settings, endpoints, callbacks) as broker:
        await broker.ended()

`kraftlog.broker.shell.broker_shell` describes the start and the end. Before that the broker's own directory is locked,
and its cluster is found.
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
"""A broker's clients wait for its event loop, and no client waits for the broker to apply metadata."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """What a broker calls while it runs."""

    tell: Callable[[str], None] = lambda line: None
    """Called with a message when the broker has to wait for longer than a moment, and when the wait has ended."""
    on_progress: Callable[[RecoveryProgress], None] = lambda progress: None
    """Called with the progress of log recovery, in another thread."""
    is_debugged: bool = False
    """Whether the broker's decisions are logged at level debug."""


@asynccontextmanager
async def running(
    settings: BrokerSettings, endpoints: Sequence[Endpoint], callbacks: Callbacks = Callbacks()
) -> AsyncIterator[Broker]:
    """Run a broker that is unfenced within the block, and does a controlled shutdown at its end.

    It does so also if it is cancelled before it is unfenced. `endpoints` are nodes of the cluster. Raises ApiError,
    DirectoryError, StorageError, and OSError if a port is in use.
    """
    # Clients' administration has connections of its own: a large request on the broker's would delay heartbeats.
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
                logger.info("record reader chosen", loop=record_reader.loop.name)
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
    """Wait until the broker is unfenced.

    If it is cancelled by then it may be registered, or about to be. Without a controlled shutdown the next start would
    count as one after a crash, and its replicas would no longer be eligible.
    """
    try:
        await broker.unfenced()
    except asyncio.CancelledError:
        await broker.shut_down()
        raise


@contextmanager
def _own_directory(settings: BrokerSettings) -> Iterator[BrokerDirectory]:
    """Open the broker's own directory, which is locked within the block."""
    directory = BrokerDirectory.open(PosixFileSystem(), str(settings.directory), settings.broker_id)
    try:
        yield directory
    finally:
        # Once the broker has started, its shell closes the directory. Before that nothing has changed.
        directory.close(directory.clean_epoch if directory.is_open else None)
