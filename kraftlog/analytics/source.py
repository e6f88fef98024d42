"""Where an export's batches come from: the port, and its implementation over a running cluster.

`GrpcSource` adds deadlines to `raft.observe.watch`: if a node sends nothing new for `timeout_ms` although more is
committed, the source tries the next node. If no node sends anything, the export ends with an error. Files that it has
published stay.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from typing import Final, NamedTuple, Protocol

import grpc
import grpc.aio
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ConfigurationError, ErrorCode
from kraftbase.types import Offset
from kraftpb.v1 import log_pb2, log_pb2_grpc
from raft.core.types import Batch
from raft.known_nodes import KnownNodes, is_behind
from raft.observe import Watched, parse_endpoint, watch
from raft.rpc.channels import channel_to

DESCRIBE_ROUNDS: Final = 3
"""How often each node is asked before the export fails because no node answers."""

_RETRY_SECONDS_MIN: Final = 0.1


class LogDescription(NamedTuple):
    """The range of offsets that can be exported from a log."""

    cluster_id: str
    log_start_offset: Offset
    high_watermark: Offset
    """-1 if it is not known."""
    is_level: bool = True
    """Whether the node that reported it is in contact with a leader; if not, more may be committed."""


class CommittedSource(Protocol):
    """A log to export from."""

    async def describe(self) -> LogDescription:
        """Return the range that can be exported now."""
        ...

    def batches(self, start_offset: Offset, end_offset: Offset) -> AsyncGenerator[Batch]:
        """The committed batches that hold the offsets from `start_offset` to `end_offset` (exclusive), in order.

        The first and the last batch are whole, so they may hold more. Raises ApiError(OFFSET_OUT_OF_RANGE) if
        `start_offset` is no longer in the log. Never ends early without an error.
        """
        ...


class GrpcSource:
    """The committed log of a running cluster. Any of its nodes will do. Memory is bounded by one message."""

    def __init__(
        self, addresses: str | Sequence[Endpoint], *, cluster_id: str | None = None, timeout_ms: int = 10_000
    ) -> None:
        """`addresses` is "host:port", several of them with commas, or endpoints. Raises ConfigurationError.

        With `cluster_id` every other cluster is refused; without one the first node to answer sets it.
        """
        try:
            self._endpoints = (
                tuple(parse_endpoint(address) for address in addresses.split(","))
                if isinstance(addresses, str)
                else tuple(addresses)
            )
        except ValueError as error:
            raise ConfigurationError(str(error)) from None
        if not self._endpoints:
            raise ConfigurationError("no address was given; give at least one host:port")
        self._cluster_id = cluster_id
        self._timeout_ms = timeout_ms
        self._turn = random.randrange(len(self._endpoints))  # noqa: S311 (spreads load)

    async def describe(self) -> LogDescription:
        """Return the log's range as one node knows it: a node that is level with a leader, if there is one.

        Raises ApiError(INCONSISTENT_CLUSTER_ID) for another cluster, BROKER_NOT_AVAILABLE if no node answers.
        """
        retrying = AsyncRetrying(
            stop=stop_after_attempt(DESCRIBE_ROUNDS * len(self._endpoints)),
            wait=wait_exponential_jitter(multiplier=_RETRY_SECONDS_MIN, max=1, jitter=_RETRY_SECONDS_MIN),
            retry=retry_if_exception_type(_NodeLost),
            reraise=True,
        )
        node: log_pb2.DescribeNodeResponse = await retrying(self._describe_node)
        if self._cluster_id is not None and node.cluster_id != self._cluster_id:
            raise ApiError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"{self._endpoint} belongs to cluster {node.cluster_id}, not {self._cluster_id}; check the address",
            )
        self._cluster_id = node.cluster_id
        if is_behind(node.leader_contact):
            node = await self._level_node(node, node.cluster_id)
        return LogDescription(
            node.cluster_id, Offset(node.log_start_offset), Offset(node.high_watermark),
            is_level=not is_behind(node.leader_contact),
        )  # fmt: skip

    async def _level_node(self, node: log_pb2.DescribeNodeResponse, cluster_id: str) -> log_pb2.DescribeNodeResponse:
        """Return the description by a level node, which is asked first from now on; `node` if no node is level."""
        nodes = KnownNodes(self._endpoints)
        nodes.learn(self._endpoint, node, cluster_id)
        found = await nodes.level_node(self._endpoint, cluster_id)
        if found is None:
            return node
        self._endpoints = (found, *(endpoint for endpoint in self._endpoints if endpoint != found))
        self._turn = 0
        try:
            return await self._describe_node()
        except _NodeLost:
            return node

    async def batches(self, start_offset: Offset, end_offset: Offset) -> AsyncGenerator[Batch]:
        """The committed batches of the range, from one node or several."""
        next_offset, silent_nodes = start_offset, 0
        while next_offset < end_offset:
            watching = self._watch(next_offset, end_offset)
            try:
                while next_offset < end_offset:
                    batches = await self._next_batches(watching)
                    silent_nodes = 0
                    for batch in batches:
                        yield batch
                    next_offset = batches[-1].end_offset
            except TimeoutError:
                silent_nodes += 1
                self._turn += 1
                if silent_nodes == len(self._endpoints):
                    raise _NodeLost(
                        f"nothing from offset {next_offset} on within {self._timeout_ms} ms from {self._names}"
                    ) from None
            finally:
                await watching.aclose()

    @property
    def _endpoint(self) -> Endpoint:
        return self._endpoints[self._turn % len(self._endpoints)]

    @property
    def _names(self) -> str:
        return ", ".join(map(str, self._endpoints))

    def _watch(self, start_offset: Offset, end_offset: Offset) -> AsyncGenerator[Watched]:
        """Watch the endpoints, starting with the one whose turn it is."""
        first = self._turn % len(self._endpoints)
        endpoints = self._endpoints[first:] + self._endpoints[:first]
        return watch(
            endpoints, start_offset=start_offset, end_offset=end_offset, cluster_id=self._cluster_id, in_order=True
        )

    async def _next_batches(self, watching: AsyncGenerator[Watched]) -> tuple[Batch, ...]:
        async with asyncio.timeout(self._timeout_ms / 1000):
            while True:
                watched = await anext(watching)
                if watched.batches:
                    return watched.batches

    async def _describe_node(self) -> log_pb2.DescribeNodeResponse:
        endpoint = self._endpoint
        async with channel_to(endpoint) as channel:
            try:
                return await log_pb2_grpc.LogServiceStub(channel).DescribeNode(
                    log_pb2.DescribeNodeRequest(), timeout=self._timeout_ms / 1000
                )
            except grpc.aio.AioRpcError as error:
                self._turn += 1
                raise _NodeLost(f"{endpoint} does not answer: {error.details() or error.code().name}") from None


class _NodeLost(ApiError):
    """A node does not answer. Another node may answer, or this node later."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.BROKER_NOT_AVAILABLE, f"{message}; check the address and that the node runs")
