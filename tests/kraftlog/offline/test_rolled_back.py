"""Directories, or logs alone, that were brought back from an older copy: nothing acknowledged is lost or made up."""

from __future__ import annotations

from pathlib import Path

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kraftlog.admin.client.connection import describe_quorum
from kraftlog.commands.quorum import replication
from tests.kraftlog.acknowledged import WAIT_SECONDS, AcknowledgingNodes, copied
from tests.statemachine.waiting import until

OBSERVER = 11


async def health(nodes: AcknowledgingNodes, node_id: int) -> str:
    async with grpc.aio.insecure_channel(str(nodes.endpoints[node_id])) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)


@pytest.mark.parametrize("node_id", [3, OBSERVER], ids=["a voter", "an observer"])
async def test_a_log_that_is_older_than_its_database_is_fetched_again(tmp_path: Path, node_id: int) -> None:
    async with AcknowledgingNodes(tmp_path) as nodes:
        await nodes.up(1, 2, 3)
        if node_id == OBSERVER:
            await nodes.up(OBSERVER)
        await nodes.write(3)
        await nodes.all_hold_what_was_acknowledged()
        await nodes.down(node_id)
        older = copied(nodes.path(node_id) / "log", tmp_path / "older-log")
        await nodes.up(node_id)
        await nodes.write(10)
        await nodes.all_hold_what_was_acknowledged()
        await nodes.down(node_id)
        copied(older, nodes.path(node_id) / "log")
        await nodes.up(node_id)
        assert nodes.nodes[node_id].log.recovery.log_end_offset < 13
        replica = nodes.nodes[node_id].replica
        await until(lambda: not replica.is_recovering and replica.refused_leader is None, WAIT_SECONDS)
        await nodes.write(1)
        await nodes.all_hold_what_was_acknowledged()
        assert not list(nodes.path(node_id).glob("metadata.db.damaged*")), "its database was right all the time"


async def test_a_leader_that_lacks_what_is_committed_is_refused_and_shown(tmp_path: Path) -> None:
    async with AcknowledgingNodes(tmp_path) as nodes:
        await nodes.up(1, 2, 3)
        await nodes.write(3)
        await nodes.all_hold_what_was_acknowledged()
        await nodes.down(1, 2, 3)
        older = {node_id: copied(nodes.path(node_id), tmp_path / f"older-{node_id}") for node_id in (1, 2)}
        await nodes.up(1, 2, 3)
        await nodes.write(10)
        await nodes.all_hold_what_was_acknowledged()
        third = nodes.nodes[3]
        await nodes.down(1, 2, 3)
        known_epoch = third.replica.epoch  # as the others go down it may have led in another one
        for node_id, copy in older.items():
            copied(copy, nodes.path(node_id))
        await nodes.up(1, 2)
        while True:
            leader = nodes.nodes[await nodes.led()]
            if leader.replica.epoch > known_epoch:
                break
            leader.resign(leader.replica.epoch)
        held = set(nodes.acknowledged)
        await nodes.write(1)  # both have a record of the new epoch then, so that neither votes for the third
        await nodes.up(3)
        third = nodes.nodes[3]
        end_offset = third.log.log_end_offset
        await until(lambda: third.replica.refused_leader is not None, WAIT_SECONDS)
        await until(lambda: not third.is_ready, WAIT_SECONDS)
        assert await nodes.held_by(3) == held, "what it has applied it still shows"
        assert third.log.log_end_offset == end_offset, "nothing was cut"
        refused = third.replica.refused_leader
        assert refused is not None
        condition = ""
        while not condition:
            rows = {row["NodeId"]: row for row in replication(await describe_quorum(list(nodes.endpoints.values())))}
            condition = rows[3]["Condition"]
        assert condition == (
            f"LEADER_LACKS_COMMITTED: agrees to {refused.gap.agreed_offset}, committed {refused.gap.committed_offset}"
        )
        assert refused.gap.agreed_offset < refused.gap.committed_offset <= end_offset
        assert await health(nodes, 3) == "NOT_SERVING"
        assert await health(nodes, 1) == "SERVING"
