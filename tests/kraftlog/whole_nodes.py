"""Whole nodes on the test's loop, wired as `kraftlog start` wires them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from kraftbase.endpoint import Endpoint
from kraftbase.files.posix import PosixFileSystem
from kraftbase.types import NodeId
from kraftbase.uuids import random_cluster_id
from kraftlog.config.config import NodeConfig
from kraftlog.process.server import running_node
from raft.node import Node, OnListenerFault, end_by_listener_fault
from raft.storage.directory import DataDirectory
from tests.raft.nodes import QUICK, free_port


class WholeNodes(contextlib.AsyncExitStack):
    """Voters 1 to `voter_count`, and observers above. `start` them; the end of the context stops them."""

    def __init__(self, base: Path, voter_count: int = 1, *, replicas_apart: bool = False) -> None:
        """With `replicas_apart` voters have a listener of their own; `endpoints` are those for clients."""
        super().__init__()
        self.base = base
        self.cluster_id = random_cluster_id()
        self.endpoints = {node_id: Endpoint("127.0.0.1", free_port()) for node_id in range(1, voter_count + 1)}
        self._voters = tuple((NodeId(node_id), endpoint) for node_id, endpoint in self.endpoints.items())
        self.replica_endpoints: dict[int, Endpoint] = {}
        if replicas_apart:
            self.replica_endpoints = {node_id: Endpoint("127.0.0.1", free_port()) for node_id in self.endpoints}
            self._apart: dict[str, Any] = {"client_listeners": self._voters}
            self._voters = tuple((NodeId(node_id), at) for node_id, at in self.replica_endpoints.items())
        else:
            self._apart = {}
        self._stacks: dict[int, contextlib.AsyncExitStack] = {}

    async def start(
        self, node_id: int, *, on_listener_fault: OnListenerFault = end_by_listener_fault, **settings: Any
    ) -> Node:
        """Start a node, which continues with what it has; `settings` are fields of its configuration."""
        directory = self.base / f"node-{node_id}"
        DataDirectory.format(
            PosixFileSystem(),
            str(directory),
            cluster_id=self.cluster_id,
            node_id=NodeId(node_id),
            ignore_formatted=True,
        )
        config = NodeConfig(
            node_id=NodeId(node_id),
            directory=directory,
            listener=self.endpoints.setdefault(node_id, Endpoint("127.0.0.1", free_port())),
            voters=self._voters,
            controller_listener=self.replica_endpoints.get(node_id),
            **self._apart,
            **{"quorum": QUICK, **settings},
        )
        stack = self._stacks[node_id] = await self.enter_async_context(contextlib.AsyncExitStack())
        return await stack.enter_async_context(running_node(config, on_listener_fault=on_listener_fault))

    async def stop(self, node_id: int) -> None:
        """Stop a node, for good or to start it again."""
        await self._stacks.pop(node_id).aclose()
