"""What no leader has confirmed is shown all the same, with one line on standard error that says so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from kraftbase.endpoint import Endpoint
from kraftlog.admin.client.client import AdminClient, NewTopic
from kraftlog.commands.clients import UNCONFIRMED, committed_end_offset
from kraftlog.commands.user_messages import show_to_user, user_messages_to
from tests.kraftlog.admin.admin_nodes import admin_cluster
from tests.kraftlog.admin.client.scripted_node import ScriptedNode, scripted_nodes
from tests.kraftlog.command_line import Finished, kraftlog
from tests.raft.nodes import free_port
from tests.statemachine.waiting import until


def test_a_notice_is_told_once_and_only_to_who_listens() -> None:
    told: list[str] = []
    show_to_user("before")
    with user_messages_to(told.append):
        for line in ("a", "b", "a"):
            show_to_user(line)
    show_to_user("after")
    assert told == ["a", "b"]


async def told_by(nodes: Sequence[ScriptedNode]) -> list[str]:
    told: list[str] = []
    with user_messages_to(told.append):
        assert await committed_end_offset([nodes[1].endpoint]) == 0
    return told


async def test_only_a_leader_that_answers_and_says_that_it_leads_confirms() -> None:
    async with scripted_nodes(2) as nodes:
        nodes[0].node_id = 1
        assert await told_by(nodes) == []
        nodes[0].node_id = 2  # does not lead any more
        assert await told_by(nodes) == [UNCONFIRMED]
        nodes[1].leader = Endpoint("127.0.0.1", free_port())
        assert await told_by(nodes) == [UNCONFIRMED]
        nodes[1].leader = None
        assert await told_by(nodes) == [UNCONFIRMED]


async def test_a_node_that_is_cut_off_is_not_believed_about_the_leader_if_another_knows_better() -> None:
    async with scripted_nodes(2) as (cut_off, leader):
        leader.leader, leader.leader_epoch, leader.node_id = leader.endpoint, 5, 1
        for named in (None, Endpoint("127.0.0.1", free_port())):
            cut_off.leader = named
            told: list[str] = []
            with user_messages_to(told.append):
                await committed_end_offset([cut_off.endpoint, leader.endpoint])
            assert told == []


@pytest.mark.process
async def test_without_a_majority_what_is_shown_is_said_to_be_unconfirmed(tmp_path: Path) -> None:
    assignment, topics = tmp_path / "assignment.json", tmp_path / "topics.yaml"
    moved = {"topic": "views", "partition": 0, "replicas": [1]}
    assignment.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    topics.write_text("topics: [{name: views, partitions: 1, replication_factor: 1}]")
    async with admin_cluster(tmp_path, voter_count=3) as cluster:
        async with AdminClient([cluster.endpoints[1]]) as client:
            epoch = await client.register_broker(1, [("PLAINTEXT", "localhost", 9092)])
            await client.broker_heartbeat(1, epoch, epoch + 1)
            await client.create_topics([NewTopic("views", assignments={0: [1]})])

        async def run(*arguments: object) -> Finished:
            return await asyncio.to_thread(kraftlog, *arguments, "--bootstrap-server", cluster.endpoints[1])

        commands = (
            ("topics", "apply", "-f", topics, "--dry-run"),
            ("reassign", "verify", "--file", assignment),
            ("topics", "list"),
        )
        for command in commands:
            assert (await run(*command)).lines()
        await cluster.stop(2)
        await cluster.stop(3)
        await until(lambda: cluster.nodes[1].node.replica.leader_endpoint is None)
        for command in commands:
            said = await run(*command)
            assert (said.code, said.errors) == (0, f"{UNCONFIRMED}\n")
            assert said.output
