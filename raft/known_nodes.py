"""The nodes of a cluster that a program outside it may ask."""

from __future__ import annotations

from collections.abc import Iterable

from kraftbase.endpoint import Endpoint
from kraftpb.v1 import log_pb2
from raft.rpc import codec


class KnownNodes:
    """The nodes that may be asked, in turn; those that were given stay, those heard of come behind."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._endpoints = list(dict.fromkeys(endpoints))
        if not self._endpoints:
            raise ValueError("no address to follow; give at least one host:port")
        self._turn = 0

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._endpoints)

    def next(self) -> Endpoint:
        """The one whose turn it is."""
        endpoint = self._endpoints[self._turn % len(self._endpoints)]
        self._turn += 1
        return endpoint

    def learn(self, node: log_pb2.DescribeNodeResponse) -> None:
        """Take note of the voters that a node knows."""
        for voter in node.voters:
            endpoint = codec.endpoint_from_proto(voter.endpoint)
            if endpoint not in self._endpoints:
                self._endpoints.append(endpoint)
