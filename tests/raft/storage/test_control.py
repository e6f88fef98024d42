"""Control records as bytes."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Epoch, NodeId, Offset
from kraftpb.v1 import batch_pb2, common_pb2
from raft.core.messages import LeaderChange
from raft.core.types import Batch, ReplicaKey
from raft.storage.batch import decode_batches, encode_batch
from raft.storage.control import decode_control_records, encode_leader_change

node_ids = st.integers(0, 2**31 - 1).map(NodeId)
directory_ids = st.none() | st.integers(1, 2**128 - 1).map(lambda value: UUID(int=value))
keys = st.lists(st.builds(ReplicaKey, node_ids, directory_ids), max_size=4).map(tuple)


def control_batch(body: bytes, record_count: int = 1) -> Batch:
    return encode_batch(Offset(4), Epoch(2), body, record_count, 0, is_control=True)


def leader_change_body(**fields: object) -> bytes:
    message = batch_pb2.LeaderChange(**fields)  # type: ignore[arg-type]
    return batch_pb2.ControlBody(records=[batch_pb2.ControlRecord(leader_change=message)]).SerializeToString()


@given(node_ids, keys, keys)
def test_rf40_a_leader_change_is_decoded_as_it_was_encoded(
    leader_id: NodeId, voters: tuple[ReplicaKey, ...], granting: tuple[ReplicaKey, ...]
) -> None:
    record = LeaderChange(leader_id=leader_id, voters=voters, granting_voters=granting)
    (batch,) = decode_batches(control_batch(encode_leader_change(record)).data)
    assert decode_control_records(batch) == (record,)


def test_control_records_of_an_unknown_kind_are_skipped() -> None:
    """FM-12."""
    unknown = bytes.fromhex("0a03" + "9a0600")  # a ControlRecord that holds only field 99
    known = encode_leader_change(LeaderChange(leader_id=NodeId(1), voters=(), granting_voters=()))
    assert [record.leader_id for record in decode_control_records(control_batch(unknown + known, 2))] == [1]


@pytest.mark.parametrize(
    "body",
    [
        b"\xff",
        b"",
        leader_change_body(leader_id=-1),
        leader_change_body(voters=[common_pb2.ReplicaKey(node_id=-1)]),
        leader_change_body(voters=[common_pb2.ReplicaKey(node_id=1, directory_id=b"short")]),
        leader_change_body(granting_voters=[common_pb2.ReplicaKey(node_id=1, directory_id=bytes(16))]),
    ],
)
def test_a_control_body_that_makes_no_sense_is_refused(body: bytes) -> None:
    with pytest.raises(ApiError, match="control batch at offset 4") as caught:
        decode_control_records(control_batch(body))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
