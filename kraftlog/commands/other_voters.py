"""What the other voters of a configuration report, before a voter's directory is formatted.

A voter whose directory is lost may have acknowledged records that other voters count on. If one of them reports a
cluster with records, the new directory is not formatted as that of a new cluster.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, DirectoryError
from kraftbase.types import DirectoryId, NodeId, Offset
from kraftlog.admin.client.connection import describe_node
from kraftlog.config.config import NodeConfig
from raft.rpc import codec

ANSWER_SECONDS: Final = 3.0


class Member(NamedTuple):
    """A voter of the cluster that answered."""

    node_id: NodeId
    endpoint: Endpoint
    log_end_offset: Offset
    known_directory_id: DirectoryId | None
    """The directory id by which the voter knows the node to be formatted; None if it knows none."""


async def refuse_to_begin_anew(config: NodeConfig, cluster_id: str) -> None:
    """Raise DirectoryError if the cluster has records: a voter in a new directory may have lost an earlier one."""
    for member in await answering_members(config, cluster_id):
        if member.log_end_offset > 0:
            raise DirectoryError(
                f"voter {member.node_id} at {member.endpoint} answers as a member of cluster {cluster_id} with"
                f" {member.log_end_offset} records, so voter {config.node_id} may have voted before. If its directory"
                " is lost, or it has never run, format it with --replace: docs/operations/replacing-a-disk.md"
            )


async def refuse_lost_directory_id(config: NodeConfig, cluster_id: str, directory_id: DirectoryId | None) -> None:
    """Raise DirectoryError if a replacement would get the id of the lost directory."""
    for member in await answering_members(config, cluster_id):
        if directory_id is not None and member.known_directory_id == directory_id:
            raise DirectoryError(
                f"voter {member.node_id} already knows this directory id as that of voter {config.node_id}'s lost"
                " directory; use a new id, which `kraftlog random-uuid` prints"
            )


async def answering_members(config: NodeConfig, cluster_id: str) -> list[Member]:
    """The other voters of that cluster that answer within 3 s; none if the node is not a voter."""
    if not config.is_voter:
        return []
    others = [(node_id, endpoint) for node_id, endpoint in config.voters if node_id != config.node_id]
    answers = await asyncio.gather(*(_ask(config.node_id, *other, cluster_id) for other in others))
    return [answer for answer in answers if answer is not None]


async def _ask(own_id: NodeId, node_id: NodeId, endpoint: Endpoint, cluster_id: str) -> Member | None:
    try:
        node = await describe_node(endpoint, timeout_seconds=ANSWER_SECONDS)
        keys = [codec.replica_key_from_proto(voter.replica_key) for voter in node.voters]
    except ApiError:
        return None
    if (node.cluster_id, node.replica_key.node_id) != (cluster_id, node_id):
        return None
    known = next((key.directory_id for key in keys if key.node_id == own_id), None)
    return Member(node_id, endpoint, Offset(node.log_end_offset), known)
