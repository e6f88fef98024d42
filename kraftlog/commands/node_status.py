"""What `kraftlog node status` shows: every known node, each asked for its own state, with or without a leader. Known
are the given addresses, the voters that the nodes name, and the observers that a leader names. A leader knows no
addresses of observers: an observer whose address was not given is shown as the leader sees it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError
from kraftlog.admin.client.connection import describe_node, quorum_as_seen_by
from kraftlog.commands.quorum import condition, failed_listener
from kraftpb.v1 import common_pb2, log_pb2, quorum_pb2
from raft.rpc import codec

COLUMNS: Final = (
    "Node",
    "Address",
    "Role",
    "Leader",
    "Epoch",
    "HighWatermark",
    "LogEndOffset",
    "Applied",
)

NO_ANSWER: Final = "does not answer"
NOT_ASKED: Final = "address not known; as the leader sees it"

NODES_MAX: Final = 64
"""At most this many addresses are asked: the addresses that a node names may be wrong."""


@dataclass(slots=True)
class Findings:
    """What the nodes reported, each about itself."""

    answers: dict[Endpoint, log_pb2.DescribeNodeResponse] = field(default_factory=dict)
    silent: list[Endpoint] = field(default_factory=list)
    """The addresses where no node answers."""
    of_leader: quorum_pb2.DescribeQuorumResponse | None = None
    """What the leader reports about all replicas; None if there is no leader, or it does not answer."""

    def take(self, endpoint: Endpoint, answer: log_pb2.DescribeNodeResponse | None) -> None:
        """Note the answer of an address."""
        if answer is None:
            self.silent.append(endpoint)
        else:
            self.answers[endpoint] = answer

    @property
    def cluster_id(self) -> str:
        """The cluster of the first node that answered; nodes of others may answer, too."""
        return next((node.cluster_id for node in self.answers.values()), "")

    def nodes(self) -> dict[Endpoint, log_pb2.DescribeNodeResponse]:
        """The answers of this cluster's nodes, one answer per node."""
        by_key = {
            node.replica_key.SerializeToString(): (endpoint, node)
            for endpoint, node in reversed(self.answers.items())
            if node.cluster_id == self.cluster_id
        }
        return dict(by_key.values())

    def leader(self) -> tuple[Endpoint, log_pb2.DescribeNodeResponse] | None:
        """The node that reports itself as leader, in the highest epoch if several do."""
        leading = [(endpoint, node) for endpoint, node in self.nodes().items() if _leads(node)]
        return max(leading, key=lambda found: found[1].current_leader.leader_epoch, default=None)

    def has_quorum(self) -> bool:
        """Whether a majority of the voters report that they follow the leader, which counts itself."""
        found = self.leader()
        if found is None:
            return False
        leader = found[1]
        voter_ids = {voter.replica_key.node_id for voter in leader.voters}
        following = {
            node.replica_key.node_id
            for node in self.nodes().values()
            if node.is_voter and not node.recovering and _led(node) == _led(leader)
        }
        return 2 * len(following & voter_ids) > len(voter_ids)


async def ask_all(endpoints: Iterable[Endpoint]) -> Findings:
    """Ask every known node for its state, all at once, then the nodes that the answers name. A silent node is no error.
    `kraftlog.admin.client.connection` limits each call, so the whole takes at most a few times that limit.
    """
    findings = Findings()
    to_ask = list(dict.fromkeys(endpoints))
    while to_ask:
        for endpoint, answer in zip(to_ask, await asyncio.gather(*map(_ask, to_ask)), strict=True):
            findings.take(endpoint, answer)
        asked = {*findings.answers, *findings.silent}
        named = dict.fromkeys(_named(findings.nodes().values()))
        to_ask = [endpoint for endpoint in named if endpoint not in asked][: NODES_MAX - len(asked)]
    found = findings.leader()
    if found is not None:
        try:
            findings.of_leader = await quorum_as_seen_by(found[0])
        except ApiError:
            findings.of_leader = None  # it has just resigned, or stopped
    return findings


async def failed_listeners(response: quorum_pb2.DescribeQuorumResponse) -> dict[int, list[str]]:
    """The listeners that raised, by their voter, as the voters that answer report them."""
    endpoints = [_endpoint(state.endpoint) for state in response.current_voters]
    answers = await asyncio.gather(*(_ask(endpoint) for endpoint in endpoints if endpoint is not None))
    return {
        answer.replica_key.node_id: [fault.listener for fault in answer.listener_faults]
        for answer in answers
        if answer is not None
    }


async def _ask(endpoint: Endpoint) -> log_pb2.DescribeNodeResponse | None:
    try:
        return await describe_node(endpoint)
    except ApiError:
        return None


def _named(nodes: Iterable[log_pb2.DescribeNodeResponse]) -> Iterable[Endpoint]:
    for node in nodes:
        for voter in node.voters:
            endpoint = _endpoint(voter.endpoint)
            if endpoint is not None:
                yield endpoint


def _endpoint(message: common_pb2.Endpoint) -> Endpoint | None:
    """None for an address that no client can connect to."""
    try:
        return codec.endpoint_from_proto(message)
    except ApiError:
        return None


def _leads(node: log_pb2.DescribeNodeResponse) -> bool:
    return node.role == "leader"


def _led(node: log_pb2.DescribeNodeResponse) -> tuple[int, int]:
    return (node.current_leader.leader_epoch, node.current_leader.leader_id)


def rows(findings: Findings) -> list[dict[str, Any]]:
    """One row per node: voters, then observers, by id, then addresses where no known node answered."""
    nodes = findings.nodes()
    replicas = _replicas(findings.of_leader)
    answered = {node.replica_key.node_id for node in nodes.values()}
    shown = [_row_of(endpoint, node, replicas) for endpoint, node in nodes.items()]
    silent = dict(_silent_voters(nodes.values(), answered))
    shown += [_blank_row(node_id, endpoint, "voter", [NO_ANSWER]) for node_id, endpoint in silent.items()]
    shown += [
        _row_of_unasked(replica)
        for node_id, replica in replicas.items()
        if node_id not in answered and node_id not in silent
    ]
    shown.sort(key=lambda row: (row["Role"] == "observer", row["Node"]))
    known = {*nodes, *silent.values(), *_named(nodes.values())}
    foreign = [
        _blank_row(node.replica_key.node_id, endpoint, None, [f"is of another cluster, {node.cluster_id}"])
        for endpoint, node in findings.answers.items()
        if node.cluster_id != findings.cluster_id
    ]
    unknown = [_blank_row(None, endpoint, None, [NO_ANSWER]) for endpoint in findings.silent if endpoint not in known]
    return shown + foreign + unknown


def condition_lines(shown: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """What is wrong with the nodes in these rows, a line each."""
    for row in shown:
        if row["Condition"]:
            who = "the node" if row["Node"] is None else f"node {row['Node']}"
            where = "" if row["Address"] is None else f" at {row['Address']}"
            yield f"{who}{where}: {'; '.join(row['Condition'])}"


def _silent_voters(
    nodes: Iterable[log_pb2.DescribeNodeResponse], answered: set[int]
) -> Iterable[tuple[int, Endpoint | None]]:
    for node in nodes:
        for voter in node.voters:
            if voter.replica_key.node_id not in answered:
                yield voter.replica_key.node_id, _endpoint(voter.endpoint)


def _replicas(of_leader: quorum_pb2.DescribeQuorumResponse | None) -> dict[int, quorum_pb2.ReplicaState]:
    if of_leader is None:
        return {}
    return {state.replica_key.node_id: state for state in (*of_leader.observers, *of_leader.current_voters)}


def _row_of(
    endpoint: Endpoint, node: log_pb2.DescribeNodeResponse, replicas: Mapping[int, quorum_pb2.ReplicaState]
) -> dict[str, Any]:
    node_id = node.replica_key.node_id
    found = ["recovering"] if node.recovering else []
    if node_id in replicas:
        found += [name for name in _conditions(replicas[node_id]) if name not in found]
    faults = {fault.listener: fault.error for fault in node.listener_faults}
    values = (
        node_id,
        str(endpoint),
        node.role if node.is_voter else "observer",
        None if node.current_leader.leader_id < 0 else node.current_leader.leader_id,
        node.current_leader.leader_epoch,
        node.high_watermark,
        node.log_end_offset,
        node.applied_end_offset,
    )
    shown = dict(zip(COLUMNS, values, strict=True))
    return {**shown, "Condition": [*found, *map(failed_listener, faults)], "Answers": True, "ListenerFaults": faults}


def _conditions(replica: quorum_pb2.ReplicaState) -> list[str]:
    """What is wrong with it, as the leader reports it."""
    return list(filter(None, [condition(replica)]))


def _blank_row(
    node_id: int | None, endpoint: Endpoint | None, role: str | None, condition: Sequence[str]
) -> dict[str, Any]:
    address = None if endpoint is None else str(endpoint)
    values = (node_id, address, role, *(None,) * (len(COLUMNS) - 3))
    shown = dict(zip(COLUMNS, values, strict=True))
    return {**shown, "Condition": list(condition), "Answers": False, "ListenerFaults": {}}


def _row_of_unasked(replica: quorum_pb2.ReplicaState) -> dict[str, Any]:
    row = _blank_row(replica.replica_key.node_id, None, "observer", [NOT_ASKED, *_conditions(replica)])
    return {**row, "LogEndOffset": replica.log_end_offset}
