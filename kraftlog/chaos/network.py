"""The network faults of a run, and the implementation for this machine.

Links are directed: cutting the link from 1 to 2 leaves the link from 2 to 1 intact. A cut link does not refuse data but
loses it, as a network does: connections stay open and nothing arrives. The harness always reaches every node, so it
knows the true state, and clients reach nodes that are cut off from their peers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from kraftbase.endpoint import Endpoint
from kraftbase.types import NodeId
from kraftlog.chaos.namespaces import Namespaces, NamespacesUnavailable
from kraftlog.chaos.proxy import ProxyNetwork
from kraftlog.local.cluster import LocalCluster, start_command
from kraftlog.local.cluster_directory import ClusterDirectory


class Network(Protocol):
    """The links between the nodes of one cluster. Every call may be repeated."""

    @property
    def description(self) -> str:
        """The network, as reports name it."""
        ...

    @property
    def slow_link(self) -> str | None:
        """What a slow link is on this network, None if links cannot be slowed down."""
        ...

    def endpoints(self) -> Sequence[Endpoint]:
        """Return the addresses that the nodes must advertise, in the order of their ids."""
        ...

    async def start(self, directory: ClusterDirectory) -> None:
        """Prepare the network for the nodes of `directory`. This may change their configuration."""
        ...

    def command(self, config_path: Path) -> list[str]:
        """Return the command line that runs a node on this network."""
        ...

    def attach(self, cluster: LocalCluster) -> None:
        """Receive the cluster with the processes. Called once, before they are started."""
        ...

    async def cut(self, source: NodeId, target: NodeId) -> None:
        """Cut a link: from now on nothing that `source` sends reaches `target`."""
        ...

    async def mend(self, source: NodeId, target: NodeId) -> None:
        """Undo `cut`."""
        ...

    async def slow(self, node_id: NodeId) -> None:
        """Make all links of a node slow."""
        ...

    async def restore(self, node_id: NodeId) -> None:
        """Undo `slow`."""
        ...

    async def close(self) -> None:
        """Remove everything that was set up."""
        ...


def choose_network(node_count: int, wanted: str = "auto") -> Network:
    """Return network namespaces if they can be made, otherwise proxies. `wanted` is auto, namespaces or proxy.

    Raises NamespacesUnavailable if `wanted` is namespaces and they cannot be made.
    """
    if wanted != "proxy":
        try:
            return Namespaces.create([NodeId(number) for number in range(1, node_count + 1)])
        except NamespacesUnavailable as error:
            if wanted == "namespaces":
                raise
            return ProxyNetwork(node_count, f"no network namespaces: {error}")
    return ProxyNetwork(node_count)


class Loopback:
    """A network without faults: nodes on free ports of this machine, and no link that could be cut."""

    description = "loopback"
    slow_link = None

    def endpoints(self) -> Sequence[Endpoint]:
        """Return no endpoints: nodes choose free ports."""
        return ()

    async def start(self, directory: ClusterDirectory) -> None:
        """Does nothing."""

    def command(self, config_path: Path) -> list[str]:
        """Return the usual command line of a node."""
        return start_command(config_path)

    def attach(self, cluster: LocalCluster) -> None:
        """Does nothing."""

    async def cut(self, source: NodeId, target: NodeId) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError("no link of this network can be cut")

    async def mend(self, source: NodeId, target: NodeId) -> None:
        """Does nothing: no link is cut."""

    async def slow(self, node_id: NodeId) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError("no link of this network can be slowed down")

    async def restore(self, node_id: NodeId) -> None:
        """Does nothing: no link is slow."""

    async def close(self) -> None:
        """Does nothing: nothing was set up."""
