"""One node of the metadata service as a process: it connects replica, state machine, controller and admin service."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import grpc.aio
import structlog

from kraftbase.files.posix import PosixFileSystem
from kraftbase.interpreter import keep_what_is_there, take_turns
from kraftbase.runtime import AsyncioRuntime, awaited
from kraftbase.stop_signals import on_stop_signals
from kraftbase.uuids import uuid_to_text
from kraftlog import __version__
from kraftlog.admin.server.service import AdminServicer
from kraftlog.admin.server.snapshot_service import SnapshotServicer
from kraftlog.config.config import NodeConfig
from kraftlog.controller.controller import Controller
from kraftlog.process.controller_registration import ControllerRegistration, registration_of
from kraftlog.process.listener_probe import ListenerProbe
from kraftpb.v1 import admin_pb2, admin_pb2_grpc, snapshot_pb2, snapshot_pb2_grpc
from raft.client import RaftClient
from raft.core.types import OffsetAndEpoch, ReplicaKey
from raft.core.voters import VoterSet
from raft.delivery import AnyListener
from raft.host import HostedState, hosted_node
from raft.listener import Listener
from raft.node import Node, OnListenerFault, end_by_listener_fault, end_process
from raft.shell.decision_log import DecisionLog
from raft.shell.starting_voters import starting_voters
from raft.storage.directory import DataDirectory
from snapshot.store import SnapshotStore
from statemachine.apply.applied import Subscriber
from statemachine.apply.fetch_version import FetchVersionGate, allowed_fetch_version
from statemachine.apply.machine import MetadataMachine
from statemachine.apply.machine_listener import machine_on_loop
from statemachine.apply.publishers import MetadataPublisher
from statemachine.store.scrubber import Scrubber
from statemachine.store.snapshot_generator import SnapshotGenerator
from statemachine.store.snapshot_process import SnapshotProcess
from statemachine.store.store import MetadataStore

SERVICES: Final = (
    admin_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name,
    snapshot_pb2.DESCRIPTOR.services_by_name["SnapshotService"].full_name,
)

logger = structlog.get_logger(__name__)


async def serve(
    config: NodeConfig,
    *,
    extra_listeners: Sequence[Listener] = (),
    publishers: Sequence[MetadataPublisher] = (),
    subscribers: Sequence[Subscriber] = (),
    ready: Callable[[], None] | None = None,
    on_listener_fault: OnListenerFault = end_by_listener_fault,
) -> None:
    """Run the node until SIGTERM, SIGINT or SIGHUP, then shut it down gracefully: resign first, then stop serving.

    `publishers` are notified of what each commit changes in the metadata, `subscribers` only of how far it is applied.
    `ready` is called when the node answers requests. A listener that raises ends the process, with an error that names
    the listener, unless `on_listener_fault` is another function, such as `raft.node.log_listener_fault`: then the node
    continues without the listener. Raises DirectoryError, StorageError or ConfigurationError if the node cannot start;
    no part of it is running then.
    """
    take_turns()
    keep_what_is_there()
    stop = asyncio.Event()
    on_stop_signals(stop.set)
    while not stop.is_set():
        may_rebuild = asyncio.Event()
        # The caller's own listeners have received everything once, and would receive it again.
        on_may_rebuild = may_rebuild.set if not extra_listeners else lambda: None
        async with running_node(config, publishers, subscribers, on_listener_fault, on_may_rebuild) as node:
            for listener in extra_listeners:
                RaftClient(node).register(listener)
            if ready is not None:
                ready()
            await _first_of(stop, may_rebuild)
            if stop.is_set():
                logger.info("shutting down", node=config.node_id)
            else:
                logger.warning("starting over, to rebuild the metadata database", node=config.node_id)


async def _first_of(*events: asyncio.Event) -> None:
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


@dataclass(frozen=True, slots=True)
class _Metadata:
    """This node's state machine and its snapshots."""

    store: MetadataStore
    machine: MetadataMachine
    snapshots: SnapshotStore
    generator: SnapshotGenerator
    is_new: bool
    """Whether the store was empty when it was opened."""


@contextlib.asynccontextmanager
async def running_node(
    config: NodeConfig,
    publishers: Sequence[MetadataPublisher] = (),
    subscribers: Sequence[Subscriber] = (),
    on_listener_fault: OnListenerFault = end_by_listener_fault,
    on_may_rebuild: Callable[[], None] = lambda: None,
) -> AsyncIterator[Node]:
    """Run a whole node for as long as the context lasts; see `serve` for `on_listener_fault`.

    `on_may_rebuild` is called when the node's metadata differs from what the log yields, no other voter rebuilds its
    database, and opening the node again would rebuild this one.
    """
    with contextlib.ExitStack() as resources:
        directory = resources.enter_context(
            contextlib.closing(DataDirectory.open(PosixFileSystem(), str(config.directory), node_id=config.node_id))
        )
        metadata = resources.enter_context(_opened_metadata(config, directory))
        _tell_of_start(config, metadata)
        voters = _starting_voters(config, directory)
        key = ReplicaKey(directory.identity.node_id, directory.identity.directory_id)
        for subscriber in subscribers:
            metadata.machine.subscribe(subscriber)
        probe = ListenerProbe()
        async with hosted_node(
            directory,
            endpoint=config.advertised_endpoint,
            listen_on=config.listener,
            replicas_listen_on=config.controller_listener,
            client_endpoints=dict(config.client_listeners),
            voters=voters,
            bootstrap_endpoints=config.bootstrap_servers,
            config=config.quorum,
            log_config=config.log,
            log_start=config.log_start,
            limits=config.service,
            state=_hosted_state(metadata, on_may_rebuild),
            add_services=partial(_add_metadata_services, config, metadata, publishers, probe),
            on_listener_fault=partial(_on_listener_fault, metadata.machine, on_listener_fault),
            observer=DecisionLog() if config.log_level == "debug" else None,
        ) as node:
            try:
                async with _registering(config, voters, key, metadata), _scrubbing(config, metadata, node):
                    yield node
            finally:
                await probe.close()
                await awaited(lambda on_done: metadata.generator.close(partial(on_done, None)))


@contextlib.asynccontextmanager
async def _registering(
    config: NodeConfig, voters: VoterSet, key: ReplicaKey, metadata: _Metadata
) -> AsyncIterator[None]:
    """Register a node that may become the active controller, as soon as there is an active controller."""
    if not voters.is_voter(key):
        yield
        return
    controllers = [endpoint for _, endpoint in config.client_listeners] or [voter.endpoint for voter in voters.voters()]
    request = registration_of(config.node_id, config.client_endpoint)
    registration = ControllerRegistration(metadata.store, controllers, request)
    metadata.machine.subscribe(registration)
    running = asyncio.create_task(registration.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def _tell_of_start(config: NodeConfig, metadata: _Metadata) -> None:
    """Log one line about the program, its configuration and the state found. The log of the quorum logs its own."""
    latest = metadata.snapshots.latest()
    logger.info(
        "starting",
        version=__version__,
        node=config.node_id,
        role="voter" if config.is_voter else "observer",
        listener=str(config.listener),
        directory=str(config.directory),
        voters=[f"{node_id}@{endpoint}" for node_id, endpoint in config.voters],
        applied_end_offset=metadata.store.applied_end_offset,
        latest_snapshot=None if latest is None else str(latest),
    )


def _starting_voters(config: NodeConfig, directory: DataDirectory) -> VoterSet:
    """Return the voters, and log a line if they may not be what the operator expects."""
    voters, source = starting_voters(directory, config.voter_set)
    key = ReplicaKey(directory.identity.node_id, directory.identity.directory_id)
    logger.info("voters known", node=config.node_id, source=source.value, kraft_version=int(voters.has_directory_ids))
    if not voters.has_directory_ids:
        logger.warning(
            "the voters have no directory ids: a replaced disk cannot be distinguished from the earlier one; see"
            " docs/operations/voters.md",
            node=config.node_id,
        )
    if voters.get(config.node_id) is not None and not voters.is_voter(key):
        logger.error(
            "the voter set has another directory id for this node: it follows the leader and does not vote; see"
            " docs/operations/replacing-a-disk.md",
            node=config.node_id,
            directory_id=uuid_to_text(directory.identity.directory_id),
        )
    return voters


@contextlib.asynccontextmanager
async def _scrubbing(config: NodeConfig, metadata: _Metadata, node: Node) -> AsyncIterator[None]:
    """Scrub the stored metadata periodically; corruption stops the state machine."""

    def on_corruption(reason: str) -> None:
        metadata.machine.fence_corrupt(reason)
        RaftClient(node).state_machine_fenced()

    metadata.generator.set_corruption_callback(on_corruption)
    metadata.machine.set_corruption_callback(on_corruption)
    scrubber = Scrubber(metadata.store, config.scrub_interval_ms, on_corruption, is_new=metadata.is_new)
    running = asyncio.create_task(scrubber.run())
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
        read_max_ms=config.read_max_ms,
    )
    with contextlib.closing(store), machine_on_loop(store) as machine:
        runtime = AsyncioRuntime()
        take_snapshot = SnapshotProcess(store.path, snapshots.directory, runtime)
        generator = SnapshotGenerator(store, take_snapshot, config.snapshots, runtime)
        machine.subscribe(generator)
        yield _Metadata(store, machine, snapshots, generator, is_new=store.applied.end_offset == 0)


def _hosted_state(metadata: _Metadata, on_may_rebuild: Callable[[], None]) -> HostedState:
    """Pass events between the state machine and the node."""
    applied = metadata.store.applied
    return HostedState(
        applied=OffsetAndEpoch(epoch=applied.epoch, offset=applied.end_offset),
        fetch_version_allowed=partial(allowed_fetch_version, metadata.store),
        applied_end_offset=lambda: metadata.machine.applied_end_offset,
        is_sole_writer=True,
        snapshots=metadata.snapshots,
        on_snapshot_damaged=metadata.generator.replace_damaged,
        on_diverged=metadata.machine.fence,
        on_may_rebuild=on_may_rebuild,
    )


def _on_listener_fault(
    machine: MetadataMachine, of_others: OnListenerFault, listener: AnyListener, error: Exception
) -> None:
    if listener is machine:
        end_process(error)  # a replica that cannot apply a committed record must not continue (CT-18)
    of_others(listener, error)


def _add_metadata_services(
    config: NodeConfig,
    metadata: _Metadata,
    publishers: Sequence[MetadataPublisher],
    probe: ListenerProbe,
    server: grpc.aio.Server,
    node: Node,
) -> Sequence[str]:
    """Give the node its controller, register the state machine, and serve both. Return the services' full names."""
    client, machine = RaftClient(node), metadata.machine
    metadata.generator.tell(node.snapshot_taken)
    controller = Controller(
        client,
        metadata.store,
        machine,
        runtime=AsyncioRuntime(),
        random=random.Random(),  # noqa: S311 (no secret)
        config=config.controller,
        connect=probe.connect,
    )
    machine.subscribe(FetchVersionGate(metadata.store, client.allow_fetch_version))
    machine.set_state_digest_callback(client.report_state_digest)
    for publisher in publishers:
        machine.install_publisher(publisher)
    client.register(machine, start_offset=metadata.store.applied_end_offset or None)
    admin_pb2_grpc.add_AdminServiceServicer_to_server(AdminServicer(controller, metadata.store, machine), server)
    servicer = SnapshotServicer(config.node_id, metadata.snapshots, metadata.generator, machine, config.service)
    snapshot_pb2_grpc.add_SnapshotServiceServicer_to_server(servicer, server)
    return SERVICES
