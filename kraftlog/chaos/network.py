"""What a run can do to the network, and how on this machine.

Links are directed: cutting the link from 1 to 2 leaves the one from 2 to 1 alone. What a cut link carries is not
refused but lost, as on a network: connections stay open and nothing arrives. The harness itself always reaches every
node, so it knows the true state, and clients reach nodes that are cut off from their peers.
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
        """How links are cut, for users."""
        ...

    @property
    def slow_link(self) -> str | None:
        """What slowing a link means here, None if it cannot be done."""
        ...

    def endpoints(self) -> Sequence[Endpoint]:
        """The addresses that the nodes must advertise, in the order of their ids."""
        ...

    async def start(self, directory: ClusterDirectory) -> None:
        """Be ready for the nodes of `directory`, whose configuration may be changed here."""
        ...

    def command(self, config_path: Path) -> list[str]:
        """The command line that runs a node on this network."""
        ...

    def attach(self, cluster: LocalCluster) -> None:
        """Receive the processes: called once, before they are started."""
        ...

    async def cut(self, source: NodeId, target: NodeId) -> None:
        """From now on nothing that `source` sends reaches `target`."""
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
    """Network namespaces where they can be made, else proxies. `wanted`: auto, namespaces or proxy.

    Raises NamespacesUnavailable if namespaces are wanted and cannot be made.
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
        """None is needed: any free port will do."""
        return ()

    async def start(self, directory: ClusterDirectory) -> None:
        """Nothing is needed."""

    def command(self, config_path: Path) -> list[str]:
        """Runs a node as it is."""
        return start_command(config_path)

    def attach(self, cluster: LocalCluster) -> None:
        """Nothing is needed."""

    async def cut(self, source: NodeId, target: NodeId) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError("no link of this network can be cut")

    async def mend(self, source: NodeId, target: NodeId) -> None:
        """Nothing is cut."""

    async def slow(self, node_id: NodeId) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError("no link of this network can be slowed down")

    async def restore(self, node_id: NodeId) -> None:
        """Nothing is slow."""

    async def close(self) -> None:
        """Nothing was set up."""
