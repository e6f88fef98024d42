"""One node of the metadata service as a process: replica, state machine, controller and admin service, wired."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import grpc.aio
import structlog

from kraftlog.config import NodeConfig
from kraftpb.v1 import admin_pb2, admin_pb2_grpc, snapshot_pb2, snapshot_pb2_grpc
from raft.client import RaftClient
from raft.core.types import Offset
from raft.host import HostedState, hosted_node
from raft.listener import Listener
from raft.node import Node, OnListenerFault, end_by_listener_fault, end_process
from raft.runtime import AsyncioRuntime
from raft.storage.directory import DataDirectory
from raft.storage.posix import PosixFileSystem
from raft.storage.segmented_log import SegmentedLog
from snapshot.store import SnapshotStore
from statemachine.applied import Subscriber
from statemachine.controller import Controller
from statemachine.controller_registration import ControllerRegistration, registration_of
from statemachine.fetch_version import FetchVersionGate, allowed_fetch_version
from statemachine.machine import MetadataMachine
from statemachine.service import AdminServicer
from statemachine.snapshot_generator import SnapshotGenerator
from statemachine.snapshot_service import SnapshotServicer
from statemachine.store import MetadataStore
from statemachine.watching import Watcher

SERVICES: Final = (
    admin_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name,
    snapshot_pb2.DESCRIPTOR.services_by_name["SnapshotService"].full_name,
)

SWITCH_INTERVAL_SECONDS: Final = 0.0005
"""While a thread applies much, the event loop gets the interpreter back after so long, each time it has read SQLite."""

logger = structlog.get_logger(__name__)


async def serve(
    config: NodeConfig,
    *,
    extra_listeners: Sequence[Listener] = (),
    watchers: Sequence[Watcher] = (),
    subscribers: Sequence[Subscriber] = (),
    ready: Callable[[], None] | None = None,
    on_listener_fault: OnListenerFault = end_by_listener_fault,
) -> None:
    """Be the node's process until SIGTERM or SIGINT, then shut it down gracefully: resign first, then stop serving.

    `watchers` are told what each commit changes in the metadata, `subscribers` only how far it is applied. `ready` is
    called when the node answers. A listener that raises ends the process, with an error that names it, unless
    `on_listener_fault` is another, such as `raft.node.log_listener_fault`: then the node goes on without it. Raises
    DirectoryError, StorageError or ConfigurationError if it cannot start; nothing is half-started then.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with running_node(config, watchers, subscribers, on_listener_fault) as node:
        for listener in extra_listeners:
            RaftClient(node).register(listener)
        if ready is not None:
            ready()
        await stop.wait()
        logger.info("shutting down", node=config.node_id)


@dataclass(frozen=True, slots=True)
class _Metadata:
    """What this node makes of the log, and its snapshots."""

    store: MetadataStore
    machine: MetadataMachine
    snapshots: SnapshotStore
    generator: SnapshotGenerator


@contextlib.asynccontextmanager
async def running_node(
    config: NodeConfig,
    watchers: Sequence[Watcher] = (),
    subscribers: Sequence[Subscriber] = (),
    on_listener_fault: OnListenerFault = end_by_listener_fault,
) -> AsyncIterator[Node]:
    """A whole node, serving, for as long as the context lasts; `serve` says what `on_listener_fault` is."""
    with contextlib.ExitStack() as resources:
        directory = resources.enter_context(
            contextlib.closing(DataDirectory.open(PosixFileSystem(), str(config.directory), node_id=config.node_id))
        )
        metadata = resources.enter_context(_opened_metadata(config, directory))
        for subscriber in subscribers:
            metadata.machine.subscribe(subscriber)
        async with hosted_node(
            directory,
            endpoint=config.advertised_endpoint,
            listen_on=config.listener,
            voters=config.voter_set,
            bootstrap_endpoints=config.bootstrap_servers,
            config=config.quorum,
            log_config=config.log,
            log_start=config.log_start,
            state=_hosted_state(metadata, is_voter=config.is_voter),
            add_services=partial(_add_metadata_services, config, metadata, watchers),
            on_listener_fault=partial(_on_listener_fault, metadata.machine, on_listener_fault),
        ) as node:
            try:
                async with _registering(config, metadata):
                    yield node
            finally:
                await metadata.generator.close()


@contextlib.asynccontextmanager
async def _registering(config: NodeConfig, metadata: _Metadata) -> AsyncIterator[None]:
    """Whoever may become the active controller makes itself known, as soon as there is one."""
    if not config.is_voter:
        yield
        return
    controllers = [voter.endpoint for voter in config.voter_set.voters()]
    request = registration_of(config.node_id, config.advertised_endpoint)
    registration = ControllerRegistration(metadata.store, controllers, request)
    metadata.machine.subscribe(registration)
    running = asyncio.create_task(registration.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@contextlib.contextmanager
def _opened_metadata(config: NodeConfig, directory: DataDirectory) -> Iterator[_Metadata]:
    snapshots = SnapshotStore(directory.files, directory.snapshots_path)
    store = MetadataStore.open(
        Path(directory.metadata_database_path),
        directory.identity.cluster_id,
        forget_snapshots=snapshots.delete_all,
    )
    with contextlib.closing(store):
        machine = MetadataMachine(store)
        generator = SnapshotGenerator(store, snapshots.directory, config.snapshots)
        machine.subscribe(generator)
        yield _Metadata(store, machine, snapshots, generator)


def _hosted_state(metadata: _Metadata, *, is_voter: bool) -> HostedState:
    """What the state machine and the node have to tell each other."""
    return HostedState(
        # What is applied was durable. A voter whose log ends before it could vote away what others have committed; an
        # observer just fetches it again, and its store is made anew.
        minimum_durable_offset=metadata.store.applied_end_offset if is_voter else Offset(0),
        take_up=partial(_take_up_state, metadata),
        fetch_version_allowed=partial(allowed_fetch_version, metadata.store),
        applied_end_offset=lambda: metadata.machine.applied_end_offset,
        snapshots=metadata.snapshots,
        on_snapshot_damaged=metadata.generator.replace_damaged,
        on_diverged=metadata.machine.fence,
    )


def _take_up_state(metadata: _Metadata, log: SegmentedLog) -> Offset:
    if log.recovering is None:  # else the log is shorter than what was rightly applied, for a while
        metadata.store.rebuild_if_ahead(log.log_end_offset, log.epochs)
        metadata.machine.resume()
    return metadata.store.applied_end_offset


def _on_listener_fault(
    machine: MetadataMachine, of_others: OnListenerFault, listener: Listener, error: Exception
) -> None:
    if listener is machine:
        end_process(error)  # a replica that cannot apply a committed record must not go on (CT-18)
    of_others(listener, error)


def _add_metadata_services(
    config: NodeConfig, metadata: _Metadata, watchers: Sequence[Watcher], server: grpc.aio.Server, node: Node
) -> Sequence[str]:
    """Let the node have its controller, feed the state machine, and serve both; the services' full names."""
    client, machine = RaftClient(node), metadata.machine
    metadata.generator.tell(node.snapshot_taken)
    controller = Controller(
        client,
        metadata.store,
        machine,
        runtime=AsyncioRuntime(),
        random=random.Random(),  # noqa: S311 (no secret)
        config=config.controller,
    )
    machine.subscribe(FetchVersionGate(metadata.store, client.allow_fetch_version))
    machine.report_state_digests_to(client.report_state_digest)
    for watcher in watchers:
        machine.watch(watcher)
    client.register(machine, start_offset=metadata.store.applied_end_offset or None)
    admin_pb2_grpc.add_AdminServiceServicer_to_server(AdminServicer(controller, metadata.store, machine), server)
    servicer = SnapshotServicer(config.node_id, metadata.snapshots, metadata.generator, machine)
    snapshot_pb2_grpc.add_SnapshotServiceServicer_to_server(servicer, server)
    return SERVICES
