"""Asking a cluster from outside: what a failed call means, and which node is believed about the leader."""

from __future__ import annotations

import pytest

from kraftlog.connection import connect
from kraftpb.v1 import admin_pb2, admin_pb2_grpc
from raft.core.errors import ErrorCode, ProtocolError
from tests.statemachine.scripted_node import scripted_nodes


async def test_a_node_that_stops_while_it_is_asked_is_not_available() -> None:
    async with scripted_nodes() as (node,):
        node.cancels_reads = True
        with pytest.raises(ProtocolError, match="stopped while it was asked; try again") as failure:
            async with connect(node.endpoint) as channel:
                await admin_pb2_grpc.AdminServiceStub(channel).ListTopics(admin_pb2.ListTopicsRequest())
    assert failure.value.code is ErrorCode.BROKER_NOT_AVAILABLE
