"""Keeps the lease of a named reader: renews it at the current leader again and again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final

import grpc
import grpc.aio

from kraftbase.endpoint import Endpoint
from kraftbase.logs import LibraryLogger
from kraftbase.types import Offset
from kraftpb.v1 import log_pb2, log_pb2_grpc
from raft.known_nodes import KnownNodes
from raft.rpc import codec
from raft.rpc.channels import channel_to
from raft.rpc.reader_leases import check_reader

CALL_TIMEOUT_SECONDS: Final = 2.0

RELEASE_TIMEOUT_SECONDS: Final = 0.5

RENEWAL_SECONDS_MAX: Final = 3.0
"""The longest time between renewals of a lease: a new leader waits longer before it moves the log's start (SN-51)."""

RENEWAL_SECONDS_MIN: Final = 0.1

RETRY_SECONDS: Final = 0.2

_UNREACHABLE: Final = "unreachable"
"""A cause of failure, named once although gRPC has many words for it: each node fails in its own way."""

logger = LibraryLogger(__name__)


@asynccontextmanager
async def reader_lease(
    endpoints: Iterable[Endpoint],
    name: str,
    lease_ms: int,
    next_offset: Callable[[], Offset],
    cluster_id: str | None,
) -> AsyncGenerator[None, None]:
    """Make the leader's log start wait for the reader while the context lasts; then end the lease.

    If the leader refuses the lease, for example because of too many readers, the refusal is logged and the lease
    requested again. Raises ApiError INVALID_REQUEST for an invalid name.
    """
    check_reader(name, lease_ms)
    keeper = _LeaseKeeper(KnownNodes(endpoints), name, lease_ms, next_offset, cluster_id)
    keeping = asyncio.create_task(keeper.run())
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await keeper.release()


class _LeaseKeeper:
    """Renews the lease of one reader."""

    def __init__(
        self,
        nodes: KnownNodes,
        name: str,
        lease_ms: int,
        next_offset: Callable[[], Offset],
        cluster_id: str | None,
    ) -> None:
        self._nodes = nodes
        self._name = name
        self._lease_ms = lease_ms
        self._next_offset = next_offset
        self._cluster_id = cluster_id
        self._leader: Endpoint | None = None
        """The node that granted the lease."""
        self._told: set[str] = set()
        """The causes that were logged since the last lease was granted."""

    async def run(self) -> None:
        """Renew the lease until cancelled."""
        while True:
            try:
                leader = await self._find_leader()
                if leader is not None:
                    await self._keep_at(leader)
            except grpc.aio.AioRpcError as error:
                self._tell(error)
            await asyncio.sleep(RETRY_SECONDS)

    async def release(self) -> None:
        """End the lease, if that is possible at once."""
        if self._leader is None:
            return
        try:
            async with channel_to(self._leader) as channel:
                await log_pb2_grpc.LogServiceStub(channel).HoldLogStart(
                    self._request(lease_ms=0), timeout=RELEASE_TIMEOUT_SECONDS
                )
        except grpc.aio.AioRpcError as error:
            logger.debug("lease was not ended and will expire", reader=self._name, reason=error.details())

    async def _find_leader(self) -> Endpoint | None:
        asked = self._nodes.next()
        async with channel_to(asked) as channel:
            stub = log_pb2_grpc.LogServiceStub(channel)
            node = await stub.DescribeNode(log_pb2.DescribeNodeRequest(), timeout=CALL_TIMEOUT_SECONDS)
        self._cluster_id = self._cluster_id or node.cluster_id
        if not self._nodes.learn(asked, node, self._cluster_id):
            return None
        _, endpoint = codec.leader_from_proto(node.current_leader)
        return endpoint

    async def _keep_at(self, leader: Endpoint) -> None:
        """Return when that node no longer leads."""
        async with channel_to(leader) as channel:
            stub = log_pb2_grpc.LogServiceStub(channel)
            while True:
                given = await stub.HoldLogStart(self._request(self._lease_ms), timeout=CALL_TIMEOUT_SECONDS)
                if not given.lease_ms:
                    return
                self._leader = leader
                self._told.clear()
                await asyncio.sleep(max(RENEWAL_SECONDS_MIN, min(given.lease_ms / 3000, RENEWAL_SECONDS_MAX)))

    def _request(self, lease_ms: int) -> log_pb2.HoldLogStartRequest:
        return log_pb2.HoldLogStartRequest(
            cluster_id=self._cluster_id, name=self._name, next_offset=self._next_offset(), lease_ms=lease_ms
        )

    def _tell(self, error: grpc.aio.AioRpcError) -> None:
        """Log why the log's start does not wait, once for each cause, whichever node answered."""
        code = error.code()
        is_old = code is grpc.StatusCode.UNIMPLEMENTED
        cause = _UNREACHABLE if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED) else code.name
        if cause not in self._told:
            self._told.add(cause)
            reason = "the leader's version does not support leases of readers" if is_old else str(error.details())
            logger.warning("log start does not wait for this reader", reader=self._name, reason=reason)
