"""The shell around one replica: it carries out the core's actions and feeds it events. Synchronous, without a loop.

It uses the outside through ports: a `Runtime` for time, timers and the disk thread, a `ShellHost` for its outputs, a
`ShellObserver` for an observer; without one, a step costs only the test of an attribute. `raft.node` runs it on an
asyncio loop behind gRPC, the simulator on a simulated machine. The rules:

- Actions are carried out strictly in order, except that answers to fetches may leave after listeners have run
  (`raft.shell.deferred_replies`). PersistElectionState delays later actions until the state is on disk.
- Room for batches is reserved before the core gets them, so on a full disk appends are refused and nothing changes.
- A violated invariant or a failed fsync is fatal: the host gets the error and ends the process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random

import structlog

from kraftbase.errors import ApiError
from kraftbase.flusher import Flusher
from kraftbase.runtime import Runtime
from kraftbase.types import Epoch, Offset
from raft.core.actions import (
    Action,
    AdvanceHighWatermark,
    AnnounceLeader,
    AppendBatches,
    AppendLeaderChange,
    AppendRecords,
    AppendSnapshot,
    CompleteAppend,
    DropSnapshot,
    EndFounding,
    EndRecovering,
    FailAppend,
    FenceStateMachine,
    FlushLog,
    FreezeSnapshot,
    PersistElectionState,
    RebuildStateMachine,
    Reply,
    ReportRefusedLeader,
    ReportRejectedClaim,
    Send,
    TruncateFullyAndStartAt,
    TruncateLog,
)
from raft.core.config import FETCH_VERSION_LATEST, QuorumConfig
from raft.core.election_state import ElectionState
from raft.core.epochs import LOG_BEGINNING
from raft.core.events import (
    AppendPrepared,
    AppendsScheduled,
    Event,
    LogFlushed,
    LogStartAdvanced,
    RequestFailed,
    ResponseReceived,
    SnapshotAppended,
    SnapshotReceived,
    SnapshotRefused,
    SnapshotsChanged,
    TimePassed,
)
from raft.core.messages import FetchResponse
from raft.core.replica import Replica
from raft.core.types import OffsetAndEpoch
from raft.shell.burst_marker import BurstMarker
from raft.shell.deadline_timer import DeadlineTimer
from raft.shell.deferred_replies import DeferredReplies
from raft.shell.full_disk import pause_ms, without_records
from raft.shell.initial_log_state import log_state, recovering_log
from raft.shell.leader_log import LeaderLog
from raft.shell.log_start_keeper import LogStartKeeper
from raft.shell.log_writer import LogWriter, check_snapshot_point
from raft.shell.node_snapshots import NodeSnapshots
from raft.shell.observer import ShellObserver
from raft.shell.rejected_claims import RejectedClaims
from raft.shell.shell_host import Identity, ShellHost
from raft.storage.quorum_state import QuorumStateStore
from raft.storage.segmented_log import SegmentedLog
from snapshot.log_start_policy import LogStartConfig
from snapshot.store import SnapshotStore
from snapshot.writer import SnapshotWriter

logger = structlog.get_logger(__name__)


class Shell:
    """One replica with its log. The owner calls `close`, and nothing after that."""

    def __init__(
        self,
        *,
        identity: Identity,
        config: QuorumConfig,
        log: SegmentedLog,
        quorum_state: QuorumStateStore,
        election_state: ElectionState | None,
        snapshots: SnapshotStore,
        log_start: LogStartConfig,
        applied: OffsetAndEpoch = LOG_BEGINNING,
        random: Random,
        runtime: Runtime,
        host: ShellHost,
        fetch_version_allowed: int = FETCH_VERSION_LATEST,
        observer: ShellObserver | None = None,
    ) -> None:
        """Connect its parts. `election_state` is in `quorum_state`, `applied` is the state machine's end.

        The newest of `snapshots` is in `log`, and one of them ends at the log's start, if that is above 0.
        """
        self.config = config
        self.log = log
        self._quorum_state = quorum_state
        self._runtime, self._host, self._observer = runtime, host, observer
        self.snapshots = NodeSnapshots(
            snapshots,
            identity.cluster_id,
            runtime,
            on_changed=self._snapshots_changed,
            on_damaged=host.snapshot_damaged,
            on_fatal=self._fatal,
        )
        self.replica = Replica(
            config=config,
            cluster_id=identity.cluster_id,
            key=identity.key,
            endpoint=identity.endpoint,
            voters=identity.voters,
            bootstrap_endpoints=identity.bootstrap_endpoints,
            log=log_state(log, self.snapshots.latest),
            election_state=election_state,
            recovering=recovering_log(log, identity),
            applied=applied,
            fetch_version_allowed=fetch_version_allowed,
            random=random,
            now_ms=self._now_ms(),
        )
        self.flusher = Flusher(log, runtime, self._log_flushed, self._fatal)
        self.log_start = LogStartKeeper(
            log_start,
            replica=self.replica,
            log=log,
            snapshots=self.snapshots,
            runtime=runtime,
            listeners=host.listener_positions,
            on_advanced=lambda start: self.step(LogStartAdvanced(start)),
            on_fatal=self._fatal,
        )
        holders = self.log_start.holders
        self._replies = DeferredReplies(log, self.snapshots, holders, runtime, host, self._check_shutdown, self._fatal)
        self._committed_end_offset = Offset(0)
        self._actions: deque[Action] = deque()
        self._persisting = self._appends_scheduled = self._closed = False
        self._rejected_claims = RejectedClaims(runtime)
        self._leader_log = LeaderLog()
        self._last_id = 0
        self._timer = DeadlineTimer(runtime, lambda: self.replica.next_deadline_ms, lambda: self.step(TimePassed()))
        self._marker = BurstMarker(log, runtime, self._fatal)
        self._writer = LogWriter(log, runtime, self._fatal)

    # --- calls of its owner -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Enter the state that follows from the state on disk."""
        self._take(None, self.replica.start(self._now_ms()))
        self._notify_committed()  # the newest snapshot's records
        self.log_start.start()

    def close(self) -> None:
        """Stop at once: no events, no actions, no timers."""
        self._closed = True
        self._replies.close()
        self._timer.cancel()
        self._marker.cancel()
        self.log_start.close()
        self.snapshots.close()

    @property
    def is_behind(self) -> bool:
        """Whether actions wait for the election state to be on disk."""
        return bool(self._actions)

    def new_id(self) -> int:
        """A request id or append id that was not used before."""
        self._last_id += 1
        return self._last_id

    def prepare_append(self, append_id: int, epoch: Epoch, body: bytes, record_count: int) -> Offset:
        """Prepare an append of `record_count` records (LI-20) and return its base offset.

        Raises ApiError and changes nothing if this node does not lead `epoch`, if the body is too large, or
        if there is no room on the disk.
        """
        refusal = self.replica.refuse_append(epoch, len(body))
        if refusal is not None:
            raise ApiError(*refusal)
        self._writer.reserve_append(len(body))
        base_offset = self.replica.next_append_offset
        self._writer.unwritten.add(Offset(base_offset + record_count), len(body))
        self.step(AppendPrepared(append_id, epoch, body, record_count))
        return base_offset

    def schedule_appends(self) -> None:
        """Write all prepared appends, and those that are prepared before the runtime calls back."""
        if not self._appends_scheduled:
            self._appends_scheduled = True
            self._runtime.call_soon(self._write_appends)

    def create_snapshot(self, snapshot_id: OffsetAndEpoch, timestamp_ms: int) -> SnapshotWriter | None:
        """Begin a snapshot of a state machine at `snapshot_id`; after its freeze, call `snapshot_taken`.

        None if it is not needed: the log starts above it, or it exists. Raises ValueError for an invalid id: not
        committed, not in the log, or not at the end of a batch (SN-07).
        """
        if not check_snapshot_point(self.log, self.replica.high_watermark, snapshot_id):
            return None
        return self.snapshots.create(snapshot_id, timestamp_ms)

    def snapshot_taken(self) -> None:
        """Record that the state machine's owner has put a snapshot into the store."""
        if not self._closed:
            self.snapshots.refresh()
            try:
                self.log_start.check()
            except BaseException as error:
                self._fatal(error)

    def step(self, event: Event) -> None:
        """Step the replica with an event and carry out its actions."""
        if self._closed:
            return
        try:
            self._take(event, self.replica.step(event, self._now_ms()))
        except BaseException as error:
            self._fatal(error)

    def outcome(self, outcome: ResponseReceived | RequestFailed) -> None:
        """Process the outcome of a Send. Batches without room on the disk are dropped, and fetched again after a pause.

        Only the log knows where its batches end, so an answer that would truncate it within one is refused here.
        """
        has_room = self._writer.has_room
        match outcome:
            case ResponseReceived(correlation_id, FetchResponse(diverging_epoch=OffsetAndEpoch() as diverging)) if (
                self._is_within_batch(self.replica.truncation_point(diverging))
            ):
                self._rejected_claims.note(f"the leader's log diverges within a batch of ours, at {diverging}")
                self.step(RequestFailed(correlation_id))
            case ResponseReceived(_, FetchResponse(records=tuple(batches))) if batches and not has_room(batches):
                empty = without_records(outcome)
                self._runtime.call_later(pause_ms(self.config), lambda: self.step(empty))
            case _:
                self.step(outcome)

    def _is_within_batch(self, offset: Offset | None) -> bool:
        return offset is not None and not self._writer.is_between_batches(offset)

    # --- events -------------------------------------------------------------------------------------------------------

    def _take(self, event: Event | None, actions: Sequence[Action]) -> None:
        if self._observer is not None:
            self._observer.stepped(event, actions, self.replica)
        self._actions.extend(actions)
        self._execute()
        if not self._closed:
            self._timer.set()
        self._check_shutdown()

    def _check_shutdown(self) -> None:
        """Complete the shutdown when the last actions, such as a granted vote, have been carried out, too."""
        has_left = not self._actions and not self._persisting and not self._replies.has_deferred
        if self.replica.is_shutdown_complete and has_left:
            self._host.shutdown_complete()

    def _write_appends(self) -> None:
        self._appends_scheduled = False
        self.step(AppendsScheduled())

    def _log_flushed(self, end_offset: Offset) -> None:
        if self._closed:
            return
        self.step(LogFlushed(end_offset))
        self._notify_committed()
        if not self._closed:
            self._marker.flushed()

    def _snapshots_changed(self) -> None:
        if not self._closed:
            self.step(SnapshotsChanged(self.snapshots.latest))
            self._host.snapshots_changed()

    # --- actions ------------------------------------------------------------------------------------------------------

    def _execute(self) -> None:
        is_more_committed = False
        while self._actions and not self._persisting and not self._closed:
            action = self._actions.popleft()
            match action:
                case Reply():
                    self._replies.send(action, may_defer=self._is_all_committed)
                case AppendRecords():
                    self._writer.append_records(action)
                case FlushLog():
                    self.flusher.request()
                case Send():
                    self._host.send(action)
                case AppendBatches(batches):
                    self._writer.append_batches(batches)
                case AdvanceHighWatermark():
                    is_more_committed = True
                case CompleteAppend(append_id):
                    self._host.append_completed(append_id, None)
                case FailAppend(append_id, error, message):
                    self._writer.unwritten.clear()
                    self._host.append_completed(append_id, ApiError(error, message))
                case AppendLeaderChange():
                    self._writer.append_leader_change(action)
                case TruncateLog(end_offset):
                    self.log.truncate(end_offset)
                case TruncateFullyAndStartAt(snapshot_id):
                    logger.info("the log starts over where a snapshot ends", start=snapshot_id.offset)
                    self.log.truncate_fully_and_start_at(snapshot_id)
                    self._host.snapshots_changed()
                case AppendSnapshot(fetch_id, snapshot_id, data):
                    self.snapshots.append(
                        fetch_id,
                        snapshot_id,
                        data,
                        self._stepping(SnapshotAppended, fetch_id),
                        self._stepping(SnapshotRefused, fetch_id),
                    )
                case FreezeSnapshot(fetch_id):
                    self.snapshots.freeze(
                        fetch_id,
                        self._stepping(SnapshotReceived, fetch_id),
                        self._stepping(SnapshotRefused, fetch_id),
                    )
                case DropSnapshot():
                    self.snapshots.drop()
                case EndRecovering():
                    self.log.end_recovering()
                    logger.info("the log has recovered", log_end_offset=self.log.log_end_offset)
                case EndFounding():
                    self.log.end_founding()
                case AnnounceLeader(leader, epoch_start_offset):
                    self._leader_log.note(leader.leader_id, leader.epoch, self.replica.role.value)
                    self._host.leader_changed(leader, self.replica.leader_endpoint, epoch_start_offset)
                case PersistElectionState(state):
                    self._persist(state)
                case FenceStateMachine(expected, own):
                    self._host.state_diverged(expected, own)
                case ReportRejectedClaim(reason):
                    self._rejected_claims.note(reason)
                case ReportRefusedLeader(refused):
                    self._host.leader_refused(refused)
                case RebuildStateMachine():
                    self._host.may_rebuild_state()
        # Listeners come last, so that a follower's next fetch is on its way before the state machine runs.
        listeners_are_woken = is_more_committed and self._notify_committed()
        self._replies.release(may_defer=self._is_all_committed, listeners_are_woken=listeners_are_woken)

    @property
    def _is_all_committed(self) -> bool:
        """Whether no record waits to be committed, or to be appended."""
        return self.replica.high_watermark == self.replica.next_append_offset

    def _stepping(self, kind: Callable[..., Event], fetch_id: int) -> Callable[..., None]:
        return lambda *values: self.step(kind(fetch_id, *values))

    def _notify_committed(self) -> bool:
        """Notify the host of the committed end; return True if it has moved."""
        before = self._committed_end_offset
        self._committed_end_offset = max(before, min(self.replica.high_watermark, self.log.flushed_end_offset))
        self._host.committed(self._committed_end_offset)
        return self._committed_end_offset > before

    def _persist(self, state: ElectionState) -> None:
        self._persisting = True
        self._runtime.run_on_disk(lambda: self._quorum_state.save(state), self._persisted)

    def _persisted(self, failure: BaseException | None) -> None:
        try:
            if failure is not None:
                raise failure
            self._persisting = False
            if not self._closed:
                self._execute()
                self._check_shutdown()
        except BaseException as error:
            self._fatal(error)

    def _fatal(self, error: BaseException) -> None:
        if not self._closed:
            self._host.fatal(error)

    def _now_ms(self) -> int:
        return int(self._runtime.now_ms())
