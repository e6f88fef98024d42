"""The control batch that opens an epoch, as bytes. Those of voters have tests of their own."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kraftbase.types import Epoch, NodeId, Offset
from kraftpb.v1 import batch_pb2, common_pb2
from raft.core.messages import LeaderChange
from raft.core.types import ReplicaKey
from raft.storage.batch import encode_batch
from raft.storage.control import decode_voters, encode_leader_change

node_ids = st.integers(0, 2**31 - 1).map(NodeId)
directory_ids = st.none() | st.integers(1, 2**128 - 1).map(lambda value: UUID(int=value))
keys = st.lists(st.builds(ReplicaKey, node_ids, directory_ids), max_size=4).map(tuple)


def as_key(message: common_pb2.ReplicaKey) -> ReplicaKey:
    directory_id = UUID(bytes=message.directory_id) if message.directory_id else None
    return ReplicaKey(NodeId(message.node_id), directory_id)


@given(node_ids, keys, keys)
def test_rf40_a_leader_change_has_the_leader_the_voters_and_who_granted(
    leader_id: NodeId, voters: tuple[ReplicaKey, ...], granting: tuple[ReplicaKey, ...]
) -> None:
    body = encode_leader_change(LeaderChange(leader_id=leader_id, voters=voters, granting_voters=granting))
    (record,) = batch_pb2.ControlBody.FromString(body).records
    assert record.WhichOneof("record") == "leader_change"
    found = record.leader_change
    assert (found.leader_id, tuple(map(as_key, found.voters))) == (leader_id, voters)
    assert tuple(map(as_key, found.granting_voters)) == granting


def test_control_records_of_an_unknown_kind_are_no_voters() -> None:
    """FM-12."""
    unknown = bytes.fromhex("0a03" + "9a0600")  # a ControlRecord that holds only field 99
    opening = encode_leader_change(LeaderChange(leader_id=NodeId(1), voters=(), granting_voters=()))
    for body, record_count in ((unknown, 1), (unknown + opening, 2), (b"\xff", 1)):
        batch = encode_batch(Offset(4), Epoch(2), body, record_count, 0, is_control=True)
        assert decode_voters(batch) is None
