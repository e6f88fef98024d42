"""What messages go through between two nodes: on some runs the wire format, always the checks of what arrives."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ErrorCode
from kraftlog.sim.observation.observed import NodeView
from kraftpb.v1 import quorum_pb2
from raft.core.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LogRange,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from raft.core.types import Epoch, LeaderAndEpoch, NodeId, Offset, OffsetAndEpoch
from raft.rpc import codec
from raft.storage.batch import decode_batches


def encode_request(request: Request) -> bytes:
    """The bytes of a request that a replica sends."""
    match request:
        case FetchRequest():
            return codec.fetch_request_to_proto(0, request).SerializeToString()
        case FetchSnapshotRequest():
            return codec.fetch_snapshot_request_to_proto(request).SerializeToString()
        case VoteRequest():
            return codec.vote_request_to_proto(request).SerializeToString()
        case BeginQuorumEpochRequest():
            return codec.begin_quorum_epoch_request_to_proto(request).SerializeToString()
        case EndQuorumEpochRequest():
            return codec.end_quorum_epoch_request_to_proto(request).SerializeToString()
        case _:
            raise TypeError(f"a replica does not send {type(request).__name__}")


def decode_request(kind: type[Request], data: bytes) -> Request:
    """The request in `data`. Raises ProtocolError."""
    if kind is FetchRequest:
        return codec.fetch_request_from_proto(quorum_pb2.FetchRequest.FromString(data))
    if kind is FetchSnapshotRequest:
        return codec.fetch_snapshot_request_from_proto(quorum_pb2.FetchSnapshotRequest.FromString(data))
    if kind is VoteRequest:
        return codec.vote_request_from_proto(quorum_pb2.VoteRequest.FromString(data))
    if kind is BeginQuorumEpochRequest:
        return codec.begin_quorum_epoch_request_from_proto(quorum_pb2.BeginQuorumEpochRequest.FromString(data))
    return codec.end_quorum_epoch_request_from_proto(quorum_pb2.EndQuorumEpochRequest.FromString(data))


def carry_request(request: Request, *, through_codec: bool) -> Request:
    """The request as it arrives."""
    return decode_request(type(request), encode_request(request)) if through_codec else request


def carry_response(response: Response, records: bytes, *, through_codec: bool) -> Response:
    """The response as it arrives, with the batches that its range stands for. Raises ProtocolError for bad batches."""
    match response:
        case FetchResponse():
            if through_codec:
                data = codec.fetch_response_to_proto(0, response, records).SerializeToString()
                return codec.fetch_response_from_proto(quorum_pb2.FetchResponse.FromString(data))
            if isinstance(response.records, LogRange):
                return replace(response, records=decode_batches(records))
            return response
        case FetchSnapshotResponse() if through_codec and isinstance(response.data, bytes):
            piece = codec.fetch_snapshot_response_to_proto(response, response.data).SerializeToString()
            return codec.fetch_snapshot_response_from_proto(quorum_pb2.FetchSnapshotResponse.FromString(piece))
        case VoteResponse() if through_codec:
            vote = codec.vote_response_to_proto(response).SerializeToString()
            return codec.vote_response_from_proto(quorum_pb2.VoteResponse.FromString(vote))
        case BeginQuorumEpochResponse() if through_codec:
            begin = codec.begin_quorum_epoch_response_to_proto(response).SerializeToString()
            return codec.begin_quorum_epoch_response_from_proto(quorum_pb2.BeginQuorumEpochResponse.FromString(begin))
        case EndQuorumEpochResponse() if through_codec:
            end = codec.end_quorum_epoch_response_to_proto(response).SerializeToString()
            return codec.end_quorum_epoch_response_from_proto(quorum_pb2.EndQuorumEpochResponse.FromString(end))
        case _:
            return response


def foreign_answer(request: Request, random: Random) -> Response:
    """What a node of another cluster answers: that the request is not of its own, and who leads there."""
    said: dict[str, Any] = {
        "error": ErrorCode.INCONSISTENT_CLUSTER_ID,
        "leader": LeaderAndEpoch(random.choice([None, NodeId(1), NodeId(2)]), Epoch(random.choice([0, 1, 9, 1_000]))),
        "leader_endpoint": Endpoint("another-cluster", 9090),
    }
    match request:
        case FetchRequest():
            return FetchResponse(high_watermark=Offset(-1), log_start_offset=Offset(-1), **said)
        case FetchSnapshotRequest():
            return FetchSnapshotResponse(snapshot_id=request.snapshot_id, **said)
        case VoteRequest():
            return VoteResponse(pre_vote=request.pre_vote, **said)
        case BeginQuorumEpochRequest():
            return BeginQuorumEpochResponse(**said)
        case _:
            return EndQuorumEpochResponse(**said)


def flip_a_bit(data: bytes, random: Random) -> bytes:
    """The same bytes but for one bit; nothing to flip in none."""
    if not data:
        return data
    changed = bytearray(data)
    changed[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(changed)


def falsified(response: FetchResponse, receiver: NodeView, chance: float) -> FetchResponse:
    """The answer of a leader that lacks something of what `receiver` knows as committed."""
    replica = receiver.replica
    if replica is None:
        return response
    log = replica._context.log
    start, end = log.start_offset, replica.high_watermark
    if end <= start:
        return response
    offset = Offset(start + int(chance * (end - start)))
    epoch = max(Epoch(1), log.epochs.epoch_before(Offset(offset + 1)))
    point = OffsetAndEpoch(epoch=epoch, offset=offset)
    if int(chance * 1_000) % 3 == 0 and offset > 0:
        return replace(response, records=(), snapshot_id=point)
    return replace(response, records=(), diverging_epoch=point)
