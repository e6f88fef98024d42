"""Builds a replica in the state that a test needs, and the requests that its peers send.

A Harness is one replica with a clock: it carries out nothing. The replica's actions are returned to the test, and its
requests are kept in `sent` until the test reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ErrorCode
from kraftbase.sentinels import UNKNOWN_HIGH_WATERMARK
from kraftbase.types import Epoch, NodeId, Offset
from raft.core.actions import Action, FlushLog, LogRange, Reply, Send, SnapshotRange
from raft.core.config import QuorumConfig
from raft.core.election_state import ElectionState
from raft.core.environment import Environment
from raft.core.epochs import LOG_BEGINNING, EpochCache
from raft.core.events import Event, LogFlushed, RequestFailed, RequestReceived, ResponseReceived, TimePassed
from raft.core.log import LogState
from raft.core.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from raft.core.output import Output
from raft.core.replica import Replica
from raft.core.replica_state import ReplicaState
from raft.core.states import Leader, Role, State
from raft.core.types import Batch, LeaderAndEpoch, OffsetAndEpoch, RecoveringLog, ReplicaKey
from raft.core.voters import Voter, VoterSet

CLUSTER_ID = "cluster"
CONFIG = QuorumConfig()
OBSERVER_ID = 9
ActionType = TypeVar("ActionType")


def key(node_id: int) -> ReplicaKey:
    """The key of a replica; its directory id follows from its node id."""
    return ReplicaKey(NodeId(node_id), UUID(int=node_id + 1))


def endpoint(node_id: int) -> Endpoint:
    return Endpoint(f"host{node_id}", 9000 + node_id)


def voters(count: int) -> VoterSet:
    """Static voters with the node ids from 1 on."""
    return VoterSet(Voter(ReplicaKey(NodeId(node_id)), endpoint(node_id)) for node_id in range(1, count + 1))


def log_state(
    log: Sequence[tuple[int, int]] = (),
    flushed_end_offset: int | None = None,
    *,
    start: tuple[int, int] | None = None,
    latest_snapshot: OffsetAndEpoch | None = None,
) -> LogState:
    """A log of runs of records, given as (epoch, record count); all of it durable by default.

    `start` is (epoch, offset) where a snapshot ends; that snapshot is the latest unless another is named.
    """
    begin = OffsetAndEpoch(epoch=Epoch(start[0]), offset=Offset(start[1])) if start is not None else LOG_BEGINNING
    epochs, end_offset = EpochCache(start=begin), int(begin.offset)
    for epoch, record_count in log:
        epochs.assign(Epoch(epoch), Offset(end_offset))
        end_offset += record_count
    flushed = end_offset if flushed_end_offset is None else flushed_end_offset
    if latest_snapshot is None and start is not None:
        latest_snapshot = begin
    return LogState(Offset(end_offset), Offset(flushed), epochs, latest_snapshot)


def election_state(epoch: int, leader_id: int | None = None, voted_key: ReplicaKey | None = None) -> ElectionState:
    return ElectionState(
        epoch=Epoch(epoch), leader_id=None if leader_id is None else NodeId(leader_id), voted_key=voted_key
    )


def leader_and_epoch(leader_id: int | None, epoch: int) -> LeaderAndEpoch:
    return LeaderAndEpoch(None if leader_id is None else NodeId(leader_id), Epoch(epoch))


def batch(base_offset: int, record_count: int, epoch: int) -> Batch:
    """A batch of `record_count` records; no test reads the bytes."""
    return Batch(Offset(base_offset), Offset(base_offset + record_count - 1), Epoch(epoch), False, b"batch")


def of_type(kind: type[ActionType], actions: Iterable[Action]) -> list[ActionType]:
    """The actions of that kind."""
    return [action for action in actions if isinstance(action, kind)]


class Harness:
    """One started replica, its clock, and its requests."""

    def __init__(self, replica: Replica, now_ms: int) -> None:
        self.replica = replica
        self.now_ms = now_ms
        self._sent: list[Send] = []
        self._flushing: list[FlushLog] = []
        self._next_request_id = 0
        self.reads: LogRange | SnapshotRange | None = None
        """The data to read for the last answer of `ask`."""
        self.started: list[Action] = self._note(replica.start(now_ms))

    def _note(self, actions: list[Action]) -> list[Action]:
        self._sent += of_type(Send, actions)
        self._flushing += of_type(FlushLog, actions)
        return actions

    # --- its state --------------------------------------------------------------------------------------------------

    @property
    def environment(self) -> Environment:
        """The replica's environment, for tests of state that is not visible from outside."""
        return self.replica._environment

    @property
    def replica_state(self) -> ReplicaState:
        """The replica's state, for the same tests."""
        return self.replica._replica_state

    @property
    def output(self) -> Output:
        """Its connections, actions and decisions, for the same tests."""
        return self.replica._output

    @property
    def state(self) -> State:
        return self.replica_state.state

    @property
    def role(self) -> Role:
        return self.replica.role

    @property
    def epoch(self) -> int:
        return self.replica.leader_and_epoch.epoch

    @property
    def leader_id(self) -> int | None:
        return self.replica.leader_and_epoch.leader_id

    @property
    def sent(self) -> list[Send]:
        """The requests that it has sent since the last call."""
        sent, self._sent = self._sent, []
        return sent

    # --- events for the replica ---------------------------------------------------------------------------------------

    def step(self, event: Event) -> list[Action]:
        return self._note(self.replica.step(event, self.now_ms))

    def advance(self, duration_ms: int) -> list[Action]:
        """Advance the time, with TimePassed at every deadline on the way and at the end."""
        end_ms = self.now_ms + duration_ms
        actions = self.step(TimePassed())
        while (deadline_ms := self.replica.next_deadline_ms) is not None and deadline_ms < end_ms:
            assert deadline_ms > self.now_ms, "an expired deadline must not be named again"
            self.now_ms = deadline_ms
            actions += self.step(TimePassed())
        self.now_ms = end_ms
        return actions + self.step(TimePassed())

    def deliver(self, request: Request) -> list[Action]:
        """Deliver `request`; returns all actions that are ordered then."""
        self._next_request_id += 1
        return self.step(RequestReceived(self._next_request_id, request))

    def reply_to(self, request: Request) -> Reply | None:
        """Deliver `request`; return its reply, None if it is parked."""
        replies = of_type(Reply, self.deliver(request))
        own = [reply for reply in replies if reply.request_id == self._next_request_id]
        assert len(own) <= 1, "one request has one answer"
        return own[0] if own else None

    def ask(self, request: Request) -> Any:
        """Deliver `request`; return its answer, None if it is parked."""
        reply = self.reply_to(request)
        self.reads = None if reply is None else reply.reads
        return None if reply is None else reply.response

    def answer(self, send: Send, response: Response, *, is_without_room: bool = False) -> list[Action]:
        return self.step(ResponseReceived(send.correlation_id, response, is_without_room))

    def fail(self, send: Send, *, connection_refused: bool = False) -> list[Action]:
        return self.step(RequestFailed(send.correlation_id, connection_refused))

    def flush(self) -> list[Action]:
        """Finish the flush in progress, if any, and the flushes that follow from it."""
        actions: list[Action] = []
        while self._flushing:
            actions += self.step(LogFlushed(self._flushing.pop(0).end_offset))
        return actions

    # --- ways into a state --------------------------------------------------------------------------------------------

    def time_out(self) -> list[Action]:
        """Fire only the timer of the current state (not those of connections)."""
        state, actions = self.state, list[Action]()
        while self.state is state:
            deadline_ms = self.replica.next_deadline_ms
            assert deadline_ms is not None, "no timer runs"
            self.now_ms = max(deadline_ms, self.now_ms)
            actions += self.step(TimePassed())
        return actions

    def make_prospective(self) -> Harness:
        if self.role is not Role.PROSPECTIVE:
            self.time_out()
        assert self.role is Role.PROSPECTIVE
        return self

    def make_candidate(self) -> Harness:
        self.make_prospective()
        self._win(Role.PROSPECTIVE)
        assert self.role is Role.CANDIDATE
        return self

    def make_leader(self) -> Harness:
        """Win an election in the next epoch with every vote that is needed."""
        if self.role is not Role.CANDIDATE:
            self.make_candidate()
        self._win(Role.CANDIDATE)
        assert self.role is Role.LEADER
        self.flush()
        return self

    def _win(self, role: Role) -> None:
        for send in [send for send in self.sent if isinstance(send.request, VoteRequest)]:
            if self.role is role:
                self.answer(send, vote_response(self.epoch, granted=True, pre_vote=role is Role.PROSPECTIVE))

    def make_follower(self, leader_id: int, epoch: int) -> Harness:
        self.ask(begin_quorum_epoch(leader_id, epoch))
        assert (self.role, self.leader_id, self.epoch) == (Role.FOLLOWER, leader_id, epoch)
        return self

    @property
    def leading(self) -> Leader:
        assert isinstance(self.state, Leader)
        return self.state


def configured(config: QuorumConfig, settings: dict[str, int]) -> QuorumConfig:
    """`config` with single values changed; fetches are parked for less than the shorter of the timeouts."""
    timeouts = {
        "fetch_timeout_ms": config.fetch_timeout_ms,
        "request_timeout_ms": config.request_timeout_ms,
        **settings,
    }
    patience_ms = min(timeouts["fetch_timeout_ms"], timeouts["request_timeout_ms"])
    wait_ms = min(config.fetch_max_wait_ms, patience_ms - 1)
    return replace(config, **{"fetch_max_wait_ms": wait_ms, **settings})


def replica(
    own_id: int | None = 1,
    voter_count: int = 3,
    log: Sequence[tuple[int, int]] = (),
    election_state: ElectionState | None = None,
    config: QuorumConfig | None = None,
    observer: bool = False,
    *,
    voter_set: VoterSet | None = None,
    bootstrap_endpoints: Sequence[Endpoint] = (),
    flushed_end_offset: int | None = None,
    seed: int = 0,
    now_ms: int = 1_000,
    recovering: RecoveringLog | None = None,
    applied: OffsetAndEpoch = LOG_BEGINNING,
    start: tuple[int, int] | None = None,
    latest_snapshot: OffsetAndEpoch | None = None,
    **settings: int,
) -> Harness:
    """A replica that has started: by default voter 1 of three with an empty log.

    `settings` change single values of `config`. An observer is a replica with OBSERVER_ID, or a tool for `own_id` None.
    """
    node_id = OBSERVER_ID if observer and own_id is not None else own_id
    made = Replica(
        config=configured(config or CONFIG, settings),
        cluster_id=CLUSTER_ID,
        key=None if node_id is None else key(node_id),
        endpoint=None if node_id is None else endpoint(node_id),
        voters=voter_set or voters(voter_count),
        bootstrap_endpoints=tuple(bootstrap_endpoints),
        log=log_state(log, flushed_end_offset, start=start, latest_snapshot=latest_snapshot),
        election_state=election_state,
        recovering=recovering,
        applied=applied,
        random=Random(seed),
        now_ms=now_ms,
    )
    return Harness(made, now_ms)


# --- messages of peers ------------------------------------------------------------------------------------------------


def vote(
    sender_id: int,
    epoch: int,
    *,
    last_epoch: int = 0,
    last_offset: int = 0,
    pre_vote: bool = False,
    voter_key: ReplicaKey | None = None,
    cluster_id: str | None = CLUSTER_ID,
) -> VoteRequest:
    return VoteRequest(
        cluster_id=cluster_id,
        voter_key=voter_key,
        replica_key=key(sender_id),
        replica_epoch=Epoch(epoch),
        last_epoch=Epoch(last_epoch),
        last_offset=Offset(last_offset),
        pre_vote=pre_vote,
    )


def vote_response(
    epoch: int,
    *,
    granted: bool,
    pre_vote: bool = False,
    leader_id: int | None = None,
    leader_endpoint: Endpoint | None = None,
    error: ErrorCode = ErrorCode.NONE,
) -> VoteResponse:
    return VoteResponse(
        error=error,
        leader=leader_and_epoch(leader_id, epoch),
        leader_endpoint=leader_endpoint,
        vote_granted=granted,
        pre_vote=pre_vote,
    )


def begin_quorum_epoch(leader_id: int, epoch: int, **changes: Any) -> BeginQuorumEpochRequest:
    request = BeginQuorumEpochRequest(
        cluster_id=CLUSTER_ID,
        voter_key=None,
        leader_id=NodeId(leader_id),
        leader_epoch=Epoch(epoch),
        leader_endpoint=endpoint(leader_id),
    )
    return replace(request, **changes)


def end_quorum_epoch(
    leader_id: int, epoch: int, preferred: Sequence[int] = (), **changes: Any
) -> EndQuorumEpochRequest:
    request = EndQuorumEpochRequest(
        cluster_id=CLUSTER_ID,
        leader_id=NodeId(leader_id),
        leader_epoch=Epoch(epoch),
        preferred_candidates=tuple(ReplicaKey(NodeId(node_id)) for node_id in preferred),
        leader_endpoint=endpoint(leader_id),
    )
    return replace(request, **changes)


def fetch(
    sender_id: int | None,
    epoch: int,
    fetch_offset: int = 0,
    last_fetched_epoch: int = 0,
    *,
    high_watermark: int = UNKNOWN_HIGH_WATERMARK,
    max_wait_ms: int = 500,
    **changes: Any,
) -> FetchRequest:
    request = FetchRequest(
        cluster_id=CLUSTER_ID,
        replica_key=None if sender_id is None else key(sender_id),
        current_leader_epoch=Epoch(epoch),
        fetch_offset=Offset(fetch_offset),
        last_fetched_epoch=Epoch(last_fetched_epoch),
        max_wait_ms=max_wait_ms,
        max_bytes=1024 * 1024,
        high_watermark=Offset(high_watermark),
    )
    return replace(request, **changes)


def fetch_response(
    leader_id: int | None,
    epoch: int,
    *records: Batch,
    high_watermark: int = UNKNOWN_HIGH_WATERMARK,
    error: ErrorCode = ErrorCode.NONE,
    **changes: Any,
) -> FetchResponse:
    response = FetchResponse(
        error=error,
        leader=leader_and_epoch(leader_id, epoch),
        leader_endpoint=None if leader_id is None else endpoint(leader_id),
        high_watermark=Offset(high_watermark),
        log_start_offset=Offset(0),
        records=records,
    )
    return replace(response, **changes)


def fetch_snapshot(
    sender_id: int | None,
    epoch: int,
    snapshot_id: OffsetAndEpoch,
    position: int = 0,
    max_bytes: int = 1024,
    **changes: Any,
) -> FetchSnapshotRequest:
    request = FetchSnapshotRequest(
        cluster_id=CLUSTER_ID,
        replica_key=None if sender_id is None else key(sender_id),
        current_leader_epoch=Epoch(epoch),
        snapshot_id=snapshot_id,
        position=position,
        max_bytes=max_bytes,
    )
    return replace(request, **changes)


def fetch_snapshot_response(
    leader_id: int | None,
    epoch: int,
    snapshot_id: OffsetAndEpoch,
    data: bytes = b"",
    *,
    position: int = 0,
    size: int = 0,
    error: ErrorCode = ErrorCode.NONE,
    **changes: Any,
) -> FetchSnapshotResponse:
    response = FetchSnapshotResponse(
        error=error,
        leader=leader_and_epoch(leader_id, epoch),
        leader_endpoint=None if leader_id is None else endpoint(leader_id),
        snapshot_id=snapshot_id,
        size=size,
        position=position,
        data=data,
    )
    return replace(response, **changes)
