"""The shell around one replica: it carries out the core's actions and feeds it events.

A node lives on one event loop. Everything that touches the replica or the log runs there, but fsyncs of a slow disk and
writes of the election state, which run in a thread of its own and come back as events. The rules:

- Actions are carried out strictly in order. PersistElectionState holds up what follows until it is on disk.
- Room for batches is reserved before the core hears of them, so a full disk refuses appends and changes nothing.
- A violated invariant or a failed fsync ends the process at once: see `end_process`.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import structlog

from raft.appends import BATCH_OVERHEAD_BYTES, PendingAppends
from raft.commits import CommitFeed
from raft.core.actions import (
    Action,
    AdvanceHighWatermark,
    AnnounceLeader,
    AppendBatches,
    AppendLeaderChange,
    AppendRecords,
    CompleteAppend,
    FailAppend,
    FlushLog,
    PersistElectionState,
    Reply,
    Send,
    TruncateLog,
)
from raft.core.config import QuorumConfig
from raft.core.election import ElectionState
from raft.core.errors import ErrorCode, OutOfSpace, ProtocolError
from raft.core.events import (
    AppendPrepared,
    AppendsScheduled,
    Event,
    LogFlushed,
    RequestCancelled,
    RequestFailed,
    RequestReceived,
    ResignRequested,
    ResponseReceived,
    ShutdownRequested,
    TimePassed,
)
from raft.core.log import LogState
from raft.core.messages import FetchResponse, LogRange, Request, Response
from raft.core.replica import Replica
from raft.core.types import Batch, Endpoint, Epoch, LeaderAndEpoch, Offset, ReplicaKey
from raft.core.voters import VoterSet
from raft.delivery import Delivery
from raft.flusher import Flusher
from raft.listener import Listener
from raft.rpc.transport import PeerTransport
from raft.storage.batch import batch_timestamp, encode_batch
from raft.storage.control import encode_leader_change
from raft.storage.quorum_state import QuorumStateStore
from raft.storage.segmented_log import SegmentedLog

OUT_OF_SPACE_PAUSE_SECONDS_MAX: Final = 0.5
"""How long a follower with a full disk waits before it asks for the same batches again, at most."""

MARKER_IDLE_SECONDS: Final = 0.1
"""How long after a flush a burst of appends counts as over: a marker then says that all of it is durable."""

STOPPED: Final = "this node was stopped; ask another"

logger = structlog.get_logger(__name__)


def end_process(error: BaseException) -> None:
    """Say why and end the process at once, without flushing or unwinding: nothing that is in memory can be trusted."""
    logger.critical("the node cannot go on", error=repr(error), exc_info=error)
    os._exit(70)


def log_listener_fault(listener: Listener, error: Exception) -> None:
    """Say that a listener failed; it gets nothing more, the node goes on (LI-08)."""
    logger.error("a listener failed and gets no more commits", listener=repr(listener), exc_info=error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who the node is and whom it knows."""

    cluster_id: str
    key: ReplicaKey
    endpoint: Endpoint
    voters: VoterSet
    bootstrap_endpoints: tuple[Endpoint, ...] = ()


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
        on_fatal: Callable[[BaseException], None] = end_process,
        on_listener_fault: Callable[[Listener, Exception], None] = log_listener_fault,
    ) -> None:
        """Wire it up; `start` sets it going. `log` stays the caller's to close.

        `election_state` is what `quorum_state` holds.
        """
        self.identity = identity
        self.config = config
        self.log = log
        self._quorum_state = quorum_state
        self._on_fatal = on_fatal
        now_ms = _now_ms()
        self.replica = Replica(
            config=config,
            cluster_id=identity.cluster_id,
            key=identity.key,
            endpoint=identity.endpoint,
            voters=identity.voters,
            bootstrap_endpoints=identity.bootstrap_endpoints,
            log=LogState(
                start_offset=log.log_start_offset,
                end_offset=log.log_end_offset,
                flushed_end_offset=log.flushed_end_offset,
                epochs=log.epochs.copy(),
            ),
            election_state=election_state,
            random=random.Random(),  # noqa: S311 (jitter of elections, no secret)
            now_ms=now_ms,
        )
        self.feed = CommitFeed(self.replica.leader_and_epoch)
        self.delivery = Delivery(log, self.feed, on_listener_fault, self._fatal)
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kraftlog-disk")
        self.flusher = Flusher(log, self._executor, self._log_flushed, self._fatal)
        self._transport = PeerTransport(self._outcome, request_timeout_ms=config.request_timeout_ms)
        self._actions: deque[Action] = deque()
        self._persisting = False
        self._waiting: dict[int, asyncio.Future[tuple[Response, bytes]]] = {}
        self._appends = PendingAppends()
        self._next_id = 0
        self._appends_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._marker_timer: asyncio.TimerHandle | None = None
        self._last_timestamp_ms = _last_timestamp_ms(log)
        self._shutdown_complete = asyncio.Event()
        self._closed = False

    # --- life -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take up the role that the durable state gives it."""
        self._take(self.replica.start(_now_ms()))

    async def shutdown(self, timeout_ms: int) -> None:
        """Hand over leadership if it leads (RF-100), at most for `timeout_ms`, then stop."""
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
        for timer in (self._timer, self._marker_timer):
            if timer is not None:
                timer.cancel()
        await self.delivery.close()
        self.feed.close()
        await self._transport.close()
        self._appends.fail_all(STOPPED)
        for waiting in self._waiting.values():
            waiting.cancel()
        await asyncio.get_running_loop().run_in_executor(None, self._executor.shutdown)

    @property
    def leader(self) -> tuple[LeaderAndEpoch, Endpoint | None]:
        """Who leads, and where it listens."""
        return self.replica.leader_and_epoch, self.replica.leader_endpoint

    # --- what peers and clients ask -----------------------------------------------------------------------------

    async def answer(self, request: Request) -> tuple[Response, bytes]:
        """The replica's answer to a request, and the encoded batches that go with it.

        A parked fetch takes as long as it is parked; if the caller is cancelled meanwhile it is forgotten.
        """
        self._refuse_if_closed()
        request_id = self._new_id()
        answer: asyncio.Future[tuple[Response, bytes]] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        self.step(RequestReceived(request_id, request))
        try:
            return await answer
        except asyncio.CancelledError:
            if self._waiting.pop(request_id, None) is not None:
                self.step(RequestCancelled(request_id))
            raise

    def prepare_append(self, epoch: Epoch, body: bytes, record_count: int) -> tuple[Offset, asyncio.Future[None]]:
        """Prepare an append of `record_count` records (LI-20): its base offset, and what tells when it is committed.

        Raises ProtocolError and changes nothing if this node does not lead `epoch`, if the body is too large, or
        if there is no room on the disk.
        """
        self._refuse_if_closed()
        refusal = self.replica.refuse_append(epoch, len(body))
        if refusal is not None:
            raise ProtocolError(*refusal)
        try:
            self._reserve(self._appends.unwritten_bytes + len(body) + BATCH_OVERHEAD_BYTES)
        except OutOfSpace as error:
            raise ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from None
        base_offset = self.replica.next_append_offset
        append_id = self._new_id()
        committed = self._appends.add(append_id, Offset(base_offset + record_count), len(body))
        self.step(AppendPrepared(append_id, epoch, body, record_count))
        return base_offset, committed

    def schedule_appends(self) -> None:
        """Write what was prepared, together with all that is prepared before the loop comes round again."""
        if not self._appends_scheduled:
            self._appends_scheduled = True
            asyncio.get_running_loop().call_soon(self._write_appends)

    def resign(self, epoch: Epoch) -> None:
        """Stop leading `epoch`; the caller has checked it (RF-102)."""
        self.step(ResignRequested(epoch))

    # --- events -------------------------------------------------------------------------------------------------

    def step(self, event: Event) -> None:
        """Give the replica an event and carry out what it orders."""
        if self._closed:
            return
        try:
            self._take(self.replica.step(event, _now_ms()))
        except BaseException as error:
            self._fatal(error)

    def _take(self, actions: Sequence[Action]) -> None:
        self._actions.extend(actions)
        self._carry_out()
        self._set_timer()
        self._check_shutdown()

    def _check_shutdown(self) -> None:
        """The replica may go when what it ordered last, such as a granted vote, has left as well."""
        if self.replica.is_shutdown_complete and not self._actions and not self._persisting:
            self._shutdown_complete.set()

    def _write_appends(self) -> None:
        self._appends_scheduled = False
        self.step(AppendsScheduled())

    def _log_flushed(self, end_offset: Offset) -> None:
        self.step(LogFlushed(end_offset))
        self._advance_feed()
        if self._marker_timer is None and not self._closed:
            self._marker_timer = asyncio.get_running_loop().call_later(MARKER_IDLE_SECONDS, self._close_burst)

    def _close_burst(self) -> None:
        self._marker_timer = None
        try:
            if self.log.flushed_end_offset == self.log.log_end_offset:  # else the next flush comes by here again
                self.log.write_marker()
        except BaseException as error:
            self._fatal(error)

    def _outcome(self, outcome: ResponseReceived | RequestFailed) -> None:
        match outcome:
            case ResponseReceived(_, FetchResponse(records=tuple(batches))) if batches and not self._has_room(batches):
                empty = self._without_records(outcome)
                timeout_ms = min(self.config.request_timeout_ms, self.config.fetch_timeout_ms)
                pause_seconds = min(OUT_OF_SPACE_PAUSE_SECONDS_MAX, timeout_ms / 2000)
                asyncio.get_running_loop().call_later(pause_seconds, self.step, empty)
            case _:
                self.step(outcome)

    def _has_room(self, batches: Sequence[Batch]) -> bool:
        try:
            self._reserve(sum(len(batch.data) + BATCH_OVERHEAD_BYTES for batch in batches))
        except OutOfSpace as error:
            logger.error("cannot follow the leader: no room for its batches", reason=str(error))
            return False
        return True

    def _reserve(self, byte_count: int) -> None:
        """Make sure of room. Going on to a new segment flushes the last one, so this may fail for good."""
        try:
            self.log.reserve(byte_count)
        except OutOfSpace:
            raise
        except BaseException as error:
            self._fatal(error)
            raise

    @staticmethod
    def _without_records(outcome: ResponseReceived) -> ResponseReceived:
        response = outcome.response
        if not isinstance(response, FetchResponse):
            return outcome
        # The leader was heard: no election for want of room. An answer without records is legal (RF-55).
        return ResponseReceived(
            outcome.correlation_id,
            FetchResponse(
                leader=response.leader,
                leader_endpoint=response.leader_endpoint,
                high_watermark=response.high_watermark,
                log_start_offset=response.log_start_offset,
            ),
        )

    def _set_timer(self) -> None:
        deadline_ms = self.replica.next_deadline_ms
        if deadline_ms is None:
            return
        if self._timer is not None and not self._timer.cancelled() and self._timer_at_ms <= deadline_ms:
            return  # it fires early and is set anew then: cheaper than to move it at every step
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = deadline_ms
        delay_seconds = max(0, deadline_ms - _now_ms() + 1) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_seconds, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self.step(TimePassed())

    # --- actions --------------------------------------------------------------------------------------------------

    def _carry_out(self) -> None:
        while self._actions and not self._persisting:
            action = self._actions.popleft()
            match action:
                case Reply():
                    self._reply(action)
                case AppendRecords(base_offset, epoch, body, record_count):
                    self._append_records(base_offset, epoch, body, record_count)
                case FlushLog():
                    self.flusher.request()
                case Send():
                    self._transport.send(action)
                case AppendBatches(batches):
                    self.log.append(batches)
                    self._last_timestamp_ms = max(self._last_timestamp_ms, batch_timestamp(batches[-1]))
                case AdvanceHighWatermark():
                    self._advance_feed()
                case CompleteAppend(append_id):
                    self._appends.complete(append_id)
                case FailAppend(append_id, error, message):
                    self._appends.fail(append_id, ProtocolError(error, message))
                case AppendLeaderChange(base_offset, epoch, record):
                    body = encode_leader_change(record)
                    self.log.append((encode_batch(base_offset, epoch, body, 1, self._timestamp_ms(), is_control=True),))
                case TruncateLog(end_offset):
                    self.log.truncate(end_offset)
                case AnnounceLeader(leader, epoch_start_offset):
                    self._announce(leader, epoch_start_offset)
                case PersistElectionState(state):
                    self._persist(state)

    def _append_records(self, base_offset: Offset, epoch: Epoch, body: bytes, record_count: int) -> None:
        self.log.append((encode_batch(base_offset, epoch, body, record_count, self._timestamp_ms()),))
        self._appends.written(Offset(base_offset + record_count))

    def _reply(self, reply: Reply) -> None:
        waiting = self._waiting.pop(reply.request_id, None)
        if waiting is None or waiting.done():
            return
        records = b""
        response = reply.response
        if isinstance(response, FetchResponse) and isinstance(response.records, LogRange):
            records = self.log.read(response.records.start_offset, response.records.max_bytes)
        waiting.set_result((response, records))

    def _announce(self, leader: LeaderAndEpoch, epoch_start_offset: Offset | None) -> None:
        logger.info("leader", leader=leader.leader_id, epoch=leader.epoch, role=self.replica.role.value)
        self.feed.set_leader(leader, self.replica.leader_endpoint, epoch_start_offset)

    def _advance_feed(self) -> None:
        self.feed.advance(min(self.replica.high_watermark, self.log.flushed_end_offset))

    def _persist(self, state: ElectionState) -> None:
        self._persisting = True
        saved = asyncio.get_running_loop().run_in_executor(self._executor, self._quorum_state.save, state)
        saved.add_done_callback(self._persisted)

    def _persisted(self, saved: asyncio.Future[None]) -> None:
        try:
            saved.result()
            self._persisting = False
            if not self._closed:
                self._carry_out()
                self._check_shutdown()
        except BaseException as error:
            self._fatal(error)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ProtocolError(ErrorCode.BROKER_NOT_AVAILABLE, STOPPED)

    def _fatal(self, error: BaseException) -> None:
        if not self._closed:
            self._on_fatal(error)

    def _timestamp_ms(self) -> int:
        """The wall clock, but never behind the last batch's timestamp."""
        self._last_timestamp_ms = max(self._last_timestamp_ms, time.time_ns() // 1_000_000)
        return self._last_timestamp_ms

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id


def _last_timestamp_ms(log: SegmentedLog) -> int:
    if log.log_end_offset == log.log_start_offset:
        return 0
    return batch_timestamp(log.read_batches(Offset(log.log_end_offset - 1), 1)[-1])


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
