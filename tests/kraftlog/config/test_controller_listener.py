"""Voters with a listener of their own for replicas: which calls are served where, and which addresses clients get."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import grpc.aio
import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ConfigurationError, ErrorCode
from kraftbase.types import NodeId
from kraftlog.admin.client.client import AdminClient
from kraftlog.admin.client.connection import describe_node
from kraftlog.config.config import NodeConfig
from kraftpb.v1 import admin_pb2, admin_pb2_grpc, log_pb2, log_pb2_grpc, quorum_pb2, quorum_pb2_grpc
from raft.rpc.errors import ERROR_KEY
from tests.kraftlog.whole_nodes import WholeNodes


async def leader_of(nodes: WholeNodes) -> int:
    """The node that leads, once all three agree."""
    async with asyncio.timeout(100):
        while True:
            described = [await describe_node(at, timeout_seconds=10) for at in nodes.endpoints.values()]
            leaders = {node.current_leader.leader_id for node in described}
            if leaders < {1, 2, 3} and len(leaders) == 1:
                return leaders.pop()
            await asyncio.sleep(0.05)


async def test_replicas_and_clients_are_served_where_each_belongs(tmp_path: Path) -> None:
    async with WholeNodes(tmp_path, voter_count=3, replicas_apart=True) as nodes:
        for node_id in (1, 2, 3):
            await nodes.start(node_id)
        leader = await leader_of(nodes)
        follower = next(node_id for node_id in (1, 2, 3) if node_id != leader)
        described = await describe_node(nodes.endpoints[follower], timeout_seconds=10)
        assert described.current_leader.leader_endpoint.port == nodes.endpoints[leader].port
        assert {voter.endpoint.port for voter in described.voters} == {at.port for at in nodes.endpoints.values()}
        # A client that knows only a follower finds the leader, and so does one that asks the wrong node.
        async with AdminClient([nodes.endpoints[follower]]) as client:
            result = await client.execute(admin_pb2.Operation(delete_topics=admin_pb2.DeleteTopicsRequest()))
            assert result.error_code in (0, ErrorCode.INVALID_REQUEST)
        async with grpc.aio.insecure_channel(str(nodes.endpoints[follower])) as channel:
            execute = admin_pb2_grpc.AdminServiceStub(channel).Execute()
            await execute.write(admin_pb2.OperationBatch(operations=[admin_pb2.Operation(correlation_id=1)]))
            answered = await execute.read()
            assert isinstance(answered, admin_pb2.OperationResultBatch)
            assert answered.results[0].current_leader.leader_endpoint.port == nodes.endpoints[leader].port
            quorum = quorum_pb2_grpc.QuorumServiceStub(channel)
            described_quorum = await quorum.DescribeQuorum(quorum_pb2.DescribeQuorumRequest())
            assert described_quorum.current_leader.leader_endpoint.port == nodes.endpoints[leader].port
            with pytest.raises(grpc.aio.AioRpcError, match=r"controller\.listener") as refusal:
                await quorum.Vote(quorum_pb2.VoteRequest())
            assert (ERROR_KEY, str(int(ErrorCode.INVALID_REQUEST))) in tuple(refusal.value.trailing_metadata() or ())
        async with grpc.aio.insecure_channel(str(nodes.replica_endpoints[leader])) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as unknown:
                await log_pb2_grpc.LogServiceStub(channel).DescribeNode(log_pb2.DescribeNodeRequest())
            assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_an_observer_follows_and_tells_clients_where_the_leader_is(tmp_path: Path) -> None:
    async with WholeNodes(tmp_path, voter_count=1, replicas_apart=True) as nodes:
        await nodes.start(1)
        await nodes.start(2)
        async with asyncio.timeout(100):
            while True:
                node = await describe_node(nodes.endpoints[2], timeout_seconds=10)
                if node.applied_end_offset > 0 and node.current_leader.leader_id == 1:
                    break
                await asyncio.sleep(0.05)
        assert node.current_leader.leader_endpoint.port == nodes.endpoints[1].port
        assert not node.is_voter


A, B = Endpoint("h", 9092), Endpoint("h", 9093)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"controller_listener": B}, "go together"),
        ({"client_listeners": ((NodeId(1), A),)}, "go together"),
        ({"controller_listener": B, "client_listeners": ((NodeId(2), A),)}, "name the same voters in both"),
        ({"controller_listener": A, "client_listeners": ((NodeId(1), A),)}, "controller.listener has h:9092"),
        (
            {"controller_listener": B, "client_listeners": ((NodeId(1), Endpoint("h", 1)),)},
            "client.listeners has voter 1 at h:1, listeners has h:9092",
        ),
        ({"listener": B, "controller_listener": B, "client_listeners": ((NodeId(1), B),)}, "give each its own"),
    ],
)
def test_addresses_that_contradict_each_other_are_refused(settings: dict[str, object], words: str) -> None:
    values: dict[str, object] = {"listener": A, "voters": ((NodeId(1), B),), **settings}
    with pytest.raises(ConfigurationError) as refusal:
        NodeConfig(node_id=NodeId(1), directory=Path("d"), **values)  # type: ignore[arg-type]
    assert words in str(refusal.value)
