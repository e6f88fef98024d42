"""The nodes of a cluster, for a program outside it, and which of them it should ask."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import Final

import grpc
import grpc.aio

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftpb.v1 import log_pb2, log_pb2_grpc
from raft.rpc import codec
from raft.rpc.channels import channel_to

LOOK_TIMEOUT_SECONDS: Final = 1.0


class KnownNodes:
    """The nodes to try, in turn: the given ones, which stay, and those learned from a node.

    The first one is chosen at random, so that many programs with the same addresses spread over the nodes.
    """

    def __init__(self, endpoints: Iterable[Endpoint], *, in_order: bool = False) -> None:
        """`in_order`: the first address is tried first."""
        self._endpoints = list(dict.fromkeys(endpoints))
        if not self._endpoints:
            raise ValueError("no address to follow; give at least one host:port")
        self._foreign: set[Endpoint] = set()
        """Where a node of another cluster answered last."""
        self._turn = 0 if in_order else random.randrange(len(self._endpoints))  # noqa: S311 (spreads load)

    @property
    def count(self) -> int:
        """How many nodes there are."""
        return len(self._endpoints)

    def next(self) -> Endpoint:
        """The next node to try."""
        endpoint = self._endpoints[self._turn % len(self._endpoints)]
        self._turn += 1
        return endpoint

    def prefer(self, endpoint: Endpoint) -> None:
        """Try a known node next."""
        self._turn = self._endpoints.index(endpoint)

    def learn(self, endpoint: Endpoint, node: log_pb2.DescribeNodeResponse, cluster_id: str) -> bool:
        """Add the voters that a node knows if it is of the cluster; return whether it is.

        Raises ApiError(INCONSISTENT_CLUSTER_ID) if none of the known nodes is of the cluster: the addresses are wrong.
        """
        if node.cluster_id != cluster_id:
            self._foreign.add(endpoint)
            if self._foreign.issuperset(self._endpoints):
                raise ApiError(
                    ErrorCode.INCONSISTENT_CLUSTER_ID,
                    f"this is cluster {node.cluster_id}, not {cluster_id[:64]}; check the address",
                )
            return False
        self._foreign.discard(endpoint)
        for voter in node.voters:
            known = codec.endpoint_from_proto(voter.endpoint)
            if known not in self._endpoints:
                self._endpoints.append(known)
        return True

    async def level_node(self, but: Endpoint, cluster_id: str) -> Endpoint | None:
        """Another node of the cluster that is level with a leader; None if no node reports that within a second."""
        others = [endpoint for endpoint in self._endpoints if endpoint != but]
        random.shuffle(others)
        answers = await asyncio.gather(*(_describe(endpoint) for endpoint in others))
        for endpoint, node in zip(others, answers, strict=True):
            if node is not None and node.cluster_id == cluster_id and _is_level(node):
                return endpoint
        return None


def is_behind(contact: log_pb2.LeaderContact) -> bool:
    """Whether readers should leave the node that reports this contact; one of an older version reports none."""
    return contact.behind_ms > contact.behind_max_ms


def _is_level(node: log_pb2.DescribeNodeResponse) -> bool:
    """Whether readers that leave another node should follow this one. A node of an older version must know a leader."""
    leader, _ = codec.leader_from_proto(node.current_leader)
    has_leader = node.HasField("leader_contact") or leader.leader_id is not None
    return has_leader and not is_behind(node.leader_contact)


async def _describe(endpoint: Endpoint) -> log_pb2.DescribeNodeResponse | None:
    try:
        async with channel_to(endpoint) as channel:
            stub = log_pb2_grpc.LogServiceStub(channel)
            node: log_pb2.DescribeNodeResponse = await stub.DescribeNode(
                log_pb2.DescribeNodeRequest(), timeout=LOOK_TIMEOUT_SECONDS
            )
            return node
    except grpc.aio.AioRpcError:
        return None
