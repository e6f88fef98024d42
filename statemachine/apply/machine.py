"""Feeds the store from the committed log and notifies waiters (rules LI-01 to LI-05 on the listener's side).

- A snapshot takes the database's place when the node has none, or the log does not reach back to where it stands.
- Small runs of batches are applied on the event loop, which takes well under 10 ms; others in a thread, while reads
  continue and see the state before. Each run is one transaction.
- Waiters, subscribers and publishers are notified after the transaction. Those that only wait for the commit are
  notified before a run is written on the loop; from then on reads wait for that run, so what was acknowledged here is
  seen here.
- At certain offsets the node is given the digest of the state, for the quorum to compare. A state that differs from the
  others' is fenced: nothing more is applied or read, and the next start rebuilds it.
- No room on the disk, or another process's lock on the database, is waited out; anything else that keeps a record from
  being applied is raised, and the node must stop (CT-18).
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

import structlog

from kraftbase.errors import ApiError, ErrorCode, OutOfSpace
from raft.core.types import LeaderAndEpoch, Offset, StateDigest
from raft.listener import BatchReader, CommittedBatch, Listener, LoadSnapshotReader
from snapshot.reader import SnapshotReader
from statemachine.apply.applied import Subscriber
from statemachine.apply.publishers import MetadataPublisher, MetadataPublishers
from statemachine.apply.waiters import OffsetWaiters
from statemachine.replay.replay import ReplayError
from statemachine.store.checkpointer import Checkpointer
from statemachine.store.metadata_tables import PreparedRun, StoreUnavailable
from statemachine.store.store import MetadataStore
from statemachine.store.write_ahead_log import TRANSACTION_BYTES_SOFT_MAX, WriteAheadLogHeld

APPLY_ON_LOOP_BYTES_MAX: Final = 32 * 1024
"""Up to about 800 records: what is applied in a few milliseconds. Half as much while a publisher is installed."""

REMOVALS_ON_LOOP_MAX: Final = 0
"""How many topics, or partitions with remote data, may lose all their rows on the loop: a topic takes up to 10,000
partitions along, 30 milliseconds of work, and a partition has any number of remote segments."""

ROWS_ON_LOOP_MAX: Final = 1_000
"""Few bytes may still be many rows: a remote segment has one for each leader epoch. Half as many while a publisher is
installed."""

UNAVAILABLE_PAUSE_SECONDS: Final = 0.5
"""How long to wait before a transaction that found no room or a lock is tried again."""

WAITERS_MAX: Final = 10_000

TURNS_FOR_ANSWERS: Final = 2
"""How many turns of the loop until an answer has been handed to the network: one for the callers that wait for it, one
for fetches of what is committed now, which are answered meanwhile."""

ACKNOWLEDGED_WAIT_MS: Final = 2_000
"""How long a read waits for what was acknowledged here. That is a few turns, or as long as a checkpoint stops the
writer, a second and its syncs at most; only an obstacle makes it last longer."""

logger = structlog.get_logger(__name__)


class MetadataMachine(Listener):
    """The listener that keeps a store level with the log. Register it at the store's `applied_end_offset`, if any."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._applied_end_offset = store.applied_end_offset
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kraftlog-apply")
        self._subscribers: list[Subscriber] = []
        self._publishers = MetadataPublishers()
        self._is_applying = False
        self._acknowledged_end_offset = Offset(0)
        self._on_committed: Callable[[Offset], bool] | None = None
        self._waiters = OffsetWaiters()
        self._checkpointer = Checkpointer(store, self._executor)
        self._is_shut_down = False
        self._unavailable_reason: str | None = None
        self._fence: str | None = None
        self._report: Callable[[StateDigest], None] | None = None
        self._on_rotten: Callable[[str], None] = self.fence_rotten
        self._unreported: list[StateDigest] = []

    @property
    def applied_end_offset(self) -> Offset:
        """The offset after the last applied record that all subscribers know of."""
        return self._applied_end_offset

    @property
    def unavailable_reason(self) -> str | None:
        """Why committed records cannot be applied, None while they can: no room on the disk, a lock, or a fence."""
        return self._fence or self._unavailable_reason

    @property
    def has_open_transaction(self) -> bool:
        """Whether committed batches wait for the end of their metadata transaction."""
        return self._store.has_open_transaction

    def subscribe(self, subscriber: Subscriber) -> None:
        """Notify `subscriber` from now on."""
        self._subscribers.append(subscriber)

    def set_commit_callback(self, on_committed: Callable[[Offset], bool]) -> None:
        """Notify `on_committed` of the end offset of each run that is written on the loop next.

        It returns whether it acknowledged anything.
        """
        self._on_committed = on_committed

    def install_publisher(self, publisher: MetadataPublisher) -> None:
        """Show `publisher` the state, now or after the run that is being applied, and then every change.

        Raises ValueError if it is installed already.
        """
        self._publishers.add(publisher)
        self._store.has_publishers = True
        if not self._is_applying:
            self._publishers.initialize_new(self._applied_end_offset, self._store.reader)

    def remove_publisher(self, publisher: MetadataPublisher) -> None:
        """Notify `publisher` no more; nothing happens if it is not installed."""
        self._publishers.remove(publisher)
        self._store.has_publishers = bool(self._publishers)

    def set_state_digest_callback(self, report: Callable[[StateDigest], None]) -> None:
        """Give `report` the store's last digest, once the node runs, and then each new digest."""
        self._report = report
        if self._store.state_digest is not None:
            self._unreported.append(self._store.state_digest)

    def fence(self, expected: StateDigest, own: StateDigest) -> None:
        """Stop for good: the store has the digest `own`, the quorum has `expected` (KAFKA-14275).

        Nothing more is applied, reads and operations are refused, and the next start sets the database aside.
        """
        if self._fence is not None:
            return
        logger.critical(
            "this node's metadata differs from the quorum's",
            end_offset=expected.end_offset,
            expected=expected.digest.hex(),
            own=own.digest.hex(),
        )
        self._fence_for(
            f"this node's metadata differs from the quorum's at offset {expected.end_offset}; its database is rebuilt"
            " from a snapshot and the log as soon as no other node rebuilds its own",
            f"it differs from the quorum's at offset {expected.end_offset}",
        )

    def fence_rotten(self, reason: str) -> None:
        """Stop for good: the store's rows are not those that were applied, for `reason`, as a scrub has found.

        Like `fence`, but nothing was made from the wrong rows, so the snapshots stay.
        """
        if self._fence is None:
            self._fence_for(
                f"this node's metadata rotted ({reason}); its database is rebuilt from a snapshot and the log as soon"
                " as no other node rebuilds its own",
                reason,
            )

    def set_rot_callback(self, on_rotten: Callable[[str], None]) -> None:
        """Have `on_rotten` call `fence_rotten`, and notify others, when rot keeps a record from being applied."""
        self._on_rotten = on_rotten

    def _fence_for(self, fence: str, mark: str) -> None:
        self._fence = fence
        logger.critical(fence)
        self._waiters.fail(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, fence))
        if not self._is_shut_down:
            asyncio.get_running_loop().run_in_executor(self._executor, self._mark_diverged, mark)

    def refuse_if_fenced(self) -> None:
        """Raise ApiError(KAFKA_STORAGE_ERROR) if the store's content must not be trusted."""
        if self._fence is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, self._fence)

    async def wait_applied(self, end_offset: Offset, timeout_ms: int) -> None:
        """Wait until everything below `end_offset`, and what was acknowledged here, is applied here.

        Raises ApiError: REQUEST_TIMED_OUT if it is not in time, or never because this node shuts down,
        THROTTLING_QUOTA_EXCEEDED if too many wait, KAFKA_STORAGE_ERROR if this state machine is fenced, or cannot apply
        what was acknowledged.
        """
        self.refuse_if_fenced()
        if end_offset <= self._applied_end_offset:
            if self._acknowledged_end_offset <= self._applied_end_offset:
                return
            if self._unavailable_reason is not None:
                raise ApiError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"this node cannot apply what it has acknowledged: {self._unavailable_reason}; fix that or ask"
                    " another node",
                )
            end_offset, timeout_ms = self._acknowledged_end_offset, ACKNOWLEDGED_WAIT_MS
        if self._is_shut_down:
            raise _shuts_down()
        if len(self._waiters) >= WAITERS_MAX:
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{WAITERS_MAX} reads wait here; try again later")
        try:
            await self._waiters.wait(end_offset, max(0, timeout_ms) / 1000)
        except TimeoutError:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"this node has applied offsets below {self._applied_end_offset}, in {timeout_ms} ms not {end_offset};"
                " wait longer or ask another node",
            ) from None

    # --- the listener -------------------------------------------------------------------------------------------------

    async def handle_commit(self, reader: BatchReader) -> None:
        """Apply the batches, then notify; those that only wait for the commit are notified before a small run."""
        with reader, self._applying():
            for batches in _transactions(tuple(reader)):
                await self._apply(batches)
                if self._fence is None:
                    self._publish(self._store.applied_end_offset)
                    self._publish_deltas()
                    self._report_state_digests()
                    await self._checkpointer.after_writing()

    async def handle_load_snapshot(self, reader: LoadSnapshotReader) -> None:
        """Replace the database by the snapshot, then notify. Reads see the old one until then."""
        with reader, self._applying():
            logger.info("loading a snapshot", end_offset=reader.end_offset, applied=self._applied_end_offset)
            await self._load(reader.snapshot)
            if self._fence is None:
                if self._store.state_digest is not None:
                    self._unreported.append(self._store.state_digest)
                self._publish(self._store.applied_end_offset)
                self._publishers.publish_snapshot(self._applied_end_offset, self._store.reader)
                self._publish_deltas()
                self._report_state_digests()
                logger.info("snapshot loaded", end_offset=reader.end_offset)

    async def _load(self, snapshot: SnapshotReader) -> None:
        # When the old database is closed, on the event loop, SQLite copies what is left of its write-ahead log.
        await self._checkpointer.make_room()
        await self._checkpointer.pause()  # it would open the old database while the new one takes its place
        try:
            await self._load_and_use(snapshot)
        finally:
            self._checkpointer.resume()

    async def _load_and_use(self, snapshot: SnapshotReader) -> None:
        while self._fence is None:
            try:
                await _finished(asyncio.get_running_loop().run_in_executor(self._executor, self._store.load, snapshot))
                await self._store.use_loaded(unless=lambda: self._fence is not None)
                self._unavailable_reason = None
                return
            except (StoreUnavailable, OutOfSpace) as error:
                self._unavailable_reason = str(error)
                logger.error("a snapshot waits to be loaded", reason=str(error))
            await asyncio.sleep(UNAVAILABLE_PAUSE_SECONDS)

    async def handle_leader_change(self, leader_and_epoch: LeaderAndEpoch) -> None:
        """Pass it on."""
        self._report_state_digests()
        for subscriber in self._subscribers:
            subscriber.leader_changed(leader_and_epoch)

    async def begin_shutdown(self) -> None:
        """Finish what a thread is doing and fail the waiters."""
        if self._is_shut_down:
            return
        self._is_shut_down = True
        for subscriber in self._subscribers:
            subscriber.shut_down()
        self._waiters.fail(_shuts_down())
        await self._checkpointer.pause()
        await asyncio.get_running_loop().run_in_executor(None, self._executor.shutdown)

    def _report_state_digests(self) -> None:
        digests = [*self._unreported, *self._store.take_state_digests()]
        self._unreported.clear()
        if self._report is not None:
            for digest in digests:
                self._report(digest)

    def _mark_diverged(self, reason: str) -> None:
        try:
            self._store.mark_diverged(reason)
        except (StoreUnavailable, sqlite3.Error) as error:
            logger.error(
                "the metadata database cannot be marked; move it away before the node is started again",
                reason=str(error),
            )

    def _prepare(self, batches: Sequence[CommittedBatch]) -> PreparedRun | None:
        """What is to be written on the loop; None if the run is too large for that.

        What waits for the end of a transaction counts, for it may end here.
        """
        share = 2 if self._publishers else 1
        size_bytes = self._store.waiting_bytes + sum(batch.size_bytes for batch in batches)
        if size_bytes > APPLY_ON_LOOP_BYTES_MAX // share:
            return None
        return self._store.prepare(batches, removals_max=REMOVALS_ON_LOOP_MAX, rows_max=ROWS_ON_LOOP_MAX // share)

    # Consider a leader whose store has applied everything below 100. A client creates topic a: offsets 100 and 101.
    # They are committed, and this listener gets them. First the controller answers the client: the end offset is 102.
    # Two turns of the loop later the answer is with the network, and only now the rows are written to SQLite.
    #
    # A read that arrives in between must see topic a: the client has the answer and may have sent the read. So
    # `_acknowledged_end_offset` is 102 while 100 is applied, and `wait_applied` makes reads wait for 102 even if they
    # ask for a lower offset. A client that reads from another node waits there for 102, which its answer has as the end
    # offset.
    #
    # Nothing is lost if the process ends in between: the log has both records, and the store applies them after the
    # next start. If the database cannot be written, the answer was right all the same, since topic a is committed.
    # Reads are refused here with KAFKA_STORAGE_ERROR then, rather than answered without topic a, and so are new
    # operations.
    async def _notify_committed(self, end_offset: Offset) -> None:
        """Let acknowledgements and answers to fetches be sent: the transaction would delay them."""
        if self._on_committed is None or not self._on_committed(end_offset):
            return
        self._acknowledged_end_offset = end_offset
        for _ in range(TURNS_FOR_ANSWERS):
            await asyncio.sleep(0)

    async def _apply(self, batches: Sequence[CommittedBatch]) -> None:
        while self._fence is None:
            try:
                prepared = self._prepare(batches)
                if prepared is None:
                    await self._checkpointer.before_writing()
                    await asyncio.get_running_loop().run_in_executor(self._executor, self._store.apply, batches)
                else:
                    await self._notify_committed(prepared.end_offset)
                    await self._checkpointer.before_writing()
                    if self._fence is None:
                        self._store.commit(prepared)
                self._unavailable_reason = None
                return
            except StoreUnavailable as error:
                self._unavailable_reason = str(error)
                logger.error("committed records wait to be applied", reason=str(error))
                if not isinstance(error, WriteAheadLogHeld) and await self._checkpointer.make_room():
                    continue
            except (ReplayError, sqlite3.DatabaseError, ValueError):
                reason = await asyncio.get_running_loop().run_in_executor(self._executor, self._store.find_rot)
                if reason is None:
                    raise
                self._on_rotten(reason)  # not the record is wrong but the rows that it was to change
                return
            await asyncio.sleep(UNAVAILABLE_PAUSE_SECONDS)

    def _publish(self, end_offset: Offset) -> None:
        self._applied_end_offset = end_offset
        for subscriber in self._subscribers:
            subscriber.applied(end_offset)
        self._waiters.reach(end_offset)

    @contextmanager
    def _applying(self) -> Iterator[None]:
        """New publishers start after what is done meanwhile."""
        self._is_applying = True
        try:
            yield
        finally:
            self._is_applying = False

    def _publish_deltas(self) -> None:
        self._publishers.publish_deltas(self._store.take_deltas())
        self._publishers.initialize_new(self._applied_end_offset, self._store.reader)
        self._store.has_publishers = bool(self._publishers)  # one that failed was removed


def _transactions(batches: Sequence[CommittedBatch]) -> Iterator[list[CommittedBatch]]:
    """Those that are applied in one transaction each; none is large, because of the write-ahead log."""
    run: list[CommittedBatch] = []
    size_bytes = 0
    for batch in batches:
        if run and size_bytes + batch.size_bytes > TRANSACTION_BYTES_SOFT_MAX:
            yield run
            run, size_bytes = [], 0
        run.append(batch)
        size_bytes += batch.size_bytes
    if run:
        yield run


def _shuts_down() -> ApiError:
    return ApiError(ErrorCode.REQUEST_TIMED_OUT, "this node shuts down; ask another")


async def _finished(work: asyncio.Future[None]) -> None:
    """Wait until a thread has finished, even if the wait is cancelled: it may be reading what is closed then."""
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise
