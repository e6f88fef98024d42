"""One replica of the log: events in, actions out. With `raft.core.replica_view`, the only public interface of the core.

    actions = replica.start(now_ms)
    actions = replica.step(event, now_ms)

    events: what happened      --- step -->   actions: to be carried out, in the order given
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
from kraftbase.sentinels import UNKNOWN_HIGH_WATERMARK, ZERO_DIRECTORY_ID
from kraftbase.types import Epoch, Offset
from raft.core import (
    appends,
    elections,
    fetch_answers,
    following,
    high_watermark,
    leader_discovery,
    leading,
    newcomers,
    rebuilding,
    recovering,
    refusals,
    serving,
    shutting_down,
    snapshot_fetch,
    state_mismatch,
)
from raft.core.actions import Action
from raft.core.config import FETCH_VERSION_LATEST, QuorumConfig
from raft.core.connections import Connections, Pending
from raft.core.describe_quorum import on_describe_quorum
from raft.core.election_state import ElectionState
from raft.core.environment import Environment
from raft.core.epoch_allowance import EpochAllowance
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
from raft.core.leader_discovery import ResponseHandling, on_common_response
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
from raft.core.output import Output
from raft.core.replica_state import ReplicaState
from raft.core.replica_view import ReplicaView
from raft.core.startup import elect_only_voter, initial_state
from raft.core.states import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    State,
    Unattached,
)
from raft.core.transitions import become_resigned, enter
from raft.core.types import LeaderAndEpoch, OffsetAndEpoch, RecoveringLog, ReplicaKey
from raft.core.voters import VoterSet

if TYPE_CHECKING:
    from random import Random


# What a step does, from the event on the left to the actions on the right, and which module decides it:
#
#     TimePassed and every event        timers that expired, fetches and votes that are due       elections, following,
#                                                                                                 leading
#     RequestReceived: Vote             a vote is granted or not                                  elections
#     RequestReceived: Fetch            the sender is counted, then answered or parked            serving
#     RequestReceived: Begin, End       the sender is followed, or an election is due             leader_discovery
#     ResponseReceived                  what it shows of the leader, then what was asked for      leader_discovery
#                                                                                                 and following,
#                                                                                                 snapshot_fetch
#     AppendPrepared, AppendsScheduled  appends gather                                            appends
#     LogFlushed                        the leader's own part counts                              high_watermark
#
# All of them end in `_poll`, so that everything that an event made due is ordered in the same step. Later work has its
# deadline in `next_deadline_ms`.
class Replica(ReplicaView):
    """A voter if its key is in the voter set, an observer if not (RF-01). Its owner steps it; others only read."""

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
        """`log` and `election_state` are the state on disk; the replica owns `log` from now on.

        `applied` is the end of what the state machine has applied: a log that lacks that must be `recovering`.

        Fetches have at most the version `fetch_version_allowed`, until FetchVersionAllowed changes it.

        Raises ConfigurationError for a directory id of zero or a vote without a node id (RF-02).
        """
        if key is not None and key.directory_id == ZERO_DIRECTORY_ID:
            raise ConfigurationError("a directory id of zero stands for none; format the directory with a random one")
        if key is None and election_state is not None and election_state.voted_key is not None:
            raise ConfigurationError("the quorum state holds a vote, but this replica has no node id; give it its id")
        epoch = Epoch(max(log.last_epoch, election_state.epoch if election_state is not None else 0))
        environment = Environment(
            config=config,
            cluster_id=cluster_id,
            key=key,
            endpoint=endpoint,
            voters=voters,
            bootstrap_endpoints=bootstrap_endpoints,
            random=random,
            now_ms=now_ms,
        )
        if recovering is not None and recovering.has_forgotten and not environment.is_voter:
            recovering = None  # an observer has no vote that it could have forgotten
        super().__init__(
            environment,
            ReplicaState(
                state=Unattached(epoch=epoch, leader_id=None, voted_key=None, election_deadline_ms=None),
                persisted=election_state,
                announced=LeaderAndEpoch(None, Epoch(0)),
                epoch_allowance=EpochAllowance(counted_until_ms=now_ms),
                log=log,
                # A high watermark is not stored. Consider a log from 500 to 900 whose newest snapshot ends at 800: a
                # snapshot holds only committed records, so everything below 800 is committed, and listeners may have it
                # before there is a leader.
                high_watermark=log.known_committed_offset or UNKNOWN_HIGH_WATERMARK,
                applied=applied,
                level_ms=now_ms,
                recovering=recovering,
                fetch_version_allowed=fetch_version_allowed,
            ),
            Output(
                connections=Connections(
                    request_timeout_ms=config.request_timeout_ms, retry_backoff_ms=config.retry_backoff_ms
                )
            ),
        )

    # --- events -------------------------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> list[Action]:
        """Enter the state that follows from the state on disk; call it once, before any step."""
        environment, replica, output = self._environment, self._replica_state, self._output
        environment.now_ms = now_ms
        enter(environment, replica, output, initial_state(environment, replica, output, replica.persisted))
        if environment.is_only_voter:
            elect_only_voter(environment, replica, output)
        self._poll()
        return output.take_actions()

    def step(self, event: Event, now_ms: int) -> list[Action]:
        """Process `event` at `now_ms`, and return the actions to carry out, in order.

        Raises InvariantViolation, which must end the process.
        """
        environment, replica, output = self._environment, self._replica_state, self._output
        environment.now_ms = max(now_ms, environment.now_ms)
        if output.decisions:
            output.decisions = []
        match event:
            case RequestReceived(request_id, request):
                self._on_request(request_id, request)
            case ResponseReceived():
                self._on_response(event)
            case LogFlushed(end_offset):
                self._on_log_flushed(end_offset)
            case AppendPrepared():
                appends.on_append_prepared(environment, replica, output, event)
            case AppendsScheduled():
                if isinstance(replica.state, Leader):
                    replica.state.accumulator.schedule()
            case TimePassed():
                pass
            case RequestFailed(correlation_id, connection_refused):
                refusals.on_failed(
                    environment, replica, output, output.connections.take(correlation_id), is_refused=connection_refused
                )
            case RequestCancelled(request_id):
                if isinstance(replica.state, Leader):
                    replica.state.purgatory.forget(request_id)
            case StateDigestReported(digest):
                state_mismatch.on_state_digest_reported(environment, replica, output, digest)
            case StateMachineFenced():
                rebuilding.fence(environment, replica.state_machine)
            case FetchVersionAllowed(version):
                replica.fetch_version_allowed = version
            case SnapshotAppended(fetch_id, position):
                snapshot_fetch.on_appended(replica, output, fetch_id, position)
            case SnapshotReceived(fetch_id):
                snapshot_fetch.on_received(replica, output, fetch_id)
            case SnapshotRefused(fetch_id):
                snapshot_fetch.on_refused(replica, fetch_id)
            case SnapshotsChanged(latest):
                replica.log.latest_snapshot = latest
            case LogStartAdvanced(start):
                replica.log.advance_start(start)
            case ResignRequested(epoch):
                # Consider a controller that asks to resign from epoch 5 while this replica is deposed and elected again
                # in epoch 7: a problem in epoch 5 is no reason to resign in epoch 7 (RF-102).
                if isinstance(replica.state, Leader) and epoch == replica.epoch:
                    become_resigned(environment, replica, output, replica.state)
            case ShutdownRequested():
                shutting_down.begin(replica)
            case _:
                assert_never(event)
        self._poll()
        return output.take_actions()

    def _on_request(self, request_id: int, request: Request) -> None:
        environment, replica, output = self._environment, self._replica_state, self._output
        response: Response
        match request:
            case FetchRequest():
                serving.on_fetch_request(environment, replica, output, request_id, request)
                return
            case VoteRequest():
                response = elections.on_vote_request(environment, replica, output, request)
            case BeginQuorumEpochRequest():
                response = leader_discovery.on_begin_quorum_epoch(environment, replica, output, request)
            case EndQuorumEpochRequest():
                response = leader_discovery.on_end_quorum_epoch(environment, replica, output, request)
            case FetchSnapshotRequest():
                serving.on_fetch_snapshot_request(environment, replica, output, request_id, request)
                return
            case DescribeQuorumRequest():
                response = on_describe_quorum(environment, replica, request)
            case _:
                assert_never(request)
        output.reply(request_id, response)

    def _on_response(self, event: ResponseReceived) -> None:
        pending = self._output.connections.take(event.correlation_id)
        if pending is None:
            return  # too late, or for a state that was left
        if not self._take_response(pending, event):
            refusals.on_failed(self._environment, self._replica_state, self._output, pending)

    def _take_response(self, pending: Pending, event: ResponseReceived) -> bool:
        """Process the answer. Return False to back off from that peer."""
        environment, replica, output = self._environment, self._replica_state, self._output
        response = event.response
        handling = on_common_response(environment, replica, output, response)
        newcomers.note_answer(environment, replica, pending, response)
        if handling is not ResponseHandling.PROCESS:
            return handling is ResponseHandling.DROP
        match pending.request, response:
            case FetchRequest() as request, FetchResponse():
                return following.on_fetch_response(
                    environment,
                    replica,
                    output,
                    request,
                    response,
                    pending.endpoint,
                    is_without_room=event.is_without_room,
                )
            case FetchSnapshotRequest() as request, FetchSnapshotResponse():
                return snapshot_fetch.on_fetch_snapshot_response(environment, replica, output, request, response)
            case VoteRequest() as request, VoteResponse():
                return elections.on_vote_response(environment, replica, output, request, response)
            case BeginQuorumEpochRequest(), _:
                return True  # the next one comes with the timer
            case EndQuorumEpochRequest(), _:
                if isinstance(replica.state, Resigned):
                    leading.on_resignation_acknowledged(environment, replica.state, pending)
                return True
            case _:
                return False

    def _on_log_flushed(self, end_offset: Offset) -> None:
        environment, replica, output = self._environment, self._replica_state, self._output
        replica.log.flushed(end_offset)
        if isinstance(replica.state, Leader):
            high_watermark.advance(environment, replica, output, replica.state)

    # --- what is due ------------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        """Do everything that is due, until the state no longer changes."""
        environment, replica, output = self._environment, self._replica_state, self._output
        for pending in output.connections.expire(environment.now_ms):
            refusals.on_failed(environment, replica, output, pending)
        state: State | None = None
        # A follower whose fetch timeout has expired becomes Prospective in `following.poll`. Its pre-votes leave in
        # `elections.poll`, in the next iteration of this loop and in the same step.
        while state is not replica.state:
            state = replica.state
            match state:
                case Leader():
                    leading.poll(environment, replica, output, state)
                case Resigned():
                    leading.poll_resigned(environment, replica, output, state)
                case Unattached() | Prospective() | Candidate():
                    elections.poll(environment, replica, output, state)
            if replica.recovering is not None:
                recovering.poll(environment, replica, output, replica.recovering)
            if isinstance(replica.state, Follower | Unattached):
                following.poll(environment, replica, output, replica.state)
        rebuilding.poll(environment, replica.state_machine, output)
        leader = replica.state
        if isinstance(leader, Leader) and appends.drain_appends(environment, replica.log, output, leader):
            # Consider flushes of 2 ms, and 1 ms each way to a follower. With the leader's flush first, the follower's
            # next fetch, which commits, arrives after 2 + 1 + 2 + 1 = 6 ms. With the answers first both flush at the
            # same time, and the fetch arrives after 4 ms. The shell sends answers in this order: voters get the batch
            # before the leader's own flush begins, other replicas after it, so that they do not compete with the voters
            # for the processor.
            fetch_answers.release_voters(environment, replica, output, leader)
            output.order_flush(replica.log)
            fetch_answers.release_unaware(environment, replica, output, leader)
        else:
            output.order_flush(replica.log)
        if replica.shutdown.is_requested:
            shutting_down.poll(environment, replica)
