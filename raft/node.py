"""A node: the shell around one replica on an asyncio loop, with its peers over gRPC and its listeners.

Everything that touches the replica or the log runs on that loop, except fsyncs of a slow disk and writes of the
election state. These run in a thread of their own, and their results return as events (`raft.shell.shell` has the
rules).
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ApiError, ErrorCode
from kraftbase.runtime import AsyncioRuntime, awaited
from kraftbase.types import Epoch, Offset
from raft.commits import CommitFeed, Snapshots
from raft.core.actions import Send
from raft.core.config import FETCH_VERSION_LATEST, QuorumConfig
from raft.core.election_state import ElectionState
from raft.core.epochs import LOG_BEGINNING
from raft.core.events import Event, RequestCancelled, RequestReceived, ResignRequested, ShutdownRequested
from raft.core.messages import LogStartHolder, Request, Response
from raft.core.replica_view import ReplicaView
from raft.core.types import LeaderAndEpoch, OffsetAndEpoch, RefusedLeader, StateDigest
from raft.delivery import AnyListener, Delivery
from raft.rpc.limits import ServiceLimits
from raft.rpc.reader_leases import ReaderLeases
from raft.rpc.transport import PeerTransport
from raft.shell.appends import OnSettled, PendingAppends
from raft.shell.log_start_keeper import ListenerPosition
from raft.shell.observer import ShellObserver
from raft.shell.shell import Shell
from raft.shell.shell_host import Identity
from raft.storage.quorum_state import QuorumStateStore
from raft.storage.segmented_log import SegmentedLog
from snapshot.log_start_policy import LogStartConfig
from snapshot.store import SnapshotStore
from snapshot.writer import SnapshotWriter

STOPPED: Final = "this node was stopped; ask another"

EXIT_CANNOT_GO_ON: Final = 70

LAST_WORDS_SECONDS: Final = 5.0
"""How long a process that must end may take to log the reason."""

logger = structlog.get_logger(__name__)


def end_process(error: BaseException) -> None:
    """Log the reason and end the process at once, without flushing or unwinding: nothing in memory can be trusted.

    The process ends even if the message cannot be logged: an output that blocks must not keep it alive.
    """
    try:
        last_words = threading.Thread(target=_say_last_words, args=(error,), daemon=True)
        last_words.start()
        last_words.join(LAST_WORDS_SECONDS)
    finally:
        os._exit(EXIT_CANNOT_GO_ON)


def _say_last_words(error: BaseException) -> None:
    logger.critical("the node cannot continue", error=repr(error))
    logger.critical("the process ends because of this error", exc_info=error)  # may take seconds
    logging.shutdown()  # waits for handlers that write in the background


class ListenerFault(Exception):
    """A listener raised, and the program gave no `on_listener_fault` with which the node continues."""

    def __init__(self, listener: AnyListener, error: Exception) -> None:
        """`error` is what the listener raised."""
        super().__init__(
            f"listener {listener.name} raised {error!r}; correct it and start the node again, or give the node an"
            " on_listener_fault with which it continues, such as raft.node.log_listener_fault"
        )
        self.__cause__ = error


OnListenerFault = Callable[[AnyListener, Exception], None]
"""Called with a listener that raised, and the exception; the listener gets no further calls."""


def end_by_listener_fault(listener: AnyListener, error: Exception) -> None:
    """End the process with an error that names the listener: the default `on_listener_fault` (LI-08).

    Without that, the listener's work would be missing from then on, unnoticed.
    """
    end_process(ListenerFault(listener, error))


def log_listener_fault(listener: AnyListener, error: Exception) -> None:
    """An `on_listener_fault` that only logs: the node continues, without calls of the listener (LI-08)."""
    logger.error("listener failed and gets no further calls", listener=listener.name, exc_info=error)


def log_state_divergence(expected: StateDigest, own: StateDigest) -> None:
    """Log that this node's state machine differs from the quorum's; the node continues, and is not elected."""
    logger.critical(
        "this node's state machine differs from the quorum's",
        end_offset=expected.end_offset,
        expected=expected.digest.hex(),
        own=own.digest.hex(),
    )


class Node:
    """One replica on one event loop, with its log, its peers and its listeners."""

    def __init__(
        self,
        *,
        identity: Identity,
        config: QuorumConfig,
        log: SegmentedLog,
        quorum_state: QuorumStateStore,
        election_state: ElectionState | None,
        snapshots: SnapshotStore,
        log_start: LogStartConfig | None = None,
        applied: OffsetAndEpoch = LOG_BEGINNING,
        fetch_version_allowed: int = FETCH_VERSION_LATEST,
        named_readers_max: int = ServiceLimits().named_readers_max,
        on_snapshot_damaged: Callable[[], None] = lambda: None,
        on_fatal: Callable[[BaseException], None] = end_process,
        on_listener_fault: OnListenerFault,
        on_state_diverged: Callable[[StateDigest, StateDigest], None] = log_state_divergence,
        takes_records: bool = True,
        on_may_rebuild: Callable[[], None] = lambda: None,
        observer: ShellObserver | None = None,
    ) -> None:
        """Connect its parts; `start` starts it. The caller closes `log`.

        `election_state` is what `quorum_state` holds, `applied` is the end of what the state machine has applied;
        `snapshots` fit `log` (`raft.shell.reconcile`). `on_snapshot_damaged` is called when a damaged snapshot was
        deleted, so that the state machine's owner takes another one. `on_listener_fault` is called for a listener that
        raised, which gets no further calls (LI-08). An exception while the node stops is logged, whatever the handler
        is. `on_state_diverged` is called once, with the quorum's state digest and this node's: from then on this node's
        state machine must not be trusted. `on_may_rebuild` is called once, when it may be rebuilt.
        `fetch_version_allowed` is the highest version of Fetch that the cluster is known to have finalized;
        `RaftClient.allow_fetch_version` changes it. `takes_records`: whether `RaftClient.append` accepts a program's
        records, or only the node's own controller appends. `observer` watches the shell.
        """
        self.identity = identity
        self.config = config
        self.log = log
        self.takes_records = takes_records
        self._on_fatal = on_fatal
        self._on_state_diverged = on_state_diverged
        self._on_may_rebuild = on_may_rebuild
        self._on_snapshot_damaged = on_snapshot_damaged
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kraftlog-disk")
        runtime = self._runtime = AsyncioRuntime(self._executor)
        self.readers = ReaderLeases(named_readers_max, runtime.now_ms)
        """The readers outside the nodes that have a lease from this node."""
        self._shell = Shell(
            identity=identity,
            config=config,
            log=log,
            quorum_state=quorum_state,
            election_state=election_state,
            snapshots=snapshots,
            log_start=log_start or LogStartConfig(),
            applied=applied,
            random=random.Random(),  # noqa: S311 (jitter of elections, no secret)
            runtime=runtime,
            host=self,
            fetch_version_allowed=fetch_version_allowed,
            observer=observer,
        )
        self.feed = CommitFeed(self.replica.leader_and_epoch)
        self.delivery = Delivery(log, self._shell.snapshots, self.feed, runtime, self._listener_failed, self.fatal)
        self._on_listener_fault = on_listener_fault
        self._transport = PeerTransport(self._shell.outcome, request_timeout_ms=config.request_timeout_ms)
        self._waiting: dict[int, asyncio.Future[tuple[Response, bytes]]] = {}
        self._appends = PendingAppends(runtime.call_soon)
        self._shutdown_complete = asyncio.Event()
        self.readiness_changed = asyncio.Event()
        """Set when `is_ready` may have changed."""
        self._closed = False

    # --- life -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Enter the state that follows from the state on disk."""
        self._shell.start()

    async def shutdown(self, timeout_ms: int) -> None:
        """Hand over leadership if it leads (RF-100), within `timeout_ms`, then stop."""
        self.step(ShutdownRequested())
        try:
            await asyncio.wait_for(self._shutdown_complete.wait(), timeout_ms / 1000)
        except TimeoutError:
            logger.warning("shutting down without a successor", timeout_ms=timeout_ms)
        await self.close()

    async def close(self) -> None:
        """Stop at once: no events, no listeners, no peers. Closing twice changes nothing."""
        if self._closed:
            return
        self._closed = True
        self._shell.close()
        await awaited(self.delivery.close)
        self.feed.close()
        await self._transport.close()
        self._appends.fail_all(STOPPED)
        for waiting in self._waiting.values():
            waiting.cancel()
        await asyncio.get_running_loop().run_in_executor(None, self._executor.shutdown)

    @property
    def replica(self) -> ReplicaView:
        """The readable state of the replica."""
        return self._shell.replica

    @property
    def is_ready(self) -> bool:
        """Whether it serves clients: not while it refuses a leader that lacks committed records."""
        return self.replica.refused_leader is None

    def behind_ms(self) -> int:
        """For how long this node has not been level with a leader, as far as it knows."""
        return self.replica.behind_ms(int(self._runtime.now_ms()))

    @property
    def snapshots(self) -> Snapshots:
        """This node's snapshots."""
        return self._shell.snapshots

    def log_start_holders(self) -> tuple[LogStartHolder, ...]:
        """The readers that hold this node's log start back."""
        return self._shell.log_start.holders()

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        """The newest snapshot that this node has."""
        return self._shell.snapshots.latest

    @property
    def leader(self) -> tuple[LeaderAndEpoch, Endpoint | None]:
        """The leader, and where it listens."""
        return self.replica.leader_and_epoch, self.replica.leader_endpoint

    @property
    def leader_endpoint_for_clients(self) -> Endpoint | None:
        """Where clients reach the leader."""
        return self.identity.for_clients(self.replica.leader_and_epoch.leader_id, self.replica.leader_endpoint)

    # --- requests of peers and clients --------------------------------------------------------------------------

    async def answer(self, request: Request) -> tuple[Response, bytes]:
        """Return the replica's answer to a request, and the encoded batches or the snapshot's bytes that go with it.

        The call waits while its fetch is parked; if the call is cancelled, the fetch is dropped.
        """
        self._refuse_if_closed()
        request_id = self._shell.new_id()
        answer: asyncio.Future[tuple[Response, bytes]] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        self.step(RequestReceived(request_id, request))
        try:
            return await answer
        except asyncio.CancelledError:
            if self._waiting.pop(request_id, None) is not None:
                self.step(RequestCancelled(request_id))
            raise

    def prepare_append(self, epoch: Epoch, body: bytes, record_count: int, on_settled: OnSettled) -> Offset:
        """Prepare an append of `record_count` records (LI-20) and return its base offset.

        `on_settled` is called once, never within this call. Raises ApiError, changes nothing and never calls
        `on_settled` if this node does not lead `epoch`, if the body is too large, or if there is no room on the disk.
        """
        self._refuse_if_closed()
        append_id = self._shell.new_id()
        return self._appends.prepare(
            append_id, on_settled, lambda: self._shell.prepare_append(append_id, epoch, body, record_count)
        )

    def schedule_appends(self) -> None:
        """Write all prepared appends, and those that are prepared before the loop's next iteration."""
        self._shell.schedule_appends()

    def create_snapshot(self, snapshot_id: OffsetAndEpoch, timestamp_ms: int) -> SnapshotWriter | None:
        """Begin a snapshot of this node's state machine; see `Shell.create_snapshot`."""
        self._refuse_if_closed()
        return self._shell.create_snapshot(snapshot_id, timestamp_ms)

    def snapshot_taken(self) -> None:
        """Record that a snapshot of this node's state machine was put into the store."""
        self._shell.snapshot_taken()

    def resign(self, epoch: Epoch) -> None:
        """Stop leading `epoch`; the caller has checked it (RF-102)."""
        self.step(ResignRequested(epoch))

    def step(self, event: Event) -> None:
        """Step the replica with an event and carry out its actions."""
        self._shell.step(event)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, STOPPED)

    # --- what leaves the shell (raft.shell.shell.ShellHost) -----------------------------------------------------------

    def send(self, send: Send) -> None:
        """Send a request to a peer."""
        self._transport.send(send)

    def reply(self, request_id: int, response: Response, records: bytes) -> None:
        """Answer the request, if its caller still waits."""
        waiting = self._waiting.pop(request_id, None)
        if waiting is not None and not waiting.done():
            waiting.set_result((response, records))

    def append_completed(self, append_id: int, error: ApiError | None) -> None:
        """Call the `on_settled` of the append."""
        self._appends.settle(append_id, error)

    def committed(self, committed_end_offset: Offset) -> None:
        """Feed listeners up to the committed end."""
        self.feed.advance(committed_end_offset)

    def leader_changed(
        self, leader: LeaderAndEpoch, leader_endpoint: Endpoint | None, epoch_start_offset: Offset | None
    ) -> None:
        """Notify listeners of the leader."""
        endpoint = self.identity.for_clients(leader.leader_id, leader_endpoint)
        self.feed.set_leader(leader, endpoint, epoch_start_offset)

    def listener_positions(self) -> Sequence[ListenerPosition]:
        """How far the listeners have read, and the readers with a lease."""
        readers = (ListenerPosition(f"reader {name}", offset) for name, offset in self.readers.positions())
        return [*self.delivery.positions(), *readers]

    def snapshots_changed(self) -> None:
        """Wake listeners: one may be waiting for a snapshot."""
        self.feed.wake()

    def snapshot_damaged(self) -> None:
        """Notify the owner of the state machine, which takes another snapshot."""
        self._on_snapshot_damaged()

    def state_diverged(self, expected: StateDigest, own: StateDigest) -> None:
        """Notify the owner of the state machine."""
        self._on_state_diverged(expected, own)

    def leader_refused(self, refused: RefusedLeader | None) -> None:
        """Log the refused leader, and signal that readiness has changed."""
        if refused is None:
            logger.info("ready again: a leader has all committed records")
        else:
            logger.critical(
                "LEADER_LACKS_COMMITTED: this node is not ready. It keeps what it has and does not follow the leader."
                " Format no directory and delete nothing: this node may be the only one that has the missing records."
                " Determine which voter's disk was changed or restored from an older copy",
                leader=refused.leader.leader_id,
                epoch=refused.leader.epoch,
                leader_agrees_to_offset=refused.gap.agreed_offset,
                committed_offset=refused.gap.committed_offset,
            )
        self.readiness_changed.set()

    def may_rebuild_state(self) -> None:
        """Notify the owner of the state machine."""
        self._on_may_rebuild()

    def shutdown_complete(self) -> None:
        """The node has handed over and may stop."""
        self._shutdown_complete.set()

    def _listener_failed(self, listener: AnyListener, error: Exception) -> None:
        if self._closed:
            log_listener_fault(listener, error)  # the listener raised while the node stopped
        else:
            self._on_listener_fault(listener, error)

    def fatal(self, error: BaseException) -> None:
        """Call the handler that ends the process."""
        if not self._closed:
            self._on_fatal(error)
