"""The path of messages between two nodes: the wire format in some runs, and always the checks of received messages."""

from __future__ import annotations

from dataclasses import replace

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
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from raft.rpc import codec
from raft.storage.batch import decode_batches


def encode_request(request: Request) -> bytes:
    """Encode a request of a replica."""
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
    """Decode a request. Raises ApiError."""
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
    """Return the request as it arrives."""
    return decode_request(type(request), encode_request(request)) if through_codec else request


def carry_response(response: Response, records: bytes, *, through_codec: bool) -> Response:
    """Return the response as it arrives, with the batches that were read for it. Raises ApiError for bad batches."""
    match response:
        case FetchResponse():
            if through_codec:
                data = codec.fetch_response_to_proto(0, response, records).SerializeToString()
                return codec.fetch_response_from_proto(quorum_pb2.FetchResponse.FromString(data))
            return replace(response, records=decode_batches(records)) if records else response
        case FetchSnapshotResponse() if through_codec:
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
