"""Whether a reader stays with the node that it follows, or leaves it for a better one.

A node that is cut off from the leader, that has no room, or that is stopped still holds its readers' connections. The
readers would miss elections and records without noticing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

import grpc.aio

from kraftbase.endpoint import Endpoint
from kraftbase.logs import LibraryLogger
from kraftpb.v1 import log_pb2
from raft.known_nodes import KnownNodes, is_behind

SILENCE_SECONDS: Final = 3.0
"""A node that sends nothing for this long is stopped or unreachable: it sends a message at least every second."""

LOOK_SECONDS: Final = 2.0
"""How often a reader of a node that is behind checks for a better one."""

logger = LibraryLogger(__name__)


class LeaveNode(Exception):
    """Follow another node. The message says why."""


class ReaderContact:
    """Watches the contact of one reader with its nodes."""

    def __init__(self, nodes: KnownNodes) -> None:
        self._nodes = nodes
        self._has_warned = False
        self._look_from_seconds = 0.0

    async def messages(
        self, stream: grpc.aio.UnaryStreamCall[log_pb2.WatchRequest, log_pb2.WatchResponse], node: Endpoint,
        cluster_id: str,
    ) -> AsyncGenerator[log_pb2.WatchResponse, None]:  # fmt: skip
        """The messages of a node's stream. Raises LeaveNode, also in the middle of the stream, and AioRpcError."""
        silence_seconds: float | None = None  # a node of an older version may send nothing for hours
        while True:
            reading = asyncio.ensure_future(stream.read())
            try:
                while not (await asyncio.wait({reading}, timeout=silence_seconds))[0]:
                    await self._look_elsewhere(node, cluster_id, f"it has sent nothing for {SILENCE_SECONDS:g} s")
                message = reading.result()
            finally:
                reading.cancel()
            if not isinstance(message, log_pb2.WatchResponse):
                return  # the stream has ended
            if message.HasField("leader_contact"):
                silence_seconds = SILENCE_SECONDS
            await self.check(message.leader_contact, node, cluster_id)
            yield message

    async def check(self, contact: log_pb2.LeaderContact, node: Endpoint, cluster_id: str) -> None:
        """Raise LeaveNode if the node is behind and another one is not; then that one is tried next."""
        if not is_behind(contact):
            self._has_warned = False
            return
        now_seconds = asyncio.get_running_loop().time()
        if now_seconds >= self._look_from_seconds:
            await self._look_elsewhere(
                node, cluster_id, f"it has not been level with a leader for {contact.behind_ms} ms"
            )
            self._look_from_seconds = now_seconds + LOOK_SECONDS

    async def _look_elsewhere(self, node: Endpoint, cluster_id: str, reason: str) -> None:
        """Raise LeaveNode if another node is level. Else the reader stays, which is logged once."""
        better = await self._nodes.level_node(node, cluster_id)
        if better is not None:
            self._nodes.prefer(better)
            raise LeaveNode(f"{reason}, and {better} is level with a leader")
        if not self._has_warned:
            self._has_warned = True
            logger.warning("no node is level with a leader: reads may be stale", node=str(node), reason=reason)
