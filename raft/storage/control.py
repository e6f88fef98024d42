"""Control records: the quorum's own records in its log, as the protobuf bodies of control batches.

A control batch holds one `ControlBody`. A reader skips unknown kinds of control records, as Kafka does (FM-12), so that
a later version may add kinds.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from google.protobuf.message import DecodeError

from kraftbase.checks import check
from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ConfigurationError, ErrorCode
from kraftbase.sentinels import ZERO_DIRECTORY_ID
from kraftbase.types import NodeId
from kraftpb.v1 import batch_pb2, common_pb2
from raft.core.messages import LeaderChange
from raft.core.types import Batch, ReplicaKey
from raft.core.voters import Voter, VoterSet
from raft.storage.batch import batch_body

UUID_BYTES = 16

KRAFT_VERSION = 1
"""Voters are known by node id and directory id (RF-80). At 0 there is no record: the configuration has their ids."""

LISTENER_NAME = "CONTROLLER"
PORT_MAX = 65535


def encode_leader_change(record: LeaderChange) -> bytes:
    """The body of the control batch that opens an epoch: this one record (RF-40)."""
    message = batch_pb2.LeaderChange(
        leader_id=record.leader_id,
        voters=_encode_keys(record.voters),
        granting_voters=_encode_keys(record.granting_voters),
    )
    return batch_pb2.ControlBody(records=[batch_pb2.ControlRecord(leader_change=message)]).SerializeToString()


def encode_voters(voters: VoterSet) -> tuple[bytes, int]:
    """The body of the control batch with the kraft.version and then the voters; and the number of its records.

    Every voter must have a directory id.
    """
    check(voters.has_directory_ids, "voters without directory ids are not written", voters=repr(voters))
    found = [
        batch_pb2.Voters.Voter(
            key=_encode_keys([voter.key])[0],
            listeners=[
                batch_pb2.Voters.Listener(
                    name=LISTENER_NAME,
                    endpoint=common_pb2.Endpoint(host=voter.endpoint.host, port=voter.endpoint.port),
                )
            ],
            max_kraft_version=KRAFT_VERSION,
        )
        for voter in voters.voters()
    ]
    records = [
        batch_pb2.ControlRecord(kraft_version=batch_pb2.KRaftVersion(kraft_version=KRAFT_VERSION)),
        batch_pb2.ControlRecord(voters=batch_pb2.Voters(voters=found)),
    ]
    return batch_pb2.ControlBody(records=records).SerializeToString(deterministic=True), len(records)


def decode_voters(batch: Batch) -> VoterSet | None:
    """The voter set in a control batch; None if it has none.

    Raises ApiError(CORRUPT_MESSAGE) for an unknown encoding, or an unknown kraft.version.
    """
    if not batch.is_control:
        return None
    try:
        records = batch_pb2.ControlBody.FromString(batch_body(batch)).records
    except DecodeError:
        return None
    if [record.WhichOneof("record") for record in records] != ["kraft_version", "voters"]:
        return None
    version, voters = records[0].kraft_version, records[1].voters
    if (version.version, version.kraft_version, voters.version) != (0, KRAFT_VERSION, 0):
        raise _corrupt(
            batch,
            f"its voters are of kraft.version {version.kraft_version}; this program knows {KRAFT_VERSION}",
        )
    try:
        return VoterSet(_decode_voter(batch, voter) for voter in voters.voters)
    except ConfigurationError as error:
        raise _corrupt(batch, str(error)) from None


def _decode_voter(batch: Batch, voter: batch_pb2.Voters.Voter) -> Voter:
    key = _decode_key(batch, voter.key)
    endpoints = [listener.endpoint for listener in voter.listeners if listener.name == LISTENER_NAME]
    if (
        key.directory_id is None
        or len(endpoints) != 1
        or not 0 < endpoints[0].port <= PORT_MAX
        or not endpoints[0].host
    ):
        raise _corrupt(batch, f"voter {key} must have a directory id and one listener {LISTENER_NAME}")
    return Voter(key, Endpoint(endpoints[0].host, endpoints[0].port))


def _encode_keys(keys: Iterable[ReplicaKey]) -> list[common_pb2.ReplicaKey]:
    return [
        common_pb2.ReplicaKey(
            node_id=key.node_id, directory_id=b"" if key.directory_id is None else key.directory_id.bytes
        )
        for key in keys
    ]


def _decode_key(batch: Batch, message: common_pb2.ReplicaKey) -> ReplicaKey:
    directory_id = None
    if message.directory_id:
        if len(message.directory_id) != UUID_BYTES or message.directory_id == ZERO_DIRECTORY_ID.bytes:
            raise _corrupt(batch, f"a directory id is {message.directory_id.hex()}; it must be a uuid other than zero")
        directory_id = UUID(bytes=message.directory_id)
    if message.node_id < 0:
        raise _corrupt(batch, f"a node id is {message.node_id}; it must be at least 0")
    return ReplicaKey(NodeId(message.node_id), directory_id)


def _corrupt(batch: Batch, reason: str) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"the control batch at offset {batch.base_offset} is refused: {reason}")
