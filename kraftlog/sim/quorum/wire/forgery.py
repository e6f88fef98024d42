"""Messages that differ from what was sent: of another cluster, with a flipped bit, or without committed records."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ErrorCode
from kraftbase.types import Epoch, NodeId, Offset
from kraftlog.sim.quorum.observation.node_view import NodeView
from raft.core.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
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
from raft.core.types import LeaderAndEpoch, OffsetAndEpoch


def foreign_answer(request: Request, random: Random) -> Response:
    """Return the answer of a node of another cluster: a refusal that names the leader there."""
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
    """Return the data with one bit flipped; empty data is returned unchanged."""
    if not data:
        return data
    changed = bytearray(data)
    changed[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(changed)


def falsified(response: FetchResponse, receiver: NodeView, chance: float) -> FetchResponse:
    """Return the answer of a leader that lacks some records below `receiver`'s high watermark."""
    replica = receiver.replica
    if replica is None:
        return response
    start, end = replica.log_start.offset, replica.high_watermark
    if end <= start:
        return response
    offset = Offset(start + int(chance * (end - start)))
    epoch = max(Epoch(1), replica.epoch_before(Offset(offset + 1)))
    point = OffsetAndEpoch(epoch=epoch, offset=offset)
    if int(chance * 1_000) % 3 == 0 and offset > 0:
        return replace(response, records=(), snapshot_id=point)
    return replace(response, records=(), diverging_epoch=point)
