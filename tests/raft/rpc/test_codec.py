"""Messages survive the wire, and invalid ones are refused with an error that names the problem."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.sentinels import HIGH_WATERMARK_NOT_SENT, UNKNOWN_OFFSET
from kraftbase.types import Epoch, NodeId, Offset
from kraftpb.v1 import common_pb2, quorum_pb2
from raft.core.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    DescribeQuorumResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LogStartHolder,
    ReplicaDescription,
    VoteRequest,
    VoteResponse,
)
from raft.core.types import CommittedGap, LeaderAndEpoch, OffsetAndEpoch, ReplicaKey, StateDigest
from raft.rpc import codec
from raft.storage.batch import encode_batch, encode_body

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
epochs = int32.map(Epoch)
offsets = st.integers(-(2**63), 2**63 - 1).map(Offset)
node_ids = st.integers(0, 2**31 - 1).map(NodeId)
directory_ids = st.none() | st.integers(1, 2**128 - 1).map(lambda number: UUID(int=number))
replica_keys = st.builds(ReplicaKey, node_ids, directory_ids)
cluster_ids = st.none() | st.text(max_size=30)
endpoints = st.builds(Endpoint, st.text("abcdef.:0123456789", min_size=1, max_size=30), st.integers(1, 65535))
leaders = st.builds(LeaderAndEpoch, st.none() | node_ids, epochs)
errors = st.sampled_from(ErrorCode)
state_digests = st.none() | st.builds(
    StateDigest, st.integers(0, 2**63 - 1).map(Offset), st.binary(min_size=16, max_size=16)
)
snapshot_ids = st.builds(OffsetAndEpoch, epoch=epochs, offset=offsets)
points = st.none() | st.builds(OffsetAndEpoch, epoch=epochs, offset=offsets)

REQUESTS = [
    (
        st.builds(
            VoteRequest,
            cluster_id=cluster_ids,
            voter_key=st.none() | replica_keys,
            replica_key=replica_keys,
            replica_epoch=epochs,
            last_epoch=epochs,
            last_offset=offsets,
            pre_vote=st.booleans(),
        ),
        codec.vote_request_to_proto,
        codec.vote_request_from_proto,
    ),
    (
        st.builds(
            BeginQuorumEpochRequest,
            cluster_id=cluster_ids,
            voter_key=st.none() | replica_keys,
            leader_id=int32.map(NodeId),
            leader_epoch=epochs,
            leader_endpoint=st.none() | endpoints,
            leader_directory_id=directory_ids,
        ),
        codec.begin_quorum_epoch_request_to_proto,
        codec.begin_quorum_epoch_request_from_proto,
    ),
    (
        st.builds(
            EndQuorumEpochRequest,
            cluster_id=cluster_ids,
            leader_id=int32.map(NodeId),
            leader_epoch=epochs,
            preferred_candidates=st.lists(replica_keys, max_size=5).map(tuple),
            leader_endpoint=st.none() | endpoints,
            leader_directory_id=directory_ids,
        ),
        codec.end_quorum_epoch_request_to_proto,
        codec.end_quorum_epoch_request_from_proto,
    ),
    (
        st.builds(
            FetchRequest,
            cluster_id=cluster_ids,
            replica_key=st.none() | replica_keys,
            current_leader_epoch=epochs,
            fetch_offset=offsets,
            last_fetched_epoch=epochs,
            max_wait_ms=int32,
            max_bytes=int32,
            high_watermark=offsets,
            state_digest=state_digests,
            leader_lacks=st.none() | st.builds(CommittedGap, offsets, offsets),
            log_start_offset=offsets,
        ),
        lambda request: codec.fetch_request_to_proto(7, request),
        codec.fetch_request_from_proto,
    ),
    (
        st.builds(
            FetchSnapshotRequest,
            cluster_id=cluster_ids,
            replica_key=st.none() | replica_keys,
            current_leader_epoch=epochs,
            snapshot_id=snapshot_ids,
            position=int64,
            max_bytes=int32,
        ),
        codec.fetch_snapshot_request_to_proto,
        codec.fetch_snapshot_request_from_proto,
    ),
]
RESPONSES = [
    (
        st.builds(
            VoteResponse,
            error=errors,
            leader=leaders,
            leader_endpoint=st.none() | endpoints,
            vote_granted=st.booleans(),
            pre_vote=st.booleans(),
        ),
        codec.vote_response_to_proto,
        codec.vote_response_from_proto,
    ),
    (
        st.builds(BeginQuorumEpochResponse, error=errors, leader=leaders, leader_endpoint=st.none() | endpoints),
        codec.begin_quorum_epoch_response_to_proto,
        codec.begin_quorum_epoch_response_from_proto,
    ),
    (
        st.builds(EndQuorumEpochResponse, error=errors, leader=leaders, leader_endpoint=st.none() | endpoints),
        codec.end_quorum_epoch_response_to_proto,
        codec.end_quorum_epoch_response_from_proto,
    ),
    (
        st.builds(
            FetchResponse,
            error=errors,
            leader=leaders,
            leader_endpoint=st.none() | endpoints,
            high_watermark=offsets,
            log_start_offset=offsets,
            diverging_epoch=points,
            snapshot_id=points,
            expected_state_digest=state_digests,
        ),
        lambda response: codec.fetch_response_to_proto(7, response, b""),
        codec.fetch_response_from_proto,
    ),
    (
        st.builds(
            FetchSnapshotResponse,
            error=errors,
            leader=leaders,
            leader_endpoint=st.none() | endpoints,
            snapshot_id=snapshot_ids,
            size=int64,
            position=int64,
            data=st.binary(max_size=100),
        ),
        lambda response: codec.fetch_snapshot_response_to_proto(response, response.data),
        codec.fetch_snapshot_response_from_proto,
    ),
]


@pytest.mark.parametrize(("values", "encode", "decode"), REQUESTS + RESPONSES)
def test_a_message_arrives_as_it_was_sent(
    values: st.SearchStrategy[object], encode: Callable[[object], Message], decode: Callable[[Message], object]
) -> None:
    @given(values)
    def round_trip(value: object) -> None:
        encoded = encode(value)
        assert decode(type(encoded).FromString(encoded.SerializeToString())) == value

    round_trip()


def test_pk03_a_fetch_without_high_watermark_counts_as_the_largest_offset() -> None:
    assert codec.fetch_request_from_proto(quorum_pb2.FetchRequest()).high_watermark == HIGH_WATERMARK_NOT_SENT


def test_pk05_version_17_leaves_the_high_watermark_out() -> None:
    request = FetchRequest(
        cluster_id=None,
        replica_key=None,
        current_leader_epoch=Epoch(1),
        fetch_offset=Offset(0),
        last_fetched_epoch=Epoch(0),
        max_wait_ms=500,
        max_bytes=1,
        high_watermark=HIGH_WATERMARK_NOT_SENT,
    )
    assert not codec.fetch_request_to_proto(1, request).HasField("high_watermark")


def test_batches_in_a_fetch_response_are_decoded_and_checked() -> None:
    batch = encode_batch(Offset(5), Epoch(2), encode_body([b"one", b"two"]), 2, 1000)
    response = quorum_pb2.FetchResponse(records=batch.data)
    assert codec.fetch_response_from_proto(response).records == (batch,)
    damaged = quorum_pb2.FetchResponse(records=batch.data[:-1] + bytes([batch.data[-1] ^ 1]))
    with pytest.raises(ApiError) as refusal:
        codec.fetch_response_from_proto(damaged)
    assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [1, 15, 17, 1000])
def test_a_directory_id_of_another_length_is_an_invalid_request(length: int) -> None:
    with pytest.raises(ApiError) as refusal:
        codec.replica_key_from_proto(common_pb2.ReplicaKey(node_id=1, directory_id=b"x" * length))
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("end_offset", "length"), [(0, 0), (0, 15), (0, 17), (0, 1000), (-1, 16)])
def test_a_state_digest_of_another_length_or_below_offset_0_is_an_invalid_request(end_offset: int, length: int) -> None:
    digest = quorum_pb2.StateDigest(end_offset=end_offset, digest=b"x" * length)
    with pytest.raises(ApiError) as of_request:
        codec.fetch_request_from_proto(quorum_pb2.FetchRequest(state_digest=digest))
    with pytest.raises(ApiError) as of_response:
        codec.fetch_response_from_proto(quorum_pb2.FetchResponse(expected_state_digest=digest))
    assert of_request.value.code is of_response.value.code is ErrorCode.INVALID_REQUEST


def test_the_zero_directory_id_stands_for_none() -> None:
    assert codec.replica_key_from_proto(common_pb2.ReplicaKey(node_id=1, directory_id=bytes(16))).directory_id is None


@pytest.mark.parametrize(("host", "port"), [("", 1), ("h", 0), ("h", 65536), ("h" * 256, 1)])
def test_an_endpoint_that_nobody_can_connect_to_is_an_invalid_request(host: str, port: int) -> None:
    with pytest.raises(ApiError) as refusal:
        codec.endpoint_from_proto(common_pb2.Endpoint(host=host, port=port))
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


def test_too_many_preferred_candidates_are_an_invalid_request() -> None:
    message = quorum_pb2.EndQuorumEpochRequest(
        preferred_candidates=[common_pb2.ReplicaKey(node_id=1)] * (codec.PREFERRED_CANDIDATES_MAX + 1)
    )
    with pytest.raises(ApiError) as refusal:
        codec.end_quorum_epoch_request_from_proto(message)
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("length", [1, 15, 17])
def test_a_leaders_directory_id_of_another_length_is_an_invalid_request(length: int) -> None:
    for message, decode in (
        (quorum_pb2.BeginQuorumEpochRequest, codec.begin_quorum_epoch_request_from_proto),
        (quorum_pb2.EndQuorumEpochRequest, codec.end_quorum_epoch_request_from_proto),
    ):
        with pytest.raises(ApiError) as refusal:
            decode(message(leader_directory_id=b"x" * length))  # type: ignore[operator]
        assert refusal.value.code is ErrorCode.INVALID_REQUEST


def test_an_error_number_that_is_not_known_is_an_unknown_server_error() -> None:
    assert codec.error_from_proto(32_000) is ErrorCode.UNKNOWN_SERVER_ERROR


# --- snapshots and the log's start ------------------------------------------------------------------------------------


def test_a_fetch_without_a_log_start_does_not_say_where_the_log_starts() -> None:
    assert codec.fetch_request_from_proto(quorum_pb2.FetchRequest()).log_start_offset == UNKNOWN_OFFSET
    said = quorum_pb2.FetchRequest(log_start_offset=0)
    assert codec.fetch_request_from_proto(said).log_start_offset == 0


def test_sn10_the_bytes_are_those_that_were_read() -> None:
    response = FetchSnapshotResponse(
        leader=LeaderAndEpoch(NodeId(1), Epoch(2)),
        snapshot_id=OffsetAndEpoch(epoch=Epoch(2), offset=Offset(9)),
        size=100,
        position=20,
    )
    message = codec.fetch_snapshot_response_to_proto(response, b"abc")
    assert (message.size, message.position, message.unaligned_records) == (100, 20, b"abc")
    assert codec.fetch_snapshot_response_from_proto(message).data == b"abc"


@given(
    snapshot_ids,
    int64,
    st.integers(-(2**31), 2**31 - 1),
    st.sampled_from([b"", b"x" * 15, b"x" * 17]) | st.binary(max_size=20),
)
def test_sn13_a_hostile_snapshot_request_is_decoded_as_it_is_or_refused_by_name(
    snapshot_id: OffsetAndEpoch, position: int, max_bytes: int, directory_id: bytes
) -> None:
    message = quorum_pb2.FetchSnapshotRequest(
        replica_key=common_pb2.ReplicaKey(node_id=1, directory_id=directory_id),
        snapshot_id=common_pb2.EpochEndOffset(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch),
        position=position,
        max_bytes=max_bytes,
    )
    try:
        request = codec.fetch_snapshot_request_from_proto(message)
    except ApiError as refusal:
        assert refusal.code is ErrorCode.INVALID_REQUEST
        assert len(directory_id) not in (0, 16)
    else:
        assert (request.snapshot_id, request.position, request.max_bytes) == (snapshot_id, position, max_bytes)


@pytest.mark.parametrize("size", [-1, -(2**63), 2**63 - 1])
@pytest.mark.parametrize("position", [-1, -(2**63), 2**63 - 1])
def test_sn13_a_hostile_snapshot_answer_is_decoded_as_it_is(size: int, position: int) -> None:
    """The replica itself must detect the error."""
    message = quorum_pb2.FetchSnapshotResponse(size=size, position=position, unaligned_records=b"x")
    response = codec.fetch_snapshot_response_from_proto(message)
    assert (response.size, response.position, response.data) == (size, position, b"x")
    assert response.snapshot_id == OffsetAndEpoch(epoch=Epoch(0), offset=Offset(0))


def test_sn51_describe_says_where_logs_start_and_who_holds_the_leaders_back() -> None:
    key = ReplicaKey(NodeId(1), UUID(int=7))
    response = DescribeQuorumResponse(
        leader=LeaderAndEpoch(NodeId(1), Epoch(2)),
        high_watermark=Offset(90),
        voters=(
            ReplicaDescription(
                key=key,
                endpoint=None,
                log_end_offset=Offset(90),
                log_start_offset=Offset(40),
                last_fetch_ms=None,
                last_caught_up_ms=None,
            ),
        ),
        observers=(
            ReplicaDescription(
                key=ReplicaKey(NodeId(9)),
                endpoint=None,
                log_end_offset=Offset(5),
                log_start_offset=UNKNOWN_OFFSET,
                last_fetch_ms=None,
                last_caught_up_ms=None,
            ),
        ),
        log_start_holders=(
            LogStartHolder(replica_id=NodeId(0), listener="", next_offset=Offset(41), held_ms=5),
            LogStartHolder(replica_id=None, listener="tables", next_offset=UNKNOWN_OFFSET, held_ms=7),
        ),
    )
    message = codec.describe_quorum_response_to_proto(response, cluster_id="c", epoch_of_clock_ms=0)
    assert [voter.log_start_offset for voter in message.current_voters] == [40]
    assert [observer.log_start_offset for observer in message.observers] == [-1]
    replica, listener = message.log_start_holders
    assert (replica.WhichOneof("reader"), replica.replica_id) == ("replica_id", 0)
    assert (replica.next_offset, replica.held_ms) == (41, 5)
    assert (listener.WhichOneof("reader"), listener.listener) == ("listener", "tables")
    assert (listener.next_offset, listener.held_ms) == (-1, 7)
