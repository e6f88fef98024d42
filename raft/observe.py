"""Follow the committed log of a cluster from any program: `await observe("host:port", MyListener())`.

An observer here is a reader, no replica: it keeps no log and is not counted. It asks any node it was given or has
heard of, and goes on with the next one when that node fails, from the offset that its listener has taken.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import Final

import grpc
import grpc.aio
import structlog

from kraftpb.v1 import log_pb2, log_pb2_grpc
from raft.core.errors import ErrorCode, ProtocolError
from raft.core.types import Batch, Endpoint, LeaderAndEpoch, Offset
from raft.listener import BatchReader, Listener
from raft.rpc import codec
from raft.rpc.log_service import ERROR_KEY
from raft.rpc.options import CHANNEL_OPTIONS
from raft.storage.batch import decode_batches

RETRY_SECONDS_MIN: Final = 0.05
RETRY_SECONDS_MAX: Final = 2.0
DESCRIBE_TIMEOUT_SECONDS: Final = 2.0

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Watched:
    """What one message of a watch stream says."""

    batches: tuple[Batch, ...]
    high_watermark: Offset
    leader: LeaderAndEpoch


def parse_endpoint(text: str) -> Endpoint:
    """The endpoint that `host:port` or `[v6]:port` names; raises ValueError with what is wrong with it."""
    host, separator, port = text.strip().rpartition(":")
    if not separator or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is no address; give host:port, such as localhost:9092")
    return Endpoint(host.strip("[]"), int(port))


async def observe(
    addresses: str | Iterable[Endpoint],
    listener: Listener,
    *,
    start_offset: Offset = Offset(0),
    end_offset: Offset | None = None,
    cluster_id: str | None = None,
) -> Offset:
    """Feed `listener` every committed batch from the one that holds `start_offset`, by the contract in `raft.listener`.

    `addresses` names one node or more: `"host:port,host:port"` or endpoints. Returns the offset after the last record
    taken once everything below `end_offset` was; without one it goes on until it is cancelled. Raises ProtocolError
    OFFSET_OUT_OF_RANGE if the offset is gone and INCONSISTENT_CLUSTER_ID if the address is of another cluster than
    `cluster_id`; nodes that cannot be reached are tried again for as long as it takes.
    """
    if isinstance(addresses, str):
        addresses = [parse_endpoint(address) for address in addresses.split(",")]
    next_offset, announced = start_offset, None
    try:
        async for watched in watch(addresses, start_offset=start_offset, end_offset=end_offset, cluster_id=cluster_id):
            if watched.batches:
                closed = asyncio.Event()
                reader = BatchReader(watched.batches, closed.set)
                await listener.handle_commit(reader)
                await closed.wait()
                next_offset = reader.end_offset
            if watched.leader != announced and (announced is None or watched.leader.epoch >= announced.epoch):
                announced = watched.leader
                await listener.handle_leader_change(announced)
    finally:
        await listener.begin_shutdown()
    return next_offset


async def watch(
    endpoints: Iterable[Endpoint],
    *,
    start_offset: Offset = Offset(0),
    end_offset: Offset | None = None,
    cluster_id: str | None = None,
) -> AsyncGenerator[Watched, None]:
    """Committed batches and leaders, from whichever node answers; `observe` says what is promised.

    Bounded by gRPC's flow control: nothing is read ahead of what the caller takes but one message.
    """
    nodes = _Nodes(endpoints)
    next_offset = start_offset
    retry_seconds = RETRY_SECONDS_MIN
    while end_offset is None or next_offset < end_offset:
        endpoint = nodes.next()
        try:
            async with grpc.aio.insecure_channel(str(endpoint), options=CHANNEL_OPTIONS) as channel:
                stub = log_pb2_grpc.LogServiceStub(channel)
                node = await stub.DescribeNode(log_pb2.DescribeNodeRequest(), timeout=DESCRIBE_TIMEOUT_SECONDS)
                nodes.learn(node)
                cluster_id = cluster_id or node.cluster_id  # another cluster may listen there after a restart
                request = log_pb2.WatchRequest(cluster_id=cluster_id, start_offset=next_offset, end_offset=end_offset)
                async for message in stub.Watch(request):
                    watched = _decode(message, next_offset)
                    if watched.batches:
                        next_offset = watched.batches[-1].end_offset
                    retry_seconds = RETRY_SECONDS_MIN
                    yield watched
        except grpc.aio.AioRpcError as error:
            _raise_if_refused(error)
            logger.debug("cannot follow the log here, trying the next node", node=str(endpoint), reason=error.details())
            await asyncio.sleep(retry_seconds * (1 + random.random()))  # noqa: S311 (jitter)
            retry_seconds = min(2 * retry_seconds, RETRY_SECONDS_MAX)


class _Nodes:
    """The nodes that may be asked, in turn; those that were given stay, those heard of come behind."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._endpoints = list(dict.fromkeys(endpoints))
        if not self._endpoints:
            raise ValueError("no address to follow; give at least one host:port")
        self._turn = 0

    def next(self) -> Endpoint:
        endpoint = self._endpoints[self._turn % len(self._endpoints)]
        self._turn += 1
        return endpoint

    def learn(self, node: log_pb2.DescribeNodeResponse) -> None:
        for voter in node.voters:
            endpoint = codec.endpoint_from_proto(voter.endpoint)
            if endpoint not in self._endpoints:
                self._endpoints.append(endpoint)


def _decode(message: log_pb2.WatchResponse, next_offset: Offset) -> Watched:
    leader, _ = codec.leader_from_proto(message.current_leader)
    batches = decode_batches(message.records) if message.records else ()
    if batches and not batches[0].base_offset <= next_offset < batches[0].end_offset:
        raise ProtocolError(
            ErrorCode.CORRUPT_MESSAGE,
            f"asked for offset {next_offset} and got {batches[0].base_offset}; the node that answers is broken",
        )
    return Watched(batches, Offset(message.high_watermark), leader)


def _raise_if_refused(error: grpc.aio.AioRpcError) -> None:
    for key, value in error.trailing_metadata() or ():
        if key == ERROR_KEY and isinstance(value, str):
            code = codec.error_from_proto(int(value))
            if code is not ErrorCode.THROTTLING_QUOTA_EXCEEDED:  # another node may have room
                raise ProtocolError(code, error.details() or "") from None
