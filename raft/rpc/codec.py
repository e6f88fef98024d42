"""The conversion between kraftpb messages and the core's values. The core does not use protobuf.

Types, lengths of ids and checksums of every message are checked here; the core checks the ranges of epochs and offsets,
because it knows how to answer. Raises ApiError(INVALID_REQUEST) for a message that cannot be a value, and
ApiError(CORRUPT_MESSAGE) for damaged batches.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.sentinels import HIGH_WATERMARK_NOT_SENT, NO_LEADER, UNKNOWN_OFFSET, ZERO_DIRECTORY_ID
from kraftbase.types import DirectoryId, Epoch, NodeId, Offset
from kraftpb.v1 import common_pb2, quorum_pb2
from raft.core.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    DescribeQuorumRequest,
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
from raft.storage.batch import decode_batches

PREFERRED_CANDIDATES_MAX: Final = 1000
"""More voters than any quorum has: a longer list of candidates is refused."""

HOST_LENGTH_MAX: Final = 255

STATE_DIGEST_BYTES: Final = 16


def endpoint_to_proto(endpoint: Endpoint | None) -> common_pb2.Endpoint | None:
    """Encode an endpoint; None if it is not known."""
    return None if endpoint is None else common_pb2.Endpoint(host=endpoint.host, port=endpoint.port)


def endpoint_from_proto(endpoint: common_pb2.Endpoint) -> Endpoint:
    """Decode a peer's endpoint; raises ApiError(INVALID_REQUEST) if no connection to it is possible."""
    if not 0 < len(endpoint.host) <= HOST_LENGTH_MAX or not 0 < endpoint.port < 65536:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{endpoint.host[:HOST_LENGTH_MAX]!r} port {endpoint.port} is no endpoint; give a host and a port to 65535",
        )
    return Endpoint(endpoint.host, endpoint.port)


def _directory_id_to_proto(directory_id: DirectoryId | None) -> bytes:
    return b"" if directory_id is None else directory_id.bytes


def _directory_id_from_proto(directory_id: bytes) -> DirectoryId | None:
    if len(directory_id) not in (0, 16):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"a directory id has 16 bytes, not {len(directory_id)}")
    known = UUID(bytes=directory_id) if directory_id else ZERO_DIRECTORY_ID
    return None if known == ZERO_DIRECTORY_ID else known


def replica_key_to_proto(key: ReplicaKey) -> common_pb2.ReplicaKey:
    """Encode a replica key; an unknown directory id is left empty."""
    return common_pb2.ReplicaKey(node_id=key.node_id, directory_id=_directory_id_to_proto(key.directory_id))


def replica_key_from_proto(key: common_pb2.ReplicaKey) -> ReplicaKey:
    """Decode a peer's replica key; raises ApiError(INVALID_REQUEST) for a directory id that is not 16 bytes."""
    return ReplicaKey(NodeId(key.node_id), _directory_id_from_proto(key.directory_id))


def leader_to_proto(leader: LeaderAndEpoch, endpoint: Endpoint | None) -> common_pb2.CurrentLeader:
    """Encode the leader for a response."""
    return common_pb2.CurrentLeader(
        leader_id=NO_LEADER if leader.leader_id is None else leader.leader_id,
        leader_epoch=leader.epoch,
        leader_endpoint=endpoint_to_proto(endpoint),
    )


def leader_from_proto(current: common_pb2.CurrentLeader) -> tuple[LeaderAndEpoch, Endpoint | None]:
    """Decode the leader from a response."""
    leader_id = NodeId(current.leader_id) if current.leader_id >= 0 else None
    endpoint = endpoint_from_proto(current.leader_endpoint) if current.HasField("leader_endpoint") else None
    return LeaderAndEpoch(leader_id, Epoch(current.leader_epoch)), endpoint


def error_from_proto(number: int) -> ErrorCode:
    """The error with Kafka's number; UNKNOWN_SERVER_ERROR for a number that this version does not know."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _cluster_id(
    message: quorum_pb2.VoteRequest
    | quorum_pb2.BeginQuorumEpochRequest
    | quorum_pb2.EndQuorumEpochRequest
    | quorum_pb2.FetchRequest
    | quorum_pb2.FetchSnapshotRequest
    | quorum_pb2.DescribeQuorumRequest,
) -> str | None:
    return message.cluster_id if message.HasField("cluster_id") else None


def _optional_key(message: common_pb2.ReplicaKey, present: bool) -> ReplicaKey | None:
    return replica_key_from_proto(message) if present else None


def vote_request_to_proto(request: VoteRequest) -> quorum_pb2.VoteRequest:
    """Encode a VoteRequest."""
    return quorum_pb2.VoteRequest(
        cluster_id=request.cluster_id,
        voter_key=None if request.voter_key is None else replica_key_to_proto(request.voter_key),
        replica_key=replica_key_to_proto(request.replica_key),
        replica_epoch=request.replica_epoch,
        last_offset_epoch=request.last_epoch,
        last_offset=request.last_offset,
        pre_vote=request.pre_vote,
    )


def vote_request_from_proto(message: quorum_pb2.VoteRequest) -> VoteRequest:
    """Decode a VoteRequest."""
    return VoteRequest(
        cluster_id=_cluster_id(message),
        voter_key=_optional_key(message.voter_key, message.HasField("voter_key")),
        replica_key=replica_key_from_proto(message.replica_key),
        replica_epoch=Epoch(message.replica_epoch),
        last_epoch=Epoch(message.last_offset_epoch),
        last_offset=Offset(message.last_offset),
        pre_vote=message.pre_vote,
    )


def vote_response_to_proto(response: VoteResponse) -> quorum_pb2.VoteResponse:
    """Encode a VoteResponse."""
    return quorum_pb2.VoteResponse(
        error_code=response.error,
        current_leader=leader_to_proto(response.leader, response.leader_endpoint),
        vote_granted=response.vote_granted,
        pre_vote=response.pre_vote,
    )


def vote_response_from_proto(message: quorum_pb2.VoteResponse) -> VoteResponse:
    """Decode a VoteResponse."""
    leader, endpoint = leader_from_proto(message.current_leader)
    return VoteResponse(
        error=error_from_proto(message.error_code),
        leader=leader,
        leader_endpoint=endpoint,
        vote_granted=message.vote_granted,
        pre_vote=message.pre_vote,
    )


def begin_quorum_epoch_request_to_proto(request: BeginQuorumEpochRequest) -> quorum_pb2.BeginQuorumEpochRequest:
    """Encode a BeginQuorumEpochRequest."""
    return quorum_pb2.BeginQuorumEpochRequest(
        cluster_id=request.cluster_id,
        voter_key=None if request.voter_key is None else replica_key_to_proto(request.voter_key),
        leader_id=request.leader_id,
        leader_epoch=request.leader_epoch,
        leader_endpoint=endpoint_to_proto(request.leader_endpoint),
        leader_directory_id=_directory_id_to_proto(request.leader_directory_id),
    )


def begin_quorum_epoch_request_from_proto(message: quorum_pb2.BeginQuorumEpochRequest) -> BeginQuorumEpochRequest:
    """Decode a BeginQuorumEpochRequest."""
    return BeginQuorumEpochRequest(
        cluster_id=_cluster_id(message),
        voter_key=_optional_key(message.voter_key, message.HasField("voter_key")),
        leader_id=NodeId(message.leader_id),
        leader_epoch=Epoch(message.leader_epoch),
        leader_endpoint=endpoint_from_proto(message.leader_endpoint) if message.HasField("leader_endpoint") else None,
        leader_directory_id=_directory_id_from_proto(message.leader_directory_id),
    )


def begin_quorum_epoch_response_to_proto(response: BeginQuorumEpochResponse) -> quorum_pb2.BeginQuorumEpochResponse:
    """Encode a BeginQuorumEpochResponse."""
    return quorum_pb2.BeginQuorumEpochResponse(
        error_code=response.error, current_leader=leader_to_proto(response.leader, response.leader_endpoint)
    )


def begin_quorum_epoch_response_from_proto(message: quorum_pb2.BeginQuorumEpochResponse) -> BeginQuorumEpochResponse:
    """Decode a BeginQuorumEpochResponse."""
    leader, endpoint = leader_from_proto(message.current_leader)
    return BeginQuorumEpochResponse(error=error_from_proto(message.error_code), leader=leader, leader_endpoint=endpoint)


def end_quorum_epoch_request_to_proto(request: EndQuorumEpochRequest) -> quorum_pb2.EndQuorumEpochRequest:
    """Encode an EndQuorumEpochRequest."""
    return quorum_pb2.EndQuorumEpochRequest(
        cluster_id=request.cluster_id,
        leader_id=request.leader_id,
        leader_epoch=request.leader_epoch,
        preferred_candidates=[replica_key_to_proto(key) for key in request.preferred_candidates],
        leader_endpoint=endpoint_to_proto(request.leader_endpoint),
        leader_directory_id=_directory_id_to_proto(request.leader_directory_id),
    )


def end_quorum_epoch_request_from_proto(message: quorum_pb2.EndQuorumEpochRequest) -> EndQuorumEpochRequest:
    """Decode an EndQuorumEpochRequest."""
    if len(message.preferred_candidates) > PREFERRED_CANDIDATES_MAX:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{len(message.preferred_candidates)} preferred candidates; at most {PREFERRED_CANDIDATES_MAX} are valid",
        )
    return EndQuorumEpochRequest(
        cluster_id=_cluster_id(message),
        leader_id=NodeId(message.leader_id),
        leader_epoch=Epoch(message.leader_epoch),
        preferred_candidates=tuple(replica_key_from_proto(key) for key in message.preferred_candidates),
        leader_endpoint=endpoint_from_proto(message.leader_endpoint) if message.HasField("leader_endpoint") else None,
        leader_directory_id=_directory_id_from_proto(message.leader_directory_id),
    )


def end_quorum_epoch_response_to_proto(response: EndQuorumEpochResponse) -> quorum_pb2.EndQuorumEpochResponse:
    """Encode an EndQuorumEpochResponse."""
    return quorum_pb2.EndQuorumEpochResponse(
        error_code=response.error, current_leader=leader_to_proto(response.leader, response.leader_endpoint)
    )


def end_quorum_epoch_response_from_proto(message: quorum_pb2.EndQuorumEpochResponse) -> EndQuorumEpochResponse:
    """Decode an EndQuorumEpochResponse."""
    leader, endpoint = leader_from_proto(message.current_leader)
    return EndQuorumEpochResponse(error=error_from_proto(message.error_code), leader=leader, leader_endpoint=endpoint)


def fetch_request_to_proto(correlation_id: int, request: FetchRequest) -> quorum_pb2.FetchRequest:
    """Encode a FetchRequest. A high watermark that must not be sent is left out, as in version 17 (PK-05)."""
    return quorum_pb2.FetchRequest(
        correlation_id=correlation_id,
        cluster_id=request.cluster_id,
        replica_key=None if request.replica_key is None else replica_key_to_proto(request.replica_key),
        current_leader_epoch=request.current_leader_epoch,
        fetch_offset=request.fetch_offset,
        last_fetched_epoch=request.last_fetched_epoch,
        max_wait_ms=request.max_wait_ms,
        max_bytes=request.max_bytes,
        high_watermark=None if request.high_watermark == HIGH_WATERMARK_NOT_SENT else request.high_watermark,
        recovering=request.recovering,
        state_digest=_digest_to_proto(request.state_digest),
        log_start_offset=request.log_start_offset,
        leader_lacks=_gap_to_proto(request.leader_lacks),
        wants_rebuild=request.wants_rebuild,
    )


def fetch_request_from_proto(message: quorum_pb2.FetchRequest) -> FetchRequest:
    """Decode a FetchRequest."""
    return FetchRequest(
        cluster_id=_cluster_id(message),
        replica_key=_optional_key(message.replica_key, message.HasField("replica_key")),
        current_leader_epoch=Epoch(message.current_leader_epoch),
        fetch_offset=Offset(message.fetch_offset),
        last_fetched_epoch=Epoch(message.last_fetched_epoch),
        max_wait_ms=message.max_wait_ms,
        max_bytes=message.max_bytes,
        high_watermark=(
            Offset(message.high_watermark) if message.HasField("high_watermark") else HIGH_WATERMARK_NOT_SENT
        ),
        recovering=message.recovering,
        state_digest=_digest_from_proto(message.state_digest) if message.HasField("state_digest") else None,
        log_start_offset=Offset(message.log_start_offset) if message.HasField("log_start_offset") else UNKNOWN_OFFSET,
        leader_lacks=_gap_from_proto(message.leader_lacks) if message.HasField("leader_lacks") else None,
        wants_rebuild=message.wants_rebuild,
    )


def _gap_to_proto(gap: CommittedGap | None) -> quorum_pb2.CommittedGap | None:
    if gap is None:
        return None
    return quorum_pb2.CommittedGap(agreed_offset=gap.agreed_offset, committed_offset=gap.committed_offset)


def _gap_from_proto(gap: quorum_pb2.CommittedGap) -> CommittedGap:
    return CommittedGap(Offset(gap.agreed_offset), Offset(gap.committed_offset))


def _digest_to_proto(digest: StateDigest | None) -> quorum_pb2.StateDigest | None:
    return None if digest is None else quorum_pb2.StateDigest(end_offset=digest.end_offset, digest=digest.digest)


def _digest_from_proto(digest: quorum_pb2.StateDigest) -> StateDigest:
    if len(digest.digest) != STATE_DIGEST_BYTES or digest.end_offset < 0:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"invalid state digest: it must have {STATE_DIGEST_BYTES} bytes and an offset of 0 or more,"
            f" not {len(digest.digest)} bytes at {digest.end_offset}",
        )
    return StateDigest(Offset(digest.end_offset), digest.digest)


def point_to_proto(point: OffsetAndEpoch | None) -> common_pb2.EpochEndOffset | None:
    """Encode a point of the log."""
    return None if point is None else common_pb2.EpochEndOffset(epoch=point.epoch, end_offset=point.offset)


def point_from_proto(point: common_pb2.EpochEndOffset) -> OffsetAndEpoch:
    """Decode a point of the log."""
    return OffsetAndEpoch(epoch=Epoch(point.epoch), offset=Offset(point.end_offset))


def fetch_response_to_proto(correlation_id: int, response: FetchResponse, records: bytes) -> quorum_pb2.FetchResponse:
    """Encode a FetchResponse with encoded batches, as they were read."""
    return quorum_pb2.FetchResponse(
        correlation_id=correlation_id,
        error_code=response.error,
        current_leader=leader_to_proto(response.leader, response.leader_endpoint),
        high_watermark=response.high_watermark,
        log_start_offset=response.log_start_offset,
        diverging_epoch=point_to_proto(response.diverging_epoch),
        snapshot_id=point_to_proto(response.snapshot_id),
        records=records,
        expected_state_digest=_digest_to_proto(response.expected_state_digest),
        may_rebuild=response.may_rebuild,
    )


def fetch_response_from_proto(message: quorum_pb2.FetchResponse) -> FetchResponse:
    """Decode a FetchResponse and every batch in it (RF-53)."""
    leader, endpoint = leader_from_proto(message.current_leader)
    return FetchResponse(
        error=error_from_proto(message.error_code),
        leader=leader,
        leader_endpoint=endpoint,
        high_watermark=Offset(message.high_watermark),
        log_start_offset=Offset(message.log_start_offset),
        diverging_epoch=point_from_proto(message.diverging_epoch) if message.HasField("diverging_epoch") else None,
        snapshot_id=point_from_proto(message.snapshot_id) if message.HasField("snapshot_id") else None,
        records=decode_batches(message.records) if message.records else (),
        expected_state_digest=(
            _digest_from_proto(message.expected_state_digest) if message.HasField("expected_state_digest") else None
        ),
        may_rebuild=message.may_rebuild,
    )


def fetch_snapshot_request_to_proto(request: FetchSnapshotRequest) -> quorum_pb2.FetchSnapshotRequest:
    """Encode a FetchSnapshotRequest."""
    return quorum_pb2.FetchSnapshotRequest(
        cluster_id=request.cluster_id,
        replica_key=None if request.replica_key is None else replica_key_to_proto(request.replica_key),
        current_leader_epoch=request.current_leader_epoch,
        snapshot_id=point_to_proto(request.snapshot_id),
        position=request.position,
        max_bytes=request.max_bytes,
    )


def fetch_snapshot_request_from_proto(message: quorum_pb2.FetchSnapshotRequest) -> FetchSnapshotRequest:
    """Decode a FetchSnapshotRequest."""
    return FetchSnapshotRequest(
        cluster_id=_cluster_id(message),
        replica_key=_optional_key(message.replica_key, message.HasField("replica_key")),
        current_leader_epoch=Epoch(message.current_leader_epoch),
        snapshot_id=point_from_proto(message.snapshot_id),
        position=message.position,
        max_bytes=message.max_bytes,
    )


def fetch_snapshot_response_to_proto(response: FetchSnapshotResponse, data: bytes) -> quorum_pb2.FetchSnapshotResponse:
    """Encode a FetchSnapshotResponse with bytes of the snapshot, as they were read."""
    return quorum_pb2.FetchSnapshotResponse(
        error_code=response.error,
        current_leader=leader_to_proto(response.leader, response.leader_endpoint),
        snapshot_id=point_to_proto(response.snapshot_id),
        size=response.size,
        position=response.position,
        unaligned_records=data,
    )


def fetch_snapshot_response_from_proto(message: quorum_pb2.FetchSnapshotResponse) -> FetchSnapshotResponse:
    """Decode a FetchSnapshotResponse."""
    leader, endpoint = leader_from_proto(message.current_leader)
    return FetchSnapshotResponse(
        error=error_from_proto(message.error_code),
        leader=leader,
        leader_endpoint=endpoint,
        snapshot_id=point_from_proto(message.snapshot_id),
        size=message.size,
        position=message.position,
        data=message.unaligned_records,
    )


def describe_quorum_request_from_proto(message: quorum_pb2.DescribeQuorumRequest) -> DescribeQuorumRequest:
    """Decode a DescribeQuorumRequest."""
    return DescribeQuorumRequest(cluster_id=_cluster_id(message))


def log_start_holder_to_proto(holder: LogStartHolder) -> quorum_pb2.LogStartHolder:
    """Encode a LogStartHolder."""
    message = quorum_pb2.LogStartHolder(next_offset=holder.next_offset, held_ms=holder.held_ms)
    if holder.replica_id is None:
        message.listener = holder.listener
    else:
        message.replica_id = holder.replica_id
    return message


def describe_quorum_response_to_proto(
    response: DescribeQuorumResponse, *, cluster_id: str, epoch_of_clock_ms: int
) -> quorum_pb2.DescribeQuorumResponse:
    """Encode a DescribeQuorumResponse.

    `epoch_of_clock_ms` plus the leader's monotonic time is milliseconds since 1970.
    """

    def timestamp(monotonic_ms: int | None) -> int:
        return -1 if monotonic_ms is None else monotonic_ms + epoch_of_clock_ms

    def state(replica: ReplicaDescription) -> quorum_pb2.ReplicaState:
        return quorum_pb2.ReplicaState(
            replica_key=replica_key_to_proto(replica.key),
            endpoint=endpoint_to_proto(replica.endpoint),
            log_end_offset=replica.log_end_offset,
            last_fetch_timestamp=timestamp(replica.last_fetch_ms),
            last_caught_up_timestamp=timestamp(replica.last_caught_up_ms),
            recovering=replica.is_recovering,
            state_diverged=replica.has_diverged,
            log_start_offset=replica.log_start_offset,
            leader_lacks=_gap_to_proto(replica.leader_lacks),
        )

    return quorum_pb2.DescribeQuorumResponse(
        error_code=response.error,
        current_leader=leader_to_proto(response.leader, response.leader_endpoint),
        cluster_id=cluster_id,
        high_watermark=response.high_watermark,
        state_alarm_offset=response.state_alarm_offset,
        current_voters=[state(replica) for replica in response.voters],
        observers=[state(replica) for replica in response.observers],
        log_start_holders=[log_start_holder_to_proto(reader) for reader in response.log_start_holders],
        kraft_version=response.kraft_version,
    )
