"""Calls to a cluster from outside: what a failed call means, and which node is trusted about the leader."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftlog.admin.client.connection import connect, describe_quorum
from kraftpb.v1 import admin_pb2, admin_pb2_grpc
from tests.kraftlog.admin.admin_nodes import admin_cluster
from tests.kraftlog.admin.client.scripted_node import scripted_nodes
from tests.raft.nodes import free_port


async def test_a_node_that_stops_while_it_is_asked_is_not_available() -> None:
    async with scripted_nodes() as (node,):
        node.cancels_reads = True
        with pytest.raises(ApiError, match="stopped during the call; try again") as failure:
            async with connect(node.endpoint) as channel:
                await admin_pb2_grpc.AdminServiceStub(channel).ListTopics(admin_pb2.ListTopicsRequest())
    assert failure.value.code is ErrorCode.BROKER_NOT_AVAILABLE


async def test_the_leader_is_found_past_a_node_that_is_cut_off(tmp_path: Path) -> None:
    async with admin_cluster(tmp_path) as cluster, scripted_nodes() as (cut_off,):
        await cluster.leader()
        for named in (None, Endpoint("127.0.0.1", free_port())):
            cut_off.leader, cut_off.leader_epoch = named, 0
            described = await describe_quorum([cut_off.endpoint, cluster.endpoints[1]])
            assert described.current_leader.leader_id == 1


async def test_nobody_who_answers_is_told_as_that() -> None:
    with pytest.raises(ApiError) as failure:
        await describe_quorum([Endpoint("127.0.0.1", free_port())])
    assert failure.value.code is ErrorCode.BROKER_NOT_AVAILABLE
