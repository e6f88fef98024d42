"""Which directories the voters of a running cluster have."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ConfigurationError, ErrorCode
from kraftbase.types import DirectoryId, NodeId
from kraftbase.uuids import uuid_from_text
from kraftlog.admin.client.connection import describe_any, describe_node
from kraftlog.config.endpoints import parse_node_id
from kraftpb.v1 import common_pb2
from raft.core.types import ReplicaKey
from raft.core.voters import Voter, VoterSet
from raft.rpc import codec


def parse_directory_ids(texts: Iterable[str]) -> dict[NodeId, UUID]:
    """`node id=directory id` each. Raises ConfigurationError."""
    found: dict[NodeId, UUID] = {}
    for text in texts:
        node_id, separator, directory_id = text.partition("=")
        if not separator:
            raise ConfigurationError(f"{text!r} is not a directory id of a node; write NODE-ID=DIRECTORY-ID")
        found[parse_node_id(node_id)] = uuid_from_text(directory_id)
    return found


async def known_voters(endpoints: Sequence[Endpoint], given: Mapping[NodeId, DirectoryId]) -> VoterSet:
    """The voters, with the ids that are `given`, else with the ids of their present directories. Raises ApiError if a
    voter's directory is not known, ConfigurationError if one of `given` is not a voter.
    """
    node = await describe_any(endpoints)
    voters = [(codec.replica_key_from_proto(found.replica_key), found.endpoint) for found in node.voters]
    strangers = given.keys() - {key.node_id for key, _ in voters}
    if strangers:
        raise ConfigurationError(f"node {min(strangers)} is not a voter; leave it out")
    asked = await asyncio.gather(*(_voter(key, endpoint, node.cluster_id, given) for key, endpoint in voters))
    return VoterSet(asked)


async def _voter(
    key: ReplicaKey, endpoint: common_pb2.Endpoint, cluster_id: str, given: Mapping[NodeId, DirectoryId]
) -> Voter:
    where = Endpoint(endpoint.host, endpoint.port)
    directory_id = given.get(key.node_id)
    if directory_id is None:
        directory_id = await _directory_id(where, key.node_id, cluster_id) or key.directory_id
    if directory_id is None:
        raise ApiError(
            ErrorCode.BROKER_NOT_AVAILABLE,
            f"voter {key.node_id} does not answer at {where}, and no voter knows its directory; start it, or, if its"
            f" disk is lost, give the new directory's with --directory-id {key.node_id}=ID",
        )
    return Voter(ReplicaKey(key.node_id, directory_id), where)


async def _directory_id(endpoint: Endpoint, node_id: NodeId, cluster_id: str) -> DirectoryId | None:
    """The id of the voter's present directory; None if the voter does not answer."""
    try:
        node = await describe_node(endpoint)
    except ApiError:
        return None
    key = codec.replica_key_from_proto(node.replica_key)
    return key.directory_id if (key.node_id, node.cluster_id) == (node_id, cluster_id) else None
