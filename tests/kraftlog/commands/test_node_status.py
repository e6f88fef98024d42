"""`kraftlog node status`: every node asked by itself, and whether there is a quorum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kraftbase.endpoint import Endpoint
from kraftlog.admin.client.connection import describe_quorum
from kraftlog.commands import quorum
from kraftlog.commands.node_status import NO_ANSWER, NOT_ASKED, Findings, ask_all, failed_listeners, rows
from kraftpb.v1 import common_pb2, log_pb2, quorum_pb2
from raft.client import RaftClient
from raft.listener import BatchReader, Listener
from raft.node import log_listener_fault
from tests.kraftlog.command_line import Run
from tests.kraftlog.whole_nodes import WholeNodes
from tests.process.test_up import up
from tests.raft.nodes import free_port
from tests.statemachine.waiting import until

NOBODY = -1


def endpoint(node_id: int) -> Endpoint:
    return Endpoint("localhost", 9090 + node_id)


def answer(
    node_id: int, role: str, leader_id: int, epoch: int = 5, *, voters: Sequence[int] = (1, 2, 3), **fields: Any
) -> log_pb2.DescribeNodeResponse:
    return log_pb2.DescribeNodeResponse(
        cluster_id="cluster",
        replica_key=common_pb2.ReplicaKey(node_id=node_id, directory_id=bytes([node_id]) * 16),
        role=role,
        is_voter=node_id in voters,
        current_leader=common_pb2.CurrentLeader(leader_id=leader_id, leader_epoch=epoch),
        voters=[
            log_pb2.DescribeNodeResponse.ReplicaState(
                replica_key=common_pb2.ReplicaKey(node_id=voter),
                endpoint=common_pb2.Endpoint(host="localhost", port=9090 + voter),
            )
            for voter in voters
        ],
        **fields,
    )


def found(*answers: log_pb2.DescribeNodeResponse, silent: Sequence[Endpoint] = ()) -> Findings:
    findings = Findings()
    for node in answers:
        findings.take(endpoint(node.replica_key.node_id), node)
    for at in silent:
        findings.take(at, None)
    return findings


def brief(findings: Findings) -> list[tuple[Any, Any, Any]]:
    return [(row["Node"], row["Role"], row["Condition"]) for row in rows(findings)]


LEADER = answer(2, "leader", 2)


@pytest.mark.parametrize(
    ("answers", "has_quorum"),
    [
        ((LEADER, answer(1, "follower", 2)), True),
        ((LEADER,), False),
        ((answer(2, "leader", 2, voters=(1, 2, 3, 4)), answer(1, "follower", 2, voters=(1, 2, 3, 4))), False),
        ((LEADER, answer(4, "follower", 2)), False),
        ((LEADER, answer(1, "follower", 2, recovering=True)), False),
        ((LEADER, answer(1, "follower", 2, epoch=4)), False),
        ((LEADER, answer(1, "unattached", NOBODY, epoch=6)), False),
        ((answer(1, "follower", 2), answer(3, "follower", 2)), False),
        ((answer(2, "resigned", 2), answer(1, "follower", 2), answer(3, "follower", 2)), False),
        ((answer(1, "leader", 1, epoch=4), LEADER, answer(3, "follower", 2)), True),
        ((answer(1, "leader", 1, epoch=4), answer(3, "follower", 1, epoch=4), LEADER), False),
        ((answer(1, "leader", 1, voters=(1,)),), True),
        ((), False),
    ],
)
def test_a_quorum_is_a_leader_and_a_majority_of_the_voters_that_say_they_follow_it(
    answers: Sequence[log_pb2.DescribeNodeResponse], has_quorum: bool
) -> None:
    assert found(*answers).has_quorum() is has_quorum


def test_a_voter_that_does_not_answer_has_a_row_and_so_has_an_address_where_nobody_does() -> None:
    findings = found(answer(3, "unattached", NOBODY), silent=(endpoint(1), endpoint(2), Endpoint("localhost", 1)))
    assert brief(findings) == [
        (1, "voter", [NO_ANSWER]),
        (2, "voter", [NO_ANSWER]),
        (3, "unattached", []),
        (None, None, [NO_ANSWER]),
    ]
    assert [row["Address"] for row in rows(findings)] == [
        *(f"localhost:909{voter}" for voter in (1, 2, 3)),
        "localhost:1",
    ]
    assert rows(findings)[2]["Leader"] is None


def test_a_node_that_is_asked_at_two_addresses_is_one_row() -> None:
    findings = found(LEADER)
    findings.take(Endpoint("127.0.0.1", 9092), LEADER)
    assert [row["Address"] for row in rows(findings) if row["Answers"]] == ["localhost:9092"]


def test_a_node_of_another_cluster_says_so_and_does_not_count() -> None:
    other = answer(3, "follower", 2)
    other.cluster_id = "other"
    findings = found(LEADER, other)
    assert not findings.has_quorum()
    assert brief(findings)[-1] == (3, None, ["is of another cluster, other"])


def test_conditions_are_the_nodes_own_and_what_the_leader_says() -> None:
    faults = [log_pb2.DescribeNodeResponse.ListenerFault(listener="Audit", error="KeyError: 'x'")]
    findings = found(LEADER, answer(1, "follower", 2, recovering=True, listener_faults=faults))
    findings.of_leader = quorum_pb2.DescribeQuorumResponse(
        current_voters=[replica(1, recovering=True), replica(2), replica(3, state_diverged=True)],
        observers=[replica(9, log_end_offset=7)],
    )
    assert brief(findings) == [
        (1, "follower", ["recovering", "listener Audit failed"]),
        (2, "leader", []),
        (3, "voter", [NO_ANSWER]),
        (9, "observer", [NOT_ASKED]),
    ]
    assert rows(findings)[0]["ListenerFaults"] == {"Audit": "KeyError: 'x'"}
    assert rows(findings)[3]["LogEndOffset"] == 7


def replica(node_id: int, **fields: Any) -> quorum_pb2.ReplicaState:
    return quorum_pb2.ReplicaState(replica_key=common_pb2.ReplicaKey(node_id=node_id), **fields)


# --- real nodes -----------------------------------------------------------------------------------------------------


def roles(findings: Findings) -> Mapping[int, str]:
    return {row["Node"]: row["Role"] for row in rows(findings)}


async def test_from_one_address_all_voters_are_asked_also_when_nobody_leads(tmp_path: Path) -> None:
    async with WholeNodes(tmp_path, voter_count=3) as nodes:
        started = [await nodes.start(node_id) for node_id in (1, 2, 3, 4)]
        await until(lambda: all(node.replica.leader_endpoint is not None for node in started))
        at = [nodes.endpoints[1]]
        while not (findings := await ask_all(at)).has_quorum():
            pass  # the test's time limit ends it
        assert roles(findings).keys() - {4} == {1, 2, 3}
        assert sorted(role for node_id, role in roles(findings).items() if node_id != 4) == ["follower"] * 2 + [
            "leader"
        ]
        assert roles(await ask_all([*at, nodes.endpoints[4]]))[4] == "observer"

        for node_id in (2, 3):
            await nodes.stop(node_id)
        findings = await ask_all(at)
        assert not findings.has_quorum()
        silent = [row["Node"] for row in rows(findings) if row["Condition"] == [NO_ANSWER]]
        assert silent == [2, 3]


class Failing(Listener):
    """Raises at the first commit that it is given."""

    async def handle_commit(self, reader: BatchReader) -> None:
        raise ValueError("no such account")


async def test_a_node_that_goes_on_without_a_listener_shows_it(tmp_path: Path) -> None:
    async with WholeNodes(tmp_path) as nodes:
        node = await nodes.start(1, on_listener_fault=log_listener_fault)
        RaftClient(node).register(Failing())
        await until(lambda: bool(node.delivery.faults))
        (row,) = rows(await ask_all([nodes.endpoints[1]]))
        assert row["Condition"] == ["listener Failing failed"]
        assert row["ListenerFaults"] == {"Failing": "ValueError: no such account"}
        response = await describe_quorum([nodes.endpoints[1]])
        (replicated,) = quorum.replication(response, await failed_listeners(response))
        assert replicated["Condition"] == "listener Failing failed"


@pytest.mark.process
def test_the_exit_code_says_whether_there_is_a_quorum(tmp_path: Path, run: Run) -> None:
    with up(tmp_path / "cluster", "--voters", 1) as (_, addresses):
        asked = run("node", "status", "--bootstrap-server", addresses, "--output", "json").json()
        assert (asked["HasQuorum"], [row["Role"] for row in asked["Nodes"]]) == (True, ["leader"])
    asked = run("node", "status", "--bootstrap-server", f"localhost:{free_port()}")
    assert asked.code == 1
    assert NO_ANSWER in asked.output
    assert "no quorum" in asked.errors
