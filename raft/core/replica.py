"""One replica of the log: events in, actions out. With what may be read of it, the only public interface of the core.

    actions = replica.start(now_ms)
    actions = replica.step(event, now_ms)

    events: what happened      --- step -->   actions: what is to be done, in the order given
    --------------------------------------    -----------------------------------------------
    from the network                          to the network
      RequestReceived, RequestCancelled         Reply, Send
      ResponseReceived, RequestFailed         to the disk
    from the clock                              PersistElectionState, EndRecovering, EndFounding
      TimePassed                                AppendRecords, AppendLeaderChange, AppendBatches,
    from the disk                               FlushLog, TruncateLog, TruncateFullyAndStartAt
      LogFlushed, LogStartAdvanced              AppendSnapshot, FreezeSnapshot, DropSnapshot
      SnapshotAppended, SnapshotReceived,     to the local client
      SnapshotRefused, SnapshotsChanged         CompleteAppend, FailAppend
    from the local client                     to listeners and the state machine
      AppendPrepared, AppendsScheduled          AdvanceHighWatermark, AnnounceLeader
      ResignRequested, ShutdownRequested        FenceStateMachine, RebuildStateMachine
    from the state machine and the cluster    to people
      StateDigestReported                       ReportRejectedClaim, ReportRefusedLeader
      StateMachineFenced, FetchVersionAllowed

The same events at the same times with the same `random` give the same actions. `now_ms` is monotonic and never goes
back. `raft.core.actions` defines how actions are carried out, `raft.core.replica_view` what others may read. The
transcripts in tests/raft/core/transcripts show several replicas that step in turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ConfigurationError
from raft.core import (
    elections,
    following,
    leading,
    newcomers,
    rebuilding,
    refusals,
    serving,
    snapshot_fetch,
    state_mismatch,
)
from raft.core.actions import Action
from raft.core.config import FETCH_VERSION_LATEST, QuorumConfig
from raft.core.connections import Connections, Pending
from raft.core.context import Context
from raft.core.election_state import ElectionState
from raft.core.epochs import LOG_BEGINNING
from raft.core.events import (
    AppendPrepared,
    AppendsScheduled,
    Event,
    FetchVersionAllowed,
    LogFlushed,
    LogStartAdvanced,
    RequestCancelled,
    RequestFailed,
    RequestReceived,
    ResignRequested,
    ResponseReceived,
    ShutdownRequested,
    SnapshotAppended,
    SnapshotReceived,
    SnapshotRefused,
    SnapshotsChanged,
    StateDigestReported,
    StateMachineFenced,
    TimePassed,
)
from raft.core.log import LogState
from raft.core.messages import (
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
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
from raft.core.replica_view import ReplicaView
from raft.core.startup import initial_state
from raft.core.states import (
    Candidate,
    Leader,
    Prospective,
    Resigned,
    State,
    Unattached,
)
from raft.core.transitions import enter
from raft.core.types import (
    UNKNOWN_HIGH_WATERMARK,
    ZERO_DIRECTORY_ID,
    Epoch,
    LeaderAndEpoch,
    Offset,
    OffsetAndEpoch,
    RecoveringLog,
    ReplicaKey,
)
from raft.core.voters import VoterSet

if TYPE_CHECKING:
    from random import Random


# What a step does, from the event on the left to the actions on the right, and which module decides it:
#
#     TimePassed and every event        timers that expired, fetches and votes that are due       elections, following
#     RequestReceived: Vote             a vote is granted or not                                  elections
#     RequestReceived: Fetch            the sender is counted, then answered or parked            serving, leading
#     RequestReceived: Begin, End       the sender is followed, or an election is due             following
#     ResponseReceived                  what it shows of the leader, then what was asked for      following
#                                                                                                 snapshot_fetch
#     AppendPrepared, AppendsScheduled  appends gather                                            leading
#     LogFlushed                        the leader's own part counts                              leading
#
# All of them end in `_poll`, so that everything that an event made due is ordered in the same step. Later work has its
# deadline in `next_deadline_ms`.
class Replica(ReplicaView):
    """A voter if its key is in the voter set, an observer if not (RF-01). Its owner steps it; all others read."""

    def __init__(
        self,
        *,
        config: QuorumConfig,
        cluster_id: str,
        key: ReplicaKey | None,
        endpoint: Endpoint | None,
        voters: VoterSet,
        bootstrap_endpoints: tuple[Endpoint, ...],
        log: LogState,
        election_state: ElectionState | None,
        recovering: RecoveringLog | None = None,
        applied: OffsetAndEpoch = LOG_BEGINNING,
        fetch_version_allowed: int = FETCH_VERSION_LATEST,
        random: Random,
        now_ms: int,
    ) -> None:
        """`log` and `election_state` are what is on disk; the replica owns `log` from now on.

        `applied` is what the state machine has applied: a log that does not hold it must be `recovering`.

        Fetches have at most the version `fetch_version_allowed`, until FetchVersionAllowed changes it.

        Raises ConfigurationError for a directory id of zero or a vote without a node id (RF-02).
        """
        if key is not None and key.directory_id == ZERO_DIRECTORY_ID:
            raise ConfigurationError("a directory id of zero stands for none; format the directory with a random one")
        if key is None and election_state is not None and election_state.voted_key is not None:
            raise ConfigurationError("the quorum state holds a vote, but this replica has no node id; give it its id")
        epoch = Epoch(max(log.last_epoch, election_state.epoch if election_state is not None else 0))
        context = Context(
            config=config,
            cluster_id=cluster_id,
            key=key,
            endpoint=endpoint,
            voters=voters,
            bootstrap_endpoints=bootstrap_endpoints,
            log=log,
            random=random,
            state=Unattached(epoch=epoch, leader_id=None, voted_key=None, election_deadline_ms=None),
            connections=Connections(
                request_timeout_ms=config.request_timeout_ms, retry_backoff_ms=config.retry_backoff_ms
            ),
            # A high watermark is not stored. Consider a log from 500 to 900 whose newest snapshot ends at 800: a
            # snapshot holds only committed records, so everything below 800 is committed, and listeners may have it
            # before there is a leader.
            high_watermark=log.known_committed_offset or UNKNOWN_HIGH_WATERMARK,
            now_ms=now_ms,
            persisted=election_state,
            announced=LeaderAndEpoch(None, Epoch(0)),
            recovering=recovering,
            applied=applied,
            fetch_version_allowed=fetch_version_allowed,
        )
        if recovering is not None and recovering.has_forgotten and not context.is_voter:
            context.recovering = None  # an observer has no vote to forget
        super().__init__(context)

    # --- events -------------------------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> list[Action]:
        """Enter the state that follows from what is on disk; once, before any step."""
        context = self._context
        context.now_ms = now_ms
        enter(context, initial_state(context, context.persisted))
        if context.is_only_voter:
            elections.elect_only_voter(context)
        self._poll()
        return self._take_actions()

    def step(self, event: Event, now_ms: int) -> list[Action]:
        """Take `event` at `now_ms`, and return the actions to carry out, in order.

        Raises InvariantViolation, which must end the process.
        """
        context = self._context
        context.now_ms = max(now_ms, context.now_ms)
        if context.decisions:
            context.decisions = []
        match event:
            case RequestReceived(request_id, request):
                self._on_request(request_id, request)
            case ResponseReceived(correlation_id, response):
                self._on_response(correlation_id, response)
            case LogFlushed(end_offset):
                self._on_log_flushed(end_offset)
            case AppendPrepared():
                leading.on_append_prepared(context, event)
            case AppendsScheduled():
                leading.on_appends_scheduled(context)
            case TimePassed():
                pass
            case RequestFailed(correlation_id, connection_refused):
                refusals.on_failed(context, context.connections.take(correlation_id), is_refused=connection_refused)
            case RequestCancelled(request_id):
                if isinstance(context.state, Leader):
                    context.state.purgatory.forget(request_id)
            case StateDigestReported(digest):
                state_mismatch.on_state_digest_reported(context, digest)
            case StateMachineFenced():
                rebuilding.fence(context)
            case FetchVersionAllowed(version):
                context.fetch_version_allowed = version
            case SnapshotAppended(fetch_id, position):
                snapshot_fetch.on_appended(context, fetch_id, position)
            case SnapshotReceived(fetch_id):
                snapshot_fetch.on_received(context, fetch_id)
            case SnapshotRefused(fetch_id):
                snapshot_fetch.on_refused(context, fetch_id)
            case SnapshotsChanged(latest):
                context.log.latest_snapshot = latest
            case LogStartAdvanced(start):
                context.log.advance_start(start)
            case ResignRequested(epoch):
                # Consider a controller that asks to resign from epoch 5 while this replica is deposed, and elected
                # again in epoch 7: a problem in epoch 5 is no reason to resign in epoch 7 (RF-102).
                if epoch == context.epoch:
                    leading.resign(context)
            case ShutdownRequested():
                self._on_shutdown_requested()
            case _:
                assert_never(event)
        self._poll()
        return self._take_actions()

    def _on_request(self, request_id: int, request: Request) -> None:
        context = self._context
        response: Response
        match request:
            case FetchRequest():
                serving.on_fetch_request(context, request_id, request)
                return
            case VoteRequest():
                response = elections.on_vote_request(context, request)
            case BeginQuorumEpochRequest():
                response = following.on_begin_quorum_epoch(context, request)
            case EndQuorumEpochRequest():
                response = following.on_end_quorum_epoch(context, request)
            case FetchSnapshotRequest():
                response = serving.on_fetch_snapshot_request(context, request)
            case DescribeQuorumRequest():
                response = leading.on_describe_quorum(context, request)
            case _:
                assert_never(request)
        context.reply(request_id, response)

    def _on_response(self, correlation_id: int, response: Response) -> None:
        pending = self._context.connections.take(correlation_id)
        if pending is None:
            return  # too late, or for a state that was left
        if not self._take_response(pending, response):
            refusals.on_failed(self._context, pending)

    def _take_response(self, pending: Pending, response: Response) -> bool:
        """Take the answer. False: back off from that peer."""
        context = self._context
        handled = following.on_common_response(context, response)
        newcomers.note_answer(context, pending, response)
        if handled is not None:
            return handled
        match pending.request, response:
            case FetchRequest() as request, FetchResponse():
                return following.on_fetch_response(context, request, response, pending.endpoint)
            case FetchSnapshotRequest() as request, FetchSnapshotResponse():
                return snapshot_fetch.on_fetch_snapshot_response(context, request, response)
            case VoteRequest() as request, VoteResponse():
                return elections.on_vote_response(context, request, response)
            case BeginQuorumEpochRequest(), _:
                return True  # the next one comes with the timer
            case EndQuorumEpochRequest(), _:
                self._on_resignation_acknowledged(pending)
                return True
            case _:
                return False

    def _on_resignation_acknowledged(self, pending: Pending) -> None:
        state = self._context.state
        if isinstance(state, Resigned) and pending.epoch == state.epoch:
            for voter in self._context.voters.voters():
                if voter.endpoint == pending.endpoint:
                    state.unacknowledged.pop(voter.key.node_id, None)

    def _on_log_flushed(self, end_offset: Offset) -> None:
        context = self._context
        context.is_flushing = False
        context.log.flushed(end_offset)
        # The order of PK-08, here and in `serving.on_fetch_request`: appends are completed, parked fetches are
        # answered, listeners are notified. Consider a client that waits for record 100, a follower with a parked fetch,
        # and a listener that takes a second to apply a batch. The client and the follower, whose fetch commits the next
        # record, do not wait for the listener.
        if leading.advance_high_watermark(context):
            serving.release_behind(context)
            leading.announce_high_watermark(context)

    def _on_shutdown_requested(self) -> None:
        context = self._context
        context.is_shutting_down = True
        if isinstance(context.state, Unattached):
            context.state.election_deadline_ms = None  # it waits for the others to elect (RF-101)

    # --- what is due ------------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        """Do what is due, until the state does not change."""
        context = self._context
        for pending in context.connections.expire(context.now_ms):
            refusals.on_failed(context, pending)
        state: State | None = None
        # A follower whose fetch timeout has expired becomes Prospective in `following.poll`. Its pre-votes leave in
        # `elections.poll`, in the next iteration of this loop and in the same step.
        while state is not context.state:
            state = context.state
            elections.poll(context)
            leading.poll(context)
            leading.poll_resigned(context)
            serving.release_expired(context)
            following.poll(context)
        rebuilding.poll(context)
        has_new_data = leading.drain_appends(context)
        if has_new_data:
            # Consider flushes of 2 ms, and 1 ms each way to a follower. With the leader's flush first, the follower's
            # next fetch, which commits, is there after 2 + 1 + 2 + 1 = 6 ms. With the answers first both flush at the
            # same time, and it is there after 4 ms. The shell sends answers in this order: voters get the batch before
            # the leader's own flush begins, other replicas after it, so that they do not compete with the voters for
            # the processor.
            serving.release_voters(context)
        leading.order_flush(context)
        if has_new_data:
            serving.release_unaware(context)
        self._check_shutdown()

    def _check_shutdown(self) -> None:
        """Complete the shutdown once another voter leads or will, or none could (RF-100, RF-101)."""
        context = self._context
        if not context.is_shutting_down or context.is_shutdown_complete:
            return
        match context.state:
            case Resigned():
                context.is_handing_over = True
                context.is_shutdown_complete = not context.state.unacknowledged
            case Unattached() | Prospective() | Candidate():
                # Consider voters 1 and 2 of three, and 3 is down. 1 led, resigns to shut down, and stops. 2 has no
                # leader and must shut down, too: it waits for an election, because 1 may be back at once and would
                # need its vote. A leader that hands over does not wait for the election: the next epoch, whichever
                # candidate opens it, completes its shutdown.
                is_needed = context.is_voter and not context.is_only_voter and not context.is_handing_over
                context.is_shutdown_complete = not is_needed
            case _:
                context.is_shutdown_complete = True

    def _take_actions(self) -> list[Action]:
        actions = self._context.actions
        self._context.actions = []
        return actions
