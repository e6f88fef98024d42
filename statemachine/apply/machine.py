"""Feeds the store from the committed log and notifies waiters (rules LI-01 to LI-05 on the listener's side).

- - A snapshot replaces the database when the node has none, or the log starts above the database's applied end.
- Batches are applied in runs, each in one transaction (`statemachine.apply.run_writer`). Waiters for the commit alone
  are notified before a small run is written; from then on reads wait for that run, so that a read here sees everything
  that was acknowledged here.
- Waiters, subscribers and publishers are notified after the transaction.
- At certain offsets the node gets the digest of the state, for the quorum to compare. A state that differs from the
  others' is fenced: it is no longer changed or read, and the next start rebuilds it.
- While there is no room on the disk, or another process has locked the database, it waits and tries again; any other
  obstacle to applying a record is reported, and the node must stop (CT-18).

Everything happens in callbacks of a runtime: the node's event loop, or the simulator's virtual time.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import structlog

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.runtime import OnDone, Runtime, Timer
from kraftbase.types import Offset
from raft.core.types import Batch, LeaderAndEpoch, StateDigest
from raft.listener import CommittedBatch
from snapshot.reader import SnapshotReader
from statemachine.apply.applied import Subscriber
from statemachine.apply.obstacle import Obstacle
from statemachine.apply.publishers import MetadataPublisher, MetadataPublishers
from statemachine.apply.run_writer import OnCommitted, OnLoop, RunWriter
from statemachine.apply.snapshot_loader import SnapshotLoader
from statemachine.apply.waiters import OffsetWaiters
from statemachine.store.checkpointer import Checkpointer
from statemachine.store.metadata_tables import StoreUnavailable
from statemachine.store.store_port import StorePort
from statemachine.store.write_ahead_log import TRANSACTION_BYTES_SOFT_MAX

WAITERS_MAX: Final = 10_000

ACKNOWLEDGED_WAIT_MS: Final = 2_000
"""How long a read waits for records that were acknowledged here. Normally they are applied within a few turns, or when
a checkpoint no longer stops the writer, after a second and its syncs at most; only an obstacle takes longer.
"""

logger = structlog.get_logger(__name__)


class MetadataMachine:
    """The listener that keeps a store level with the log (`raft.synchronous_listener.SynchronousListener`).

    Register it at the store's `applied_end_offset`, if any.
    """

    name: Final = "MetadataMachine"
    can_load_snapshots: Final = True

    def __init__(self, store: StorePort, runtime: Runtime, on_loop: OnLoop = OnLoop()) -> None:
        """`runtime` has a worker of the store's own: its disk's thread. It writes runs larger than `on_loop`."""
        self._store = store
        self._runtime = runtime
        self._applied_end_offset = store.applied_end_offset
        self._obstacle = Obstacle()
        self._subscribers: list[Subscriber] = []
        self._publishers = MetadataPublishers()
        self._waiters = OffsetWaiters(runtime)
        self._checkpointer = Checkpointer(store, runtime)
        self._writer = RunWriter(store, runtime, self._checkpointer, self._obstacle, self._corrupt, on_loop)
        self._loader = SnapshotLoader(store, runtime, self._checkpointer, self._obstacle)
        self._runs: deque[Sequence[CommittedBatch]] = deque()
        """The rest of the current batches, yet to be written."""
        self._on_done: OnDone | None = None
        """Ends the current call of the listener; None if there is none."""
        self._report: Callable[[StateDigest], None] | None = None
        self._on_corruption: Callable[[str], None] = self.fence_corrupt
        self._unreported: list[StateDigest] = []

    @property
    def applied_end_offset(self) -> Offset:
        """The offset after the last applied record that all subscribers know of."""
        return self._applied_end_offset

    @property
    def unavailable_reason(self) -> str | None:
        """Why committed records cannot be applied, None while they can: no room on the disk, a lock, or a fence."""
        return self._obstacle.reason

    @property
    def is_fenced(self) -> bool:
        """Whether it has stopped for good: see `fence` and `fence_corrupt`."""
        return self._obstacle.fence is not None

    @property
    def has_open_transaction(self) -> bool:
        """Whether committed batches wait for the end of their metadata transaction."""
        return self._store.has_open_transaction

    def subscribe(self, subscriber: Subscriber) -> None:
        """Notify `subscriber` from now on."""
        self._subscribers.append(subscriber)

    def set_commit_callback(self, on_committed: OnCommitted) -> None:
        """Call `on_committed` with the end offset of each run that is written on the loop next.

        It returns whether it acknowledged anything.
        """
        self._writer.on_committed = on_committed

    def install_publisher(self, publisher: MetadataPublisher) -> None:
        """Show `publisher` the state, now or after the run that is being applied, and then every change.

        Raises ValueError if it is installed already.
        """
        self._publishers.add(publisher)
        self._store.has_publishers = True
        if self._on_done is None:
            self._publishers.initialize_new(self._applied_end_offset, self._store.reader)

    def remove_publisher(self, publisher: MetadataPublisher) -> None:
        """Stop notifying `publisher`; nothing happens if it is not installed."""
        self._publishers.remove(publisher)
        self._store.has_publishers = bool(self._publishers)

    def set_state_digest_callback(self, report: Callable[[StateDigest], None]) -> None:
        """Call `report` with the store's last digest, once the node runs, and then with each new digest."""
        self._report = report
        if self._store.state_digest is not None:
            self._unreported.append(self._store.state_digest)

    # --- the fence ----------------------------------------------------------------------------------------------------

    def fence(self, expected: StateDigest, own: StateDigest) -> None:
        """Stop for good: the store has the digest `own`, the quorum has `expected` (KAFKA-14275).

        The state is no longer changed, reads and operations are refused, and the next start sets the database aside.
        """
        if self._obstacle.fence is not None:
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

    def fence_corrupt(self, reason: str) -> None:
        """Stop for good: the store's rows are not those that were applied, for `reason`, as a scrub has detected.

        Like `fence`, but nothing was derived from the wrong rows, so the snapshots stay.
        """
        if self._obstacle.fence is None:
            self._fence_for(
                f"this node's metadata is corrupted ({reason}); its database is rebuilt from a snapshot and the log as"
                " soon as no other node rebuilds its own",
                reason,
            )

    def set_corruption_callback(self, on_corruption: Callable[[str], None]) -> None:
        """Let `on_corruption` call `fence_corrupt`, and notify others, when corruption prevents applying a record."""
        self._on_corruption = on_corruption

    def refuse_if_fenced(self) -> None:
        """Raise ApiError(KAFKA_STORAGE_ERROR) if the store's content must not be trusted."""
        self._obstacle.refuse_if_fenced()

    def _corrupt(self, reason: str) -> None:
        self._on_corruption(reason)

    def _fence_for(self, fence: str, mark: str) -> None:
        self._obstacle.fence = fence
        logger.critical(fence)
        self._waiters.fail(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, fence))
        if not self._obstacle.is_shut_down:
            self._runtime.run_on_disk(lambda: self._store.mark_diverged(mark), self._marked)

    def _marked(self, error: BaseException | None) -> None:
        match error:
            case None:
                pass
            case StoreUnavailable() | sqlite3.Error():
                logger.error(
                    "the metadata database cannot be marked; move it away before the node is started again",
                    reason=str(error),
                )
            case _:
                self._end(error)

    # --- reads --------------------------------------------------------------------------------------------------------

    def wait_applied(self, end_offset: Offset, timeout_ms: float, on_done: OnDone) -> Timer | None:
        """Call back when everything below `end_offset`, and everything acknowledged here, is applied here: maybe at
        once.

        Cancel the returned timer to stop waiting. `on_done` is called with an ApiError: REQUEST_TIMED_OUT if the offset
        is not reached in time, or this node shuts down, THROTTLING_QUOTA_EXCEEDED if too many wait, KAFKA_STORAGE_ERROR
        if this state machine is fenced, or cannot apply acknowledged records.
        """
        if self._obstacle.fence is not None:
            on_done(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, self._obstacle.fence))
            return None
        if end_offset <= self._applied_end_offset:
            acknowledged = self._writer.acknowledged_end_offset
            if acknowledged <= self._applied_end_offset:
                on_done(None)
                return None
            if self._obstacle.passing_reason is not None:
                message = (
                    f"this node cannot apply what it has acknowledged: {self._obstacle.passing_reason}; fix that or"
                    " ask another node"
                )
                on_done(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, message))
                return None
            end_offset, timeout_ms = acknowledged, ACKNOWLEDGED_WAIT_MS
        if self._obstacle.is_shut_down:
            on_done(_shuts_down())
            return None
        if len(self._waiters) >= WAITERS_MAX:
            message = f"{WAITERS_MAX} reads are waiting; try again later"
            on_done(ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message))
            return None
        return self._waiters.wait(end_offset, timeout_ms, partial(self._reached, end_offset, timeout_ms, on_done))

    def _reached(self, end_offset: Offset, timeout_ms: float, on_done: OnDone, error: BaseException | None) -> None:
        if isinstance(error, TimeoutError):
            error = ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"after {timeout_ms:g} ms the applied end offset of this node is {self._applied_end_offset}, below"
                f" {end_offset}; wait longer or ask another node",
            )
        on_done(error)

    # --- the listener -------------------------------------------------------------------------------------------------

    def handle_commit(self, batches: tuple[Batch, ...], on_done: OnDone) -> None:
        """Apply the batches, then notify; waiters for the commit alone are notified before a small run."""
        self._on_done = on_done
        self._runs.extend(_transactions([CommittedBatch(batch) for batch in batches]))
        self._next_run(None)

    def _next_run(self, error: BaseException | None) -> None:
        if error is not None:
            self._end(error)
        elif self._runs:
            self._writer.write(self._runs.popleft(), self._run_written)
        else:
            self._end(None)

    def _run_written(self, error: BaseException | None) -> None:
        if error is not None or self._obstacle.fence is not None:
            self._next_run(error)
            return
        self._guarded(self._tell_of_run)

    def _tell_of_run(self) -> None:
        self._publish(self._store.applied_end_offset)
        self._publish_deltas()
        self._report_state_digests()
        self._checkpointer.after_writing(self._next_run)

    def handle_load_snapshot(self, snapshot: SnapshotReader, on_done: OnDone) -> None:
        """Replace the database by the snapshot, then notify. Reads see the old database until then."""
        self._on_done = on_done
        end_offset = snapshot.snapshot_id.offset
        logger.info("loading a snapshot", end_offset=end_offset, applied=self._applied_end_offset)
        self._loader.load(snapshot, self._snapshot_loaded)

    def _snapshot_loaded(self, error: BaseException | None) -> None:
        if error is not None or self._obstacle.fence is not None:
            self._end(error)
            return
        self._guarded(self._tell_of_snapshot)

    def _tell_of_snapshot(self) -> None:
        if self._store.state_digest is not None:
            self._unreported.append(self._store.state_digest)
        self._publish(self._store.applied_end_offset)
        self._publishers.publish_snapshot(self._applied_end_offset, self._store.reader)
        self._publish_deltas()
        self._report_state_digests()
        logger.info("snapshot loaded", end_offset=self._applied_end_offset)
        self._end(None)

    def handle_leader_change(self, leader_and_epoch: LeaderAndEpoch, on_done: OnDone) -> None:
        """Pass it on."""
        self._report_state_digests()
        for subscriber in self._subscribers:
            subscriber.leader_changed(leader_and_epoch)
        on_done(None)

    def begin_shutdown(self, on_done: OnDone) -> None:
        """Fail the waiters, and finish the worker's current step."""
        if self._obstacle.is_shut_down:
            on_done(None)
            return
        self._obstacle.is_shut_down = True
        for subscriber in self._subscribers:
            subscriber.shut_down()
        self._waiters.fail(_shuts_down())
        self._checkpointer.pause(lambda: self._loader.stop(lambda: self._runtime.run_on_disk(lambda: None, on_done)))

    def abandon(self) -> None:
        """As `begin_shutdown`; the worker's current step ends later."""
        self.begin_shutdown(lambda error: None)

    def _guarded(self, step: Callable[[], None]) -> None:
        """Run a step that calls other code; an exception ends the node, like a record that cannot be applied."""
        try:
            step()
        except BaseException as error:
            self._end(error)

    def _end(self, error: BaseException | None) -> None:
        """The current call of the listener has ended."""
        on_done, self._on_done = self._on_done, None
        self._runs.clear()
        if on_done is not None:
            on_done(error)

    # --- notifications ------------------------------------------------------------------------------------------------

    def _report_state_digests(self) -> None:
        digests = [*self._unreported, *self._store.take_state_digests()]
        self._unreported.clear()
        if self._report is not None:
            for digest in digests:
                self._report(digest)

    def _publish(self, end_offset: Offset) -> None:
        self._applied_end_offset = end_offset
        for subscriber in self._subscribers:
            subscriber.applied(end_offset)
        self._waiters.reach(end_offset)

    def _publish_deltas(self) -> None:
        self._publishers.publish_deltas(self._store.take_deltas())
        self._publishers.initialize_new(self._applied_end_offset, self._store.reader)
        self._store.has_publishers = bool(self._publishers)  # a publisher that failed was removed


def _transactions(batches: Sequence[CommittedBatch]) -> Iterator[list[CommittedBatch]]:
    """Divide the batches into runs, one transaction each; none is large, because of the write-ahead log."""
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
