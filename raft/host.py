"""Hosts a node: opens its log in a data directory and serves it over gRPC until the context ends.

How a program embeds the log:

    with DataDirectory.open(PosixFileSystem(), path) as directory:
        async with hosted_node(directory, endpoint=..., voters=...) as node:
            RaftClient(node).register(MyStateMachine())
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import grpc
import grpc.aio
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection

from kraftbase.endpoint import Endpoint
from kraftbase.types import NodeId, Offset
from kraftpb.v1 import log_pb2, log_pb2_grpc, quorum_pb2, quorum_pb2_grpc
from raft.core.config import FETCH_VERSION_LATEST, QuorumConfig
from raft.core.election_state import ElectionState
from raft.core.epochs import LOG_BEGINNING
from raft.core.types import OffsetAndEpoch, ReplicaKey, StateDigest
from raft.core.voters import VoterSet
from raft.node import Node, OnListenerFault, end_by_listener_fault, end_process, log_state_divergence
from raft.rpc.admission import Admission, ReplicasElsewhere
from raft.rpc.limits import ServiceLimits
from raft.rpc.listening import listen
from raft.rpc.log_service import LogService
from raft.rpc.malformed import MalformedRequests
from raft.rpc.options import SERVER_OPTIONS
from raft.rpc.quorum_service import QuorumService
from raft.shell.observer import ShellObserver
from raft.shell.open_log import open_log
from raft.shell.shell_host import Identity
from raft.storage.directory import DataDirectory
from raft.storage.quorum_state import QuorumStateStore
from raft.storage.segmented_log import LogConfig, SegmentedLog
from snapshot.log_start_policy import LogStartConfig
from snapshot.store import SnapshotStore

SHUTDOWN_TIMEOUT_MS: Final = 5_000
"""How long a leader may take to hand over before the node stops anyway."""

SERVER_GRACE_SECONDS: Final = 0.25
"""How long calls may last after the node has stopped; other replicas keep their fetch streams open for ever."""

logger = structlog.get_logger(__name__)

AddServices = Callable[[grpc.aio.Server, Node], Sequence[str]]
"""Adds services to a node's server and returns their full names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedState:
    """The interface between a program's state machine and the node that feeds it."""

    applied: OffsetAndEpoch = LOG_BEGINNING
    """The end of what the state machine had applied when it was opened. Applied records were committed: a log that
    lacks them recovers, and a leader that lacks them is not followed. The later records must be in the log, or in a
    snapshot.
    """
    applied_end_offset: Callable[[], Offset] | None = None
    """Returns the applied offset, for clients of the node; None: the committed end."""
    fetch_version_allowed: Callable[[], int] = lambda: FETCH_VERSION_LATEST
    """The highest version of Fetch that the cluster has finalized, as far as the state machine knows.
    `RaftClient.allow_fetch_version` changes it."""
    is_sole_writer: bool = False
    """Whether only the state machine's own controller appends, by `RaftClient.prepare_append`, after it has validated
    the records. `RaftClient.append` is refused then: a committed record that cannot be applied stops every node."""
    snapshots: SnapshotStore | None = None
    """The node's snapshots, if the program has opened them itself."""
    on_snapshot_damaged: Callable[[], None] = lambda: None
    """Called when a damaged snapshot was deleted, so that another one is taken."""
    on_diverged: Callable[[StateDigest, StateDigest], None] = log_state_divergence
    """Called once, with the quorum's state digest and this node's, when the two differ."""
    on_may_rebuild: Callable[[], None] = lambda: None
    """Called once, when the fenced state machine may be rebuilt: no other voter is rebuilding its own."""


@contextlib.asynccontextmanager
async def hosted_node(
    directory: DataDirectory,
    *,
    endpoint: Endpoint,
    voters: VoterSet,
    listen_on: Endpoint | None = None,
    replicas_listen_on: Endpoint | None = None,
    client_endpoints: Mapping[NodeId, Endpoint] | None = None,
    bootstrap_endpoints: tuple[Endpoint, ...] = (),
    config: QuorumConfig | None = None,
    log_config: LogConfig | None = None,
    log_start: LogStartConfig | None = None,
    state: HostedState | None = None,
    add_services: AddServices | None = None,
    limits: ServiceLimits | None = None,
    on_fatal: Callable[[BaseException], None] = end_process,
    on_listener_fault: OnListenerFault = end_by_listener_fault,
    observer: ShellObserver | None = None,
) -> AsyncIterator[Node]:
    """Host a node that serves at `endpoint` while the context lasts; then it resigns, stops serving and closes.

    `endpoint` is the address that the node advertises; `listen_on` is where it listens if that differs, such as
    0.0.0.0. With `replicas_listen_on`, other replicas are served only there; then `endpoint` and `voters` are those
    addresses, and `client_endpoints` are the addresses at which clients reach the voters.

    The node is a voter if its id is in `voters`, else an observer. `state` is for a state machine that outlives the
    process, or takes snapshots. A damaged log is fetched again. A listener that raises ends the process, with an error
    that names it, unless another `on_listener_fault` is given, such as `raft.node.log_listener_fault` (LI-08).
    `observer` watches the replica, such as `raft.shell.decision_log.DecisionLog`. Raises StorageError, CorruptLog or
    ConfigurationError.
    """
    with contextlib.closing(QuorumStateStore(directory.files, directory.path)) as quorum_state:
        election_state, limits = quorum_state.load(), limits or ServiceLimits()
        key = ReplicaKey(directory.identity.node_id, directory.identity.directory_id)
        identity = Identity(
            cluster_id=directory.identity.cluster_id,
            key=key,
            endpoint=endpoint,
            voters=voters,
            bootstrap_endpoints=bootstrap_endpoints,
            client_endpoints=client_endpoints or {},
        )
        state = state or HostedState()
        snapshots = state.snapshots or SnapshotStore(directory.files, directory.snapshots_path)
        has_others = not voters.is_only_voter(key)
        with _opened_log(directory, log_config, snapshots, election_state, state.applied, has_others=has_others) as log:
            node = Node(
                identity=identity,
                config=config or QuorumConfig(),
                log=log,
                quorum_state=quorum_state,
                election_state=election_state,
                snapshots=snapshots,
                log_start=log_start,
                applied=state.applied,
                fetch_version_allowed=state.fetch_version_allowed(),
                named_readers_max=limits.named_readers_max,
                on_snapshot_damaged=state.on_snapshot_damaged,
                on_fatal=on_fatal,
                on_listener_fault=on_listener_fault,
                on_state_diverged=state.on_diverged,
                takes_records=not state.is_sole_writer,
                on_may_rebuild=state.on_may_rebuild,
                observer=observer,
            )
            listeners = (listen_on or endpoint, replicas_listen_on)
            async with _serving(node, listeners, add_services, state.applied_end_offset, limits):
                yield node


@contextlib.contextmanager
def _opened_log(
    directory: DataDirectory,
    config: LogConfig | None,
    snapshots: SnapshotStore,
    election_state: ElectionState | None,
    applied: OffsetAndEpoch,
    *,
    has_others: bool,
) -> Iterator[SegmentedLog]:
    log = open_log(
        directory,
        config or LogConfig(),
        snapshots,
        election_state=election_state,
        has_others=has_others,
        applied=applied,
    )
    with contextlib.closing(log):
        log.reserve(0)  # allocate the room for control batches in advance
        _say_opened(directory.identity.node_id, log)
        yield log


def _say_opened(node_id: NodeId, log: SegmentedLog) -> None:
    logger.info("log opened", node=node_id, recovery=str(log.recovery))
    if log.new_directory is not None:
        logger.warning(
            "directory is new: until its voter catches up with a leader, it votes only for candidates with empty logs",
            node=node_id,
            reason=log.new_directory.reason,
        )
    if log.recovering is not None:
        logger.error(
            "durable records were damaged: this replica neither votes nor counts until it has fetched them again",
            node=node_id,
            reason=log.recovering.reason,
            from_offset=log.log_end_offset,
            until_offset=log.recovering.known_until_offset,
        )


@contextlib.asynccontextmanager
async def _serving(
    node: Node,
    listeners: tuple[Endpoint, Endpoint | None],
    add_services: AddServices | None,
    applied_end_offset: Callable[[], Offset] | None,
    limits: ServiceLimits,
) -> AsyncIterator[None]:
    """Let the node serve while the context lasts; then hand over, and end every call.

    `listeners` are the one for clients and, if they have one of their own, the one for replicas.
    """
    listen_on, replicas_listen_on = listeners
    try:
        admission = Admission(limits, node.identity.voters, lambda: node.feed.committed_end_offset)
        servers = []
        if replicas_listen_on is not None:
            servers.append(_server(limits, admission))
            service = QuorumService(node, node.identity.cluster_id, node.identity.for_clients)
            quorum_pb2_grpc.add_QuorumServiceServicer_to_server(service, servers[0])
            await listen(servers[0], replicas_listen_on)
            server = _server(limits, ReplicasElsewhere(), admission)
        else:
            server = _server(limits, admission)
        servers.append(server)
        names = [*_add_raft_services(server, node, applied_end_offset, limits)]
        names += add_services(server, node) if add_services is not None else ()
        health = _add_health_and_reflection(server, names)
        await listen(server, listen_on)
        node.start()
        for each in servers:
            await each.start()
        readiness = asyncio.create_task(_tell_readiness(health, node, ("", *names)))
        try:
            yield
        finally:
            readiness.cancel()
            await asyncio.gather(readiness, return_exceptions=True)
            await health.enter_graceful_shutdown()
            await node.shutdown(SHUTDOWN_TIMEOUT_MS)
            await asyncio.gather(*(each.stop(SERVER_GRACE_SECONDS) for each in servers))
    finally:
        await node.close()


def _server(limits: ServiceLimits, *interceptors: grpc.aio.ServerInterceptor) -> grpc.aio.Server:
    options = (*SERVER_OPTIONS, ("grpc.max_concurrent_streams", limits.connection_calls_max))
    return grpc.aio.server(interceptors=(*interceptors, MalformedRequests()), options=options)


async def _tell_readiness(health: HealthServicer, node: Node, names: Sequence[str]) -> None:
    """Report to the health service whether the node is ready, at every change."""
    status = health_pb2.HealthCheckResponse
    while True:
        node.readiness_changed.clear()
        for name in names:
            await health.set(name, status.SERVING if node.is_ready else status.NOT_SERVING)
        await node.readiness_changed.wait()


def _add_raft_services(
    server: grpc.aio.Server, node: Node, applied_end_offset: Callable[[], Offset] | None, limits: ServiceLimits
) -> Sequence[str]:
    identity = node.identity
    quorum_pb2_grpc.add_QuorumServiceServicer_to_server(
        QuorumService(node, identity.cluster_id, identity.for_clients), server
    )
    log_service = LogService(
        log=node.log,
        feed=node.feed,
        snapshots=node.snapshots,
        readers=node.readers,
        replica=node.replica,
        cluster_id=identity.cluster_id,
        key=identity.key,
        voters=identity.voters,
        for_clients=identity.for_clients,
        applied_end_offset=applied_end_offset or (lambda: node.feed.committed_end_offset),
        listener_faults=node.delivery.faults,
        log_start_holders=node.log_start_holders,
        on_fatal=node.fatal,
        behind_ms=node.behind_ms,
        limits=limits,
    )
    log_pb2_grpc.add_LogServiceServicer_to_server(log_service, server)
    return (
        quorum_pb2.DESCRIPTOR.services_by_name["QuorumService"].full_name,
        log_pb2.DESCRIPTOR.services_by_name["LogService"].full_name,
    )


def _add_health_and_reflection(server: grpc.aio.Server, names: Sequence[str]) -> HealthServicer:
    health = HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    health_name = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
    reflection.enable_server_reflection([*names, health_name, reflection.SERVICE_NAME], server)
    return health
