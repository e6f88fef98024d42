"""Control records: what the quorum itself writes to its log, as the protobuf bodies of control batches.

A control batch holds one `ControlBody`. A reader skips kinds of control records that it does not know, as Kafka
does (FM-12), so that a later version may add some.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from google.protobuf.message import DecodeError

from kraftpb.v1 import batch_pb2, common_pb2
from raft.core.checks import check
from raft.core.errors import ErrorCode, ProtocolError
from raft.core.messages import LeaderChange
from raft.core.types import ZERO_DIRECTORY_ID, Batch, NodeId, ReplicaKey
from raft.storage.batch import batch_body

UUID_BYTES = 16


def encode_leader_change(record: LeaderChange) -> bytes:
    """The body of the control batch that opens an epoch: this one record (RF-40)."""
    message = batch_pb2.LeaderChange(
        leader_id=record.leader_id,
        voters=_encode_keys(record.voters),
        granting_voters=_encode_keys(record.granting_voters),
    )
    return batch_pb2.ControlBody(records=[batch_pb2.ControlRecord(leader_change=message)]).SerializeToString()


def decode_control_records(batch: Batch) -> tuple[LeaderChange, ...]:
    """The control records of a control batch, without those of a kind that is not known.

    Raises ProtocolError(CORRUPT_MESSAGE) when the body is no `ControlBody`, its count is not the header's, or
    a field is out of range.
    """
    check(batch.is_control, "control records are asked of a control batch", base_offset=batch.base_offset)
    try:
        found = batch_pb2.ControlBody.FromString(batch_body(batch)).records
    except DecodeError as error:
        raise _corrupt(batch, f"its body is no ControlBody: {error}") from None
    if len(found) != batch.record_count:
        raise _corrupt(batch, f"its body holds {len(found)} records, its header says {batch.record_count}")
    return tuple(
        _decode_leader_change(batch, record.leader_change)
        for record in found
        if record.WhichOneof("record") == "leader_change"
    )


def _encode_keys(keys: Iterable[ReplicaKey]) -> list[common_pb2.ReplicaKey]:
    return [
        common_pb2.ReplicaKey(
            node_id=key.node_id, directory_id=b"" if key.directory_id is None else key.directory_id.bytes
        )
        for key in keys
    ]


def _decode_leader_change(batch: Batch, message: batch_pb2.LeaderChange) -> LeaderChange:
    if message.leader_id < 0:
        raise _corrupt(batch, f"its leader id is {message.leader_id}; it must be at least 0")
    return LeaderChange(
        leader_id=NodeId(message.leader_id),
        voters=tuple(_decode_key(batch, key) for key in message.voters),
        granting_voters=tuple(_decode_key(batch, key) for key in message.granting_voters),
    )


def _decode_key(batch: Batch, message: common_pb2.ReplicaKey) -> ReplicaKey:
    directory_id = None
    if message.directory_id:
        if len(message.directory_id) != UUID_BYTES or message.directory_id == ZERO_DIRECTORY_ID.bytes:
            raise _corrupt(batch, f"a directory id is {message.directory_id.hex()}; it must be a uuid other than zero")
        directory_id = UUID(bytes=message.directory_id)
    if message.node_id < 0:
        raise _corrupt(batch, f"a node id is {message.node_id}; it must be at least 0")
    return ReplicaKey(NodeId(message.node_id), directory_id)


def _corrupt(batch: Batch, reason: str) -> ProtocolError:
    return ProtocolError(
        ErrorCode.CORRUPT_MESSAGE, f"the control batch at offset {batch.base_offset} is refused: {reason}"
    )
