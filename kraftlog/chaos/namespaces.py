"""A network namespace per node, joined by a bridge, so that the kernel makes partitions. Needs root and iproute2.

    root namespace:  bridge klBr with 198.18.S.254, for the harness and its clients
    node N:          namespace klN, one interface with 198.18.S.N, its peer on the bridge
    the refuser:     namespace klR, which takes the address of a node for a moment, and refuses connections to it

198.18.0.0/15 is reserved for tests (RFC 2544). A fixed entry in A's neighbour table, with a hardware address that no
interface has, cuts the link from A to B: packets from A to B are silently lost on the bridge, and no others. So no
packet filter is needed, and open connections stay open. With the refuser's hardware address in that entry, A's
connections to B are reset and refused, as by a reloaded firewall.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from kraftbase.endpoint import Endpoint
from kraftbase.types import NodeId
from kraftlog.local.cluster import LocalCluster, start_command
from kraftlog.local.cluster_directory import ClusterDirectory

NETWORK: Final = "198.18"
PORT: Final = 9090
INTERFACE: Final = "eth0"
NO_INTERFACE: Final = "02:00:00:00:00:fe"
"""A hardware address that no interface has."""
REFUSER: Final = "02:00:00:00:00:fd"
REFUSER_HOST: Final = 253
BATCH_SECONDS: Final = 0.3
"""How long a process has to become ready for commands."""

COMMAND_TIMEOUT_SECONDS: Final = 10.0
SUBNET_ATTEMPTS: Final = 20

SLOW_WAYS: Final = (
    ("80 ms later each way", ("netem", "delay", "40ms", "10ms")),
    ("at most 512 kbit/s", ("tbf", "rate", "512kbit", "burst", "8kb", "latency", "400ms")),
)
"""Queueing disciplines that make a link slow, best first; kernels differ in which they have."""


class NamespacesUnavailable(Exception):
    """This machine or this user cannot create network namespaces. The message has the reason."""


class Namespaces:
    """The namespaces of one run. Names contain this process's id, so that two runs do not collide."""

    def __init__(self, node_ids: Sequence[NodeId], subnet: int) -> None:
        """Makes nothing yet: use `create`."""
        self._node_ids = node_ids
        self._subnet = subnet
        self._prefix = self.prefix()
        self._slow_arguments: tuple[str, ...] | None = None
        self._slow_meaning: str | None = None
        self._node_of: dict[Path, NodeId] = {}

    @classmethod
    def create(cls, node_ids: Sequence[NodeId]) -> Namespaces:
        """Make a namespace for each node; ids are at most 252. After NamespacesUnavailable nothing is left."""
        if shutil.which("ip") is None:
            raise NamespacesUnavailable("iproute2 is not installed")
        if os.geteuid() != 0:
            raise NamespacesUnavailable("only root may create network namespaces")
        try:
            network = cls(node_ids, _free_subnet())
        except (subprocess.SubprocessError, OSError) as error:
            raise NamespacesUnavailable(_reason(error)) from None
        try:
            network._make()
        except (subprocess.SubprocessError, OSError) as error:
            network._remove()
            raise NamespacesUnavailable(_reason(error)) from None
        except BaseException:
            network._remove()
            raise
        network._probe_slow_link()
        return network

    @staticmethod
    def prefix() -> str:
        """The prefix of all names that this process makes; interfaces have at most 15 characters."""
        return f"kl{os.getpid()}"

    @property
    def description(self) -> str:
        """The network, as reports name it."""
        return f"network namespaces, {NETWORK}.{self._subnet}.0/24"

    @property
    def slow_link(self) -> str | None:
        """What a slow link is on this machine, None if links cannot be slowed down."""
        return self._slow_meaning

    def endpoints(self) -> Sequence[Endpoint]:
        """One address per node."""
        return [self.endpoint(node_id) for node_id in self._node_ids]

    def endpoint(self, node_id: NodeId) -> Endpoint:
        """The address of a node."""
        return Endpoint(self._address(node_id), PORT)

    async def start(self, directory: ClusterDirectory) -> None:
        """Learn which configuration file belongs to which node."""
        self._node_of = {directory.config_path(node_id): node_id for node_id in directory.endpoints}

    def command(self, config_path: Path) -> list[str]:
        """Return the command that runs a node in its namespace. `ip` becomes the node, with the same process id."""
        return self.within(self._node_of[config_path], start_command(config_path))

    def within(self, node_id: NodeId, command: Sequence[str]) -> list[str]:
        """Return the command line that runs a command in a node's namespace."""
        return ["ip", "netns", "exec", self._namespace(node_id), *command]

    def attach(self, cluster: LocalCluster) -> None:
        """Does nothing: the kernel cuts the links."""

    async def cut(self, source: NodeId, target: NodeId) -> None:
        """Drop packets from `source` to `target`."""
        await self._in_namespace(
            source, "neigh", "replace", *self._neighbour(target), "lladdr", NO_INTERFACE, "nud", "permanent"
        )

    async def mend(self, source: NodeId, target: NodeId) -> None:
        """Undo `cut`: let `source` resolve the address again."""
        with suppress(subprocess.CalledProcessError):  # there is no entry: the link was not cut
            await self._in_namespace(source, "neigh", "del", *self._neighbour(target))

    async def slow(self, node_id: NodeId) -> None:
        """Slow both directions down."""
        arguments = self._slow_arguments or ()
        await asyncio.to_thread(self._queueing, node_id, ("replace", *arguments) if arguments else ())

    async def restore(self, node_id: NodeId) -> None:
        """Undo `slow`, in both directions."""
        with suppress(subprocess.CalledProcessError):
            await asyncio.to_thread(self._queueing, node_id, ("del",))

    async def reset(self, node_id: NodeId, peers: Sequence[NodeId]) -> None:
        """Reset the connections of a node with its peers, as its kernel does when its process ends."""
        for peer in peers:
            await asyncio.to_thread(_run, *self.within(node_id, ["ss", "-K", "dst", self._address(peer)]))

    async def refuse(self, node_id: NodeId, peers: Sequence[NodeId], seconds: float) -> list[tuple[float, float]]:
        """Reset and refuse connections of the peers to a node for some seconds.

        Return, for each peer, the times between which its connections may have been refused, in seconds since 1970.
        The links must not be cut during this time.
        """
        address = self._address(node_id)
        taken = ("ip", "-n", self._namespace("r"), "addr")
        await asyncio.to_thread(_run, *taken, "add", f"{address}/32", "dev", "lo")
        try:
            return await asyncio.gather(*(self._refuse_one(node_id, peer, seconds) for peer in peers))
        finally:
            await asyncio.to_thread(_run, *taken, "del", f"{address}/32", "dev", "lo")

    async def _refuse_one(self, node_id: NodeId, peer: NodeId, seconds: float) -> tuple[float, float]:
        entry = " ".join(self._neighbour(node_id))
        # A process that runs already: starting one takes as long as the whole refusal.
        batch = await asyncio.create_subprocess_exec("ip", "-n", self._namespace(peer), "-batch", "-", stdin=PIPE)
        resetting = self.within(peer, ["ss", "-K", "state", "established", "dst", self._address(node_id)])
        await asyncio.sleep(BATCH_SECONDS)
        reset = asyncio.create_task(asyncio.to_thread(_run, *resetting))
        began = time.time()
        _write(batch, f"neigh replace {entry} lladdr {REFUSER} nud permanent\n")
        await asyncio.sleep(seconds)
        await batch.communicate(f"neigh del {entry}\n".encode("ascii"))
        ended = time.time()
        await reset
        return began, ended

    async def close(self) -> None:
        """Remove everything."""
        await asyncio.to_thread(self._remove)

    # --- how --------------------------------------------------------------------------------------------------------

    def _make(self) -> None:
        bridge = f"{self._prefix}b"
        _run("ip", "link", "add", bridge, "type", "bridge")
        _run("ip", "addr", "add", f"{NETWORK}.{self._subnet}.254/24", "dev", bridge)
        _run("ip", "link", "set", bridge, "up")
        for node_id in self._node_ids:
            namespace, outside = self._namespace(node_id), self._outside(node_id)
            _run("ip", "netns", "add", namespace)
            _run("ip", "link", "add", outside, "type", "veth", "peer", "name", INTERFACE, "netns", namespace)
            _run("ip", "link", "set", outside, "master", bridge, "up")
            _run("ip", "-n", namespace, "addr", "add", f"{self._address(node_id)}/24", "dev", INTERFACE)
            _run("ip", "-n", namespace, "link", "set", "lo", "up")
            _run("ip", "-n", namespace, "link", "set", INTERFACE, "up")
        self._make_refuser()

    def _make_refuser(self) -> None:
        namespace, outside = self._namespace("r"), self._outside("r")
        _run("ip", "netns", "add", namespace)
        _run("ip", "link", "add", outside, "type", "veth", "peer", "name", INTERFACE, "netns", namespace)
        _run("ip", "link", "set", outside, "master", f"{self._prefix}b", "up")
        # The refuser neither answers ARP requests for the nodes' addresses nor sends requests with them.
        for name, value in (("arp_ignore", 1), ("arp_announce", 2)):
            _run("ip", "netns", "exec", namespace, "sh", "-c", f"echo {value} > /proc/sys/net/ipv4/conf/all/{name}")
        own_address = f"{NETWORK}.{self._subnet}.{REFUSER_HOST}/24"
        _run("ip", "-n", namespace, "link", "set", INTERFACE, "address", REFUSER)
        _run("ip", "-n", namespace, "addr", "add", own_address, "dev", INTERFACE)
        _run("ip", "-n", namespace, "link", "set", "lo", "up")
        _run("ip", "-n", namespace, "link", "set", INTERFACE, "up")

    def _remove(self) -> None:
        """Remove everything that exists, also after a start that failed."""
        for name in [*map(str, self._node_ids), "r"]:
            for command in (
                ("ip", "link", "del", self._outside(name)),
                ("ip", "netns", "del", self._namespace(name)),
            ):
                with suppress(subprocess.SubprocessError, OSError):
                    _run(*command)
        with suppress(subprocess.SubprocessError, OSError):
            _run("ip", "link", "del", f"{self._prefix}b")

    def _probe_slow_link(self) -> None:
        for meaning, arguments in SLOW_WAYS:
            with suppress(subprocess.SubprocessError, OSError):
                self._queueing(self._node_ids[0], ("replace", *arguments))
                self._queueing(self._node_ids[0], ("del",))
                self._slow_meaning, self._slow_arguments = meaning, arguments
                return

    def _queueing(self, node_id: NodeId, action: Sequence[str]) -> None:
        verb, *arguments = action
        _run("tc", "qdisc", verb, "dev", self._outside(node_id), "root", *arguments)
        _run("tc", "-n", self._namespace(node_id), "qdisc", verb, "dev", INTERFACE, "root", *arguments)

    async def _in_namespace(self, node_id: NodeId, *arguments: str) -> None:
        await asyncio.to_thread(_run, "ip", "-n", self._namespace(node_id), *arguments)

    def _neighbour(self, node_id: NodeId) -> tuple[str, ...]:
        return (self._address(node_id), "dev", INTERFACE)

    def _address(self, node_id: NodeId) -> str:
        return f"{NETWORK}.{self._subnet}.{node_id}"

    def _namespace(self, name: NodeId | str) -> str:
        return f"{self._prefix}n{name}"

    def _outside(self, name: NodeId | str) -> str:
        return f"{self._prefix}v{name}"


def _free_subnet() -> int:
    """A third octet that no interface of this machine uses yet."""
    used = _run("ip", "-o", "addr")
    for subnet in random.sample(range(1, 255), SUBNET_ATTEMPTS):
        if f" {NETWORK}.{subnet}." not in used:
            return subnet
    raise NamespacesUnavailable(f"{NETWORK}.0.0/16 is in use")


def _run(*command: str) -> str:
    """Run a command and return its output. Raises SubprocessError or OSError."""
    return subprocess.run(  # noqa: S603 (the command is ours)
        command, check=True, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_SECONDS
    ).stdout


def _write(process: Process, line: str) -> None:
    if process.stdin is not None:
        process.stdin.write(line.encode("ascii"))


def _reason(error: BaseException) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return f"{' '.join(error.cmd)}: {(error.stderr or '').strip() or f'code {error.returncode}'}"
    return str(error)
