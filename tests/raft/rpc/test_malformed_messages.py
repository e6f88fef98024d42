"""Arbitrary bytes of a peer break nothing, and a request that is refused as invalid has changed nothing.

Requests and answers go through the codec into replicas in every role, as they do behind the server.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from kraftbase.errors import ApiError, ErrorCode, InvariantViolation
from kraftbase.types import Epoch, Offset
from kraftpb.v1 import common_pb2, quorum_pb2
from raft.core.actions import (
    Action,
    AppendBatches,
    AppendLeaderChange,
    AppendSnapshot,
    PersistElectionState,
    Reply,
    ReportRejectedClaim,
    Send,
    TruncateFullyAndStartAt,
    TruncateLog,
)
from raft.core.epoch_allowance import EPOCHS_AT_ONCE_MAX
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
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from raft.core.types import OffsetAndEpoch
from raft.rpc import codec
from raft.storage.batch import encode_batch, encode_body
from tests.effort import examples
from tests.raft.core.builders import CLUSTER_ID, Harness, election_state, fetch_response, key, of_type, replica
from tests.raft.core.test_request_validation import picture
from tests.raft.rpc.arbitrary_messages import Hints, arbitrary, mangled

EPOCH = 6
LOG = [(3, 4), (5, 2)]


def _leader() -> Harness:
    return replica(log=LOG, election_state=election_state(EPOCH - 1)).make_leader()


def _follower() -> Harness:
    return replica(log=LOG, election_state=election_state(EPOCH, leader_id=3))


SNAPSHOT = OffsetAndEpoch(epoch=Epoch(5), offset=Offset(50))


def _snapshot_fetch() -> Harness:
    """A follower that was offered a snapshot and asks for its first bytes."""
    harness = _follower()
    (send,) = _pending(harness)
    harness.answer(send, fetch_response(3, EPOCH, snapshot_id=SNAPSHOT))
    assert harness.replica_state.snapshot_fetch is not None
    return harness


ROLES: dict[str, Callable[[], Harness]] = {
    "leader": _leader,
    "follower": _follower,
    "downloading": _snapshot_fetch,
    "unattached": lambda: replica(log=LOG, election_state=election_state(EPOCH)),
    "voted": lambda: replica(log=LOG, election_state=election_state(EPOCH, voted_key=key(2))),
    "prospective": lambda: replica(log=LOG, election_state=election_state(EPOCH)).make_prospective(),
    "candidate": lambda: replica(log=LOG, election_state=election_state(EPOCH - 1)).make_candidate(),
    "resigned": lambda: replica(log=LOG, election_state=election_state(EPOCH, leader_id=1)),
    "observer": lambda: replica(log=LOG, election_state=election_state(EPOCH, leader_id=3), observer=True),
    "sole voter": lambda: replica(log=LOG, election_state=election_state(EPOCH - 1), voter_count=1),
}

HINTS: Hints = {
    "cluster_id": [CLUSTER_ID],
    "node_id": [1, 2, 3, 9],
    "leader_id": [1, 2, 3, 3, 3],
    "directory_id": [b"", *(key(node_id).directory_id.bytes for node_id in (1, 2, 3))],  # type: ignore[union-attr]
    "replica_epoch": [EPOCH, EPOCH + 1, EPOCH + 1, 2**31 - 1],
    "leader_epoch": [EPOCH, EPOCH, EPOCH, EPOCH + 1, 2**31 - 1],
    "current_leader_epoch": [EPOCH],
    "last_offset_epoch": [3, 5, 6],
    "last_fetched_epoch": [0, 3, 5, 6],
    "epoch": [3, 4, 5, 6],
    "last_offset": [0, 4, 6, 7],
    "fetch_offset": [0, 4, 6, 7],
    "end_offset": [0, 3, 4, 6, 7],
    "high_watermark": [0, 4, 6, 7, 8],
    "port": [1, 9092],
    "host": ["host2"],
    "error_code": [*[0] * 80, *(int(code) for code in ErrorCode)],
    "diverging_epoch": [None],
    "snapshot_id": [None],
    "state_digest": [None],
    "expected_state_digest": [None],
    "records": [
        b"",
        *(
            encode_batch(Offset(base), Epoch(epoch), encode_body([b"r"] * count), count, 1).data
            for base in (0, 5, 6, 6, 6, 6, 2**62)
            for epoch in (3, 5, EPOCH, EPOCH, EPOCH + 1)
            for count in (1, 3)
        ),
    ],
}

DOWNLOAD_HINTS: Hints = {
    **HINTS,
    "snapshot_id": [common_pb2.EpochEndOffset(end_offset=50, epoch=5)],
    "position": [0],
    "size": [100, 5, 4, 0, -1],
    "unaligned_records": [b"", b"x", b"12345"],
}

REQUESTS: dict[type[Message], Callable[[Any], Request]] = {
    quorum_pb2.VoteRequest: codec.vote_request_from_proto,
    quorum_pb2.BeginQuorumEpochRequest: codec.begin_quorum_epoch_request_from_proto,
    quorum_pb2.EndQuorumEpochRequest: codec.end_quorum_epoch_request_from_proto,
    quorum_pb2.FetchRequest: codec.fetch_request_from_proto,
    quorum_pb2.FetchSnapshotRequest: codec.fetch_snapshot_request_from_proto,
    quorum_pb2.DescribeQuorumRequest: codec.describe_quorum_request_from_proto,
}

RESPONSES: dict[type[Message], Callable[[Any], Response]] = {
    quorum_pb2.VoteResponse: codec.vote_response_from_proto,
    quorum_pb2.BeginQuorumEpochResponse: codec.begin_quorum_epoch_response_from_proto,
    quorum_pb2.EndQuorumEpochResponse: codec.end_quorum_epoch_response_from_proto,
    quorum_pb2.FetchResponse: codec.fetch_response_from_proto,
    quorum_pb2.FetchSnapshotResponse: codec.fetch_snapshot_response_from_proto,
}

ENCODERS: dict[type, Callable[[Any], Message]] = {
    VoteRequest: codec.vote_request_to_proto,
    BeginQuorumEpochRequest: codec.begin_quorum_epoch_request_to_proto,
    EndQuorumEpochRequest: codec.end_quorum_epoch_request_to_proto,
    FetchRequest: lambda request: codec.fetch_request_to_proto(1, request),
    VoteResponse: codec.vote_response_to_proto,
    BeginQuorumEpochResponse: codec.begin_quorum_epoch_response_to_proto,
    EndQuorumEpochResponse: codec.end_quorum_epoch_response_to_proto,
    FetchResponse: lambda response: codec.fetch_response_to_proto(1, response, b""),
    FetchSnapshotRequest: codec.fetch_snapshot_request_to_proto,
    FetchSnapshotResponse: lambda response: codec.fetch_snapshot_response_to_proto(response, b""),
    DescribeQuorumResponse: lambda response: codec.describe_quorum_response_to_proto(
        response, cluster_id=CLUSTER_ID, epoch_of_clock_ms=0
    ),
}

REFUSALS = (
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_VOTER_KEY,
)


def _encoded(kind: type[Message]) -> st.SearchStrategy[bytes]:
    hints = DOWNLOAD_HINTS if kind is quorum_pb2.FetchSnapshotResponse else HINTS
    return arbitrary(kind, hints).map(lambda message: message.SerializeToString())


def _decoded(kind: type[Message], decode: Callable[[Any], Any], data: bytes) -> Any:
    """The value in the bytes, None if the codec refuses them by name."""
    try:
        message = kind.FromString(data)
    except DecodeError:
        return None
    try:
        return decode(message)
    except ApiError as error:
        assert error.code in (ErrorCode.INVALID_REQUEST, ErrorCode.CORRUPT_MESSAGE)
        return None


def _check_fits_the_wire(actions: list[Action]) -> None:
    """An answer from one peer must not break the messages for the next."""
    for action in actions:
        if isinstance(action, Send):
            host, port = action.destination
            assert 0 < len(host) <= codec.HOST_LENGTH_MAX
            assert 0 < port < 65536
            ENCODERS[type(action.request)](action.request)
        elif isinstance(action, Reply):
            ENCODERS[type(action.response)](action.response)


STOPS: Final = ("committed records would be lost",)


@contextlib.contextmanager
def _unless_quorum_is_broken() -> Iterator[None]:
    """The one claim that makes a replica not ready: a leader without committed records."""
    try:
        yield
    except InvariantViolation as violation:
        if not any(reason in str(violation) for reason in STOPS):
            raise
        reject()


def _unchanged(harness: Harness) -> Any:
    """All data of a replica that a refused message must not change. One beyond the allowance of epochs is noted there
    (RF-114)."""
    values, *others = picture(harness)
    del values["epoch_allowance"]
    return values, others


def _receive(harness: Harness, request: Request) -> None:
    """Deliver it: it is answered at most once, and changes nothing if it is refused."""
    before = _unchanged(harness)
    epoch, high_watermark = harness.epoch, harness.replica.high_watermark
    with _unless_quorum_is_broken():
        actions = harness.deliver(request)
    _check_fits_the_wire(actions)
    replies = of_type(Reply, actions)
    own = [reply for reply in replies if reply.request_id == harness._next_request_id]
    assert len(own) <= 1
    if own and own[0].response.error in REFUSALS:
        assert [action for action in actions if not isinstance(action, ReportRejectedClaim)] == own
        assert _unchanged(harness) == before
    assert epoch <= harness.epoch <= epoch + EPOCHS_AT_ONCE_MAX
    assert harness.replica.high_watermark >= high_watermark
    assert not of_type(AppendBatches, actions)
    assert not of_type(TruncateLog, actions)


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_request_with_anything_in_it_breaks_nothing(kind: type[Message]) -> None:
    @settings(max_examples=examples(50 * len(ROLES)), deadline=None)
    @given(st.sampled_from(list(ROLES)), st.lists(_encoded(kind), min_size=1, max_size=3))
    def send(role: str, messages: list[bytes]) -> None:
        harness = ROLES[role]()
        for data in messages:
            request = _decoded(kind, REQUESTS[kind], data)
            if request is not None:
                _receive(harness, request)
        _check_fits_the_wire(harness.advance(5_000))

    send()


@pytest.mark.parametrize("kind", REQUESTS)
def test_bytes_that_are_nearly_a_request_break_nothing(kind: type[Message]) -> None:
    @settings(max_examples=examples(150), deadline=None)
    @given(mangled(_encoded(kind)), st.sampled_from(list(ROLES)))
    def send(data: bytes, role: str) -> None:
        request = _decoded(kind, REQUESTS[kind], data)
        if request is not None:
            _receive(ROLES[role](), request)

    send()


@pytest.mark.parametrize("kind", RESPONSES)
def test_bytes_that_are_nearly_an_answer_are_refused_by_name(kind: type[Message]) -> None:
    @settings(max_examples=examples(150), deadline=None)
    @given(mangled(_encoded(kind)))
    def read(data: bytes) -> None:
        _decoded(kind, RESPONSES[kind], data)

    read()


# --- answers ----------------------------------------------------------------------------------------------------------


def _pending(harness: Harness) -> list[Send]:
    """The request that waits for an answer; if there is none, the next request that it sends."""
    sent = harness.sent
    for _ in range(5):
        if sent:
            break
        harness.advance(500)
        sent = harness.sent
    return sent


def _check_follows(harness: Harness, response: Response) -> None:
    """Answer its requests: its log changes only as the protocol allows."""
    for send in _pending(harness)[-1:]:
        log = harness.replica_state.log
        epoch, high_watermark = harness.epoch, harness.replica.high_watermark
        end_offset, flushed = log.end_offset, log.flushed_end_offset
        with _unless_quorum_is_broken():
            actions = harness.answer(send, response)
        _check_fits_the_wire(actions)
        assert epoch <= harness.epoch <= epoch + EPOCHS_AT_ONCE_MAX + 1  # and perhaps an election of its own
        assert harness.replica.high_watermark >= high_watermark
        for append in of_type(AppendBatches, actions):
            assert append.batches[0].base_offset == end_offset
            assert all(batch.epoch <= harness.epoch for batch in append.batches)
        assert not of_type(TruncateFullyAndStartAt, actions), "no replica has a snapshot here yet"
        for piece in of_type(AppendSnapshot, actions):
            assert isinstance(response, FetchSnapshotResponse)
            assert piece.snapshot_id == SNAPSHOT
            assert 0 < len(piece.data) <= response.size
        for cut in of_type(TruncateLog, actions):
            assert max(0, high_watermark) <= cut.end_offset <= end_offset
        if not any(isinstance(action, AppendBatches | AppendLeaderChange | TruncateLog) for action in actions):
            assert log.end_offset == end_offset
        assert log.flushed_end_offset <= max(flushed, log.end_offset)
        for persist in of_type(PersistElectionState, actions):
            assert persist.state.epoch >= epoch


@pytest.mark.parametrize("kind", RESPONSES)
def test_an_answer_with_anything_in_it_breaks_nothing(kind: type[Message]) -> None:
    roles = [role for role in ROLES if role != "sole voter"]

    @settings(max_examples=examples((150 if kind is quorum_pb2.FetchResponse else 50) * len(roles)), deadline=None)
    @given(st.sampled_from(roles), st.lists(_encoded(kind), min_size=1, max_size=3))
    def answer(role: str, messages: list[bytes]) -> None:
        harness = ROLES[role]()
        for data in messages:
            response = _decoded(kind, RESPONSES[kind], data)
            if response is not None:
                _check_follows(harness, response)
        with contextlib.suppress(IndexError):
            harness.flush()
        _check_fits_the_wire(harness.advance(5_000))

    answer()
