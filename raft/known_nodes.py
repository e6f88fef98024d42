"""The nodes of a cluster, for a program outside it."""

from __future__ import annotations

from collections.abc import Iterable

from kraftbase.endpoint import Endpoint
from kraftpb.v1 import log_pb2
from raft.rpc import codec


class KnownNodes:
    """The nodes to try, in turn: first those that were given, which stay, then those learned from a node."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._endpoints = list(dict.fromkeys(endpoints))
        if not self._endpoints:
            raise ValueError("no address to follow; give at least one host:port")
        self._turn = 0

    @property
    def count(self) -> int:
        """How many nodes there are."""
        return len(self._endpoints)

    def next(self) -> Endpoint:
        """The next node to try."""
        endpoint = self._endpoints[self._turn % len(self._endpoints)]
        self._turn += 1
        return endpoint

    def learn(self, node: log_pb2.DescribeNodeResponse) -> None:
        """Add the voters that a node knows."""
        for voter in node.voters:
            endpoint = codec.endpoint_from_proto(voter.endpoint)
            if endpoint not in self._endpoints:
                self._endpoints.append(endpoint)
