"""Finds the leader, from the addresses that a client was given."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

import grpc
import grpc.aio

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Epoch
from kraftlog.admin.client.channels import open_channel
from kraftlog.admin.client.operation_stream import NotSent
from kraftpb.v1 import common_pb2, log_pb2, log_pb2_grpc
from raft.rpc import codec

DESCRIBE_TIMEOUT_SECONDS: Final = 2.0

GRACE_SECONDS: Final = 0.05
"""How much longer to wait for a node that knows a later epoch, after one has named a leader."""

KNOWN_ENDPOINTS_MAX: Final = 64


class KnownLeader(NamedTuple):
    """The leader that a node named. Compares by epoch first."""

    epoch: Epoch
    endpoint: Endpoint
    cluster_id: str


class LeaderFinder:
    """Asks all known nodes at once and trusts the one that knows the highest epoch."""

    def __init__(self, bootstrap: Iterable[Endpoint]) -> None:
        self._endpoints = list(dict.fromkeys(bootstrap))
        if not self._endpoints:
            raise ValueError("no address to start from; give at least one host and port")
        self._bootstrap_count = len(self._endpoints)
        self._hint: KnownLeader | None = None
        self.cluster_id = ""
        """The cluster of the last leader found; empty before the first. Nodes of another cluster may answer, too."""

    @property
    def bootstrap(self) -> list[Endpoint]:
        """The addresses that were given."""
        return self._endpoints[: self._bootstrap_count]

    def learn(self, current: common_pb2.CurrentLeader) -> None:
        """Use the leader that a node named when it refused an operation, for the next `find` only."""
        self._hint = _leader(current, self.cluster_id)

    async def find(self) -> Endpoint:
        """The leader's endpoint. Raises NotSent: LEADER_NOT_AVAILABLE if none is known, BROKER_NOT_AVAILABLE if no node
        answers."""
        hint, self._hint = self._hint, None
        if hint is not None:
            return hint.endpoint
        asking = {asyncio.create_task(self._ask(endpoint)) for endpoint in self._endpoints}
        try:
            answered, leader = await _best_answer(asking)
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        if leader is not None:
            self.cluster_id = leader.cluster_id
            return leader.endpoint
        if answered:
            raise NotSent(
                ErrorCode.LEADER_NOT_AVAILABLE,
                "no node leads; check that a majority of the voters runs and is connected",
            )
        addresses = ", ".join(map(str, self.bootstrap))
        raise NotSent(
            ErrorCode.BROKER_NOT_AVAILABLE, f"no node answers at {addresses}; start the nodes or check the addresses"
        )

    async def _ask(self, endpoint: Endpoint) -> log_pb2.DescribeNodeResponse | None:
        try:
            async with open_channel(endpoint) as channel:
                stub = log_pb2_grpc.LogServiceStub(channel)
                node = await stub.DescribeNode(log_pb2.DescribeNodeRequest(), timeout=DESCRIBE_TIMEOUT_SECONDS)
        except grpc.aio.AioRpcError:
            return None
        self._remember(node)
        return node

    def _remember(self, node: log_pb2.DescribeNodeResponse) -> None:
        """Remember the voters: the nodes at the given addresses may go down."""
        for voter in node.voters:
            try:
                endpoint = codec.endpoint_from_proto(voter.endpoint)
            except ApiError:
                continue
            if endpoint not in self._endpoints and len(self._endpoints) < KNOWN_ENDPOINTS_MAX:
                self._endpoints.append(endpoint)


async def _best_answer(
    asking: set[asyncio.Task[log_pb2.DescribeNodeResponse | None]],
) -> tuple[bool, KnownLeader | None]:
    """Whether any node answered, and the leader of the highest epoch that was named."""
    answered, best, pending = False, None, asking
    while pending:
        done, pending = await asyncio.wait(
            pending, timeout=GRACE_SECONDS if best else None, return_when=asyncio.FIRST_COMPLETED
        )
        if not done:
            break
        nodes = [node for task in done if (node := task.result()) is not None]
        answered = answered or bool(nodes)
        named = [leader for node in nodes if (leader := _leader_of(node)) is not None]
        best = max([*named, *([best] if best else [])], default=None)
    return answered, best


def _leader_of(node: log_pb2.DescribeNodeResponse) -> KnownLeader | None:
    return _leader(node.current_leader, node.cluster_id)


def _leader(current: common_pb2.CurrentLeader, cluster_id: str) -> KnownLeader | None:
    """The leader that a node names, None if it names none that can be connected to."""
    try:
        leader, endpoint = codec.leader_from_proto(current)
    except ApiError:
        return None
    if leader.leader_id is None or endpoint is None:
        return None
    return KnownLeader(leader.epoch, endpoint, cluster_id)
