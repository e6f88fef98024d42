"""Finds the node whose process has the other end of a TCP connection on this machine, in /proc."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from kraftbase.endpoint import Endpoint
from kraftbase.types import NodeId

SOCKET_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
"""An IPv4 connection may be in either table, since gRPC's sockets are of both families."""

ESTABLISHED: Final = "01"
ADDRESS_COLUMN, STATE_COLUMN, INODE_COLUMN = 1, 3, 9


class SocketOwners:
    """Looks up the owners of sockets. The tables are long, so callers that wait during one reading share the next."""

    def __init__(self, processes: Callable[[], Mapping[NodeId, int]]) -> None:
        """`processes` returns the process ids of the running nodes."""
        self._processes = processes
        self._owners: Mapping[str, NodeId] = {}
        self._begun = 0
        self._finished = 0
        self._reading = asyncio.Lock()

    async def owner(self, local: Endpoint) -> NodeId | None:
        """Return the node with the connected socket whose local IPv4 address is this one; None if no node has it."""
        asked_after = self._begun
        while self._finished <= asked_after:
            async with self._reading:
                if self._finished <= asked_after:
                    self._begun += 1
                    self._owners = await asyncio.to_thread(read_owners, self._processes())
                    self._finished = self._begun
        return self._owners.get(_address(local))


def read_owners(processes: Mapping[NodeId, int]) -> dict[str, NodeId]:
    """Return the nodes that own connected sockets, by the local address as in the tables."""
    node_of = {inode: node_id for node_id, pid in processes.items() for inode in _socket_inodes(pid)}
    owners = {}
    for table in SOCKET_TABLES:
        for line in table.read_text().splitlines() if table.exists() else ():
            columns = line.split()
            if columns[STATE_COLUMN] == ESTABLISHED and columns[INODE_COLUMN] in node_of:
                address, port = columns[ADDRESS_COLUMN].split(":")
                owners[f"{address[-8:]}:{port}"] = node_of[columns[INODE_COLUMN]]
    return owners


def _socket_inodes(pid: int) -> set[str]:
    inodes = set()
    with suppress(OSError):  # the process has just ended
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                kind, _, inode = str(entry.readlink()).partition(":")
                if kind == "socket":
                    inodes.add(inode.strip("[]"))
    return inodes


def _address(endpoint: Endpoint) -> str:
    return f"{socket.inet_aton(endpoint.host)[::-1].hex().upper()}:{endpoint.port:04X}"
