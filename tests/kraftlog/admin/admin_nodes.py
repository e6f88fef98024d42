"""Whole nodes with the admin service: real sockets, files and SQLite, on the test's loop."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc.aio

from kraftbase.endpoint import Endpoint
from kraftbase.files.posix import PosixFileSystem
from kraftbase.runtime import AsyncioRuntime
from kraftbase.types import NodeId
from kraftbase.uuids import random_cluster_id
from kraftlog.admin.server.service import AdminServicer
from kraftlog.controller.controller import Controller
from kraftlog.controller.controller_config import ControllerConfig
from kraftpb.v1 import admin_pb2, admin_pb2_grpc
from raft.client import RaftClient
from raft.core.config import QuorumConfig
from raft.core.types import ReplicaKey
from raft.core.voters import Voter, VoterSet
from raft.host import HostedState, hosted_node
from raft.node import Node
from raft.storage.directory import DataDirectory
from statemachine.apply.machine import MetadataMachine
from statemachine.store.store import MetadataStore
from tests.raft.nodes import QUICK, free_port, until_voters_take_part
from tests.statemachine.machines import machine_on
from tests.statemachine.waiting import until


@dataclass
class AdminNode:
    """One node and its parts."""

    node: Node
    store: MetadataStore
    machine: MetadataMachine
    controller: Controller


class AdminCluster:
    """Voters 1 to `voter_count`, and observers above."""

    def __init__(
        self,
        base: Path,
        voter_count: int,
        *,
        config: ControllerConfig | None = None,
        quorum_config: QuorumConfig = QUICK,
    ) -> None:
        self.base = base
        self.config = config
        self.quorum_config = quorum_config
        self.cluster_id = random_cluster_id()
        self.voters = VoterSet(
            Voter(ReplicaKey(NodeId(node_id)), Endpoint("127.0.0.1", free_port()))
            for node_id in range(1, voter_count + 1)
        )
        self.nodes: dict[int, AdminNode] = {}
        self.endpoints = {int(voter.key.node_id): voter.endpoint for voter in self.voters.voters()}
        self._stacks: dict[int, contextlib.AsyncExitStack] = {}

    async def start(self, node_id: int) -> AdminNode:
        files = PosixFileSystem()
        path = str(self.base / f"node-{node_id}")
        DataDirectory.format(files, path, cluster_id=self.cluster_id, node_id=NodeId(node_id), ignore_formatted=True)
        endpoint = self.endpoints.setdefault(node_id, Endpoint("127.0.0.1", free_port()))
        stack = self._stacks[node_id] = contextlib.AsyncExitStack()
        directory = stack.enter_context(contextlib.closing(DataDirectory.open(files, path)))
        store = MetadataStore.open(Path(directory.metadata_database_path), self.cluster_id)
        stack.callback(store.close)
        machine = machine_on(store)
        controllers: list[Controller] = []

        def add_services(server: grpc.aio.Server, node: Node) -> Sequence[str]:
            client = RaftClient(node)
            controllers.append(
                Controller(
                    client,
                    store,
                    machine,
                    runtime=AsyncioRuntime(),
                    random=random.Random(node_id),
                    config=self.config,
                )
            )
            client.register(machine, start_offset=store.applied_end_offset)
            servicer = AdminServicer(controllers[0], store, machine)
            admin_pb2_grpc.add_AdminServiceServicer_to_server(servicer, server)
            return (admin_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name,)

        node = await stack.enter_async_context(
            hosted_node(
                directory,
                endpoint=endpoint,
                voters=self.voters,
                config=self.quorum_config,
                add_services=add_services,
                state=HostedState(applied_end_offset=lambda: machine.applied_end_offset),
            )
        )
        self.nodes[node_id] = AdminNode(node, store, machine, controllers[0])
        return self.nodes[node_id]

    async def stop(self, node_id: int) -> None:
        del self.nodes[node_id]
        await self._stacks.pop(node_id).aclose()

    async def leader(self) -> int:
        """The id of the node whose controller is active, once there is one."""
        await until(lambda: any(node.controller.is_active for node in self.nodes.values()))
        return next(node_id for node_id, node in self.nodes.items() if node.controller.is_active)

    async def close(self) -> None:
        for node_id in list(self.nodes):
            await self.stop(node_id)


@contextlib.asynccontextmanager
async def admin_cluster(
    base: Path,
    *,
    voter_count: int = 1,
    observer_count: int = 0,
    config: ControllerConfig | None = None,
    quorum_config: QuorumConfig = QUICK,
) -> AsyncIterator[AdminCluster]:
    cluster = AdminCluster(base, voter_count, config=config, quorum_config=quorum_config)
    try:
        for node_id in range(1, voter_count + observer_count + 1):
            await cluster.start(node_id)
        await until_voters_take_part(node.node for node in cluster.nodes.values())
        await cluster.leader()
        yield cluster
    finally:
        await cluster.close()
