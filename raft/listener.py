"""The interface that a user's state machine implements to receive the committed log (rules LI-01 to LI-08).

The contract, for a listener registered with a node, and for one outside it that `raft.observe.observe` feeds:

- `handle_load_snapshot` gets a snapshot that replaces everything before it: when the listener is new and a snapshot
  exists, or when its next offset is below the log's start. A listener that keeps up never sees it (SN-60 to SN-63). The
  next batch begins where the snapshot ends. The listener must close this reader, too. A listener that does not override
  it begins with the first record that the log still has: earlier records are in snapshots only, so it must not keep a
  state. It fails with OFFSET_OUT_OF_RANGE if its next offset was deleted, or if it falls behind the start.
- `handle_commit` gets every committed batch from the start offset on: in order, contiguous, each once, never one that
  is not committed. Records appended together arrive in one batch (LI-02); control batches arrive with no records, so
  that offsets stay contiguous (LI-03).
- The listener must close the reader (`with reader:`). The next reader comes only then (LI-04). Until then the start of
  its node's log does not move past unread records, for at most `metadata.start.offset.lag.time.max.ms`. A named
  listener outside a node holds the leader's log start in the same way, while its lease lasts (`observe`). The log start
  does not wait for a listener without a name, which gets a snapshot if it falls behind.
- `handle_leader_change` reports leaders; epochs never decrease. The leader's own listener is notified that it leads
  only after it has closed a reader past the start of its epoch, so it has seen everything before (LI-05). The listener
  of a leader that resigns is notified that its epoch no longer has a leader.
- Listeners are independent: each has its own task, and a slow one does not delay the others (LI-07).
- An exception that a listener raises is the application's bug. It ends that listener and, by default, the node's
  process, with an error that names the listener (LI-08). To continue without that listener, a program passes
  `on_listener_fault=raft.node.log_listener_fault`, or its own handler, to `raft.host.hosted_node` or
  `kraftlog.process.server.serve`; `kraftlog node status` and `kraftlog quorum describe --replication` then show that it
  failed. `raft.observe.observe` raises the exception unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType

from kraftbase.types import Epoch, Offset
from raft.core.types import Batch, LeaderAndEpoch, OffsetAndEpoch
from raft.storage.batch import batch_body, batch_timestamp, records
from snapshot.reader import SnapshotReader


class CommittedBatch:
    """One committed batch as a listener sees it. `records` decodes on first use."""

    __slots__ = ("_batch", "_records")

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._records: list[bytes] | None = None

    @property
    def base_offset(self) -> Offset:
        """The offset of the first record."""
        return self._batch.base_offset

    @property
    def last_offset(self) -> Offset:
        """The offset of the last record (inclusive)."""
        return self._batch.last_offset

    @property
    def end_offset(self) -> Offset:
        """The offset after the last record."""
        return self._batch.end_offset

    @property
    def epoch(self) -> Epoch:
        """The epoch of the leader that wrote the batch."""
        return self._batch.epoch

    @property
    def timestamp_ms(self) -> int:
        """When the leader appended it, milliseconds since 1970 by the leader's clock."""
        return batch_timestamp(self._batch)

    @property
    def size_bytes(self) -> int:
        """The size of the encoded batch."""
        return len(self._batch.data)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds the protocol's own records, which listeners do not see."""
        return self._batch.is_control

    @property
    def encoded(self) -> Batch:
        """The batch as it is in the log."""
        return self._batch

    @property
    def data(self) -> bytes:
        """The encoded batch, header and body, the same bytes on every replica."""
        return self._batch.data

    @property
    def body(self) -> bytes:
        """The encoded body: a `kraftpb.v1.BatchBody`."""
        return bytes(batch_body(self._batch))

    @property
    def records(self) -> list[bytes]:
        """The records, in order; empty for a control batch."""
        if self._records is None:
            self._records = [] if self._batch.is_control else records(self._batch)
        return self._records


class BatchReader:
    """Committed batches for one `handle_commit`. Iterate it, then close it; `with reader:` closes it."""

    __slots__ = ("_batches", "_on_close", "closed")

    def __init__(self, batches: tuple[Batch, ...], on_close: Callable[[], None]) -> None:
        self._batches = batches
        self._on_close = on_close
        self.closed = False

    @property
    def batches(self) -> tuple[Batch, ...]:
        """The batches as they are in the log."""
        return self._batches

    @property
    def base_offset(self) -> Offset:
        """The offset of the first record."""
        return self._batches[0].base_offset

    @property
    def end_offset(self) -> Offset:
        """The offset after the last record: where the next reader starts."""
        return self._batches[-1].end_offset

    def __iter__(self) -> Iterator[CommittedBatch]:
        return map(CommittedBatch, self._batches)

    def close(self) -> None:
        """Report that all batches were processed; closing twice changes nothing."""
        if not self.closed:
            self.closed = True
            self._on_close()

    def __enter__(self) -> BatchReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()


class LoadSnapshotReader:
    """A whole snapshot for one `handle_load_snapshot`. Read it, then close it; `with reader:` closes it."""

    __slots__ = ("_on_close", "closed", "snapshot")

    def __init__(self, snapshot: SnapshotReader, on_close: Callable[[], None]) -> None:
        self.snapshot = snapshot
        """The open file; another thread may read it."""
        self._on_close = on_close
        self.closed = False

    @property
    def snapshot_id(self) -> OffsetAndEpoch:
        """The snapshot's id; its offset is where the next commit starts."""
        return self.snapshot.snapshot_id

    @property
    def end_offset(self) -> Offset:
        """The offset after the last record that the snapshot covers."""
        return self.snapshot.snapshot_id.offset

    @property
    def last_contained_log_timestamp_ms(self) -> int:
        """When the leader appended the last batch that the snapshot covers, milliseconds since 1970 (SN-06)."""
        return self.snapshot.header.last_contained_log_timestamp_ms

    def __iter__(self) -> Iterator[CommittedBatch]:
        """The state machine's records, in batches whose offsets count from the start of the snapshot."""
        return map(CommittedBatch, self.snapshot.batches())

    def close(self) -> None:
        """Report that the whole snapshot was read; closing twice changes nothing."""
        if not self.closed:
            self.closed = True
            self.snapshot.close()
            self._on_close()

    def __enter__(self) -> LoadSnapshotReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()


class Listener:
    """Receives commits, snapshots and leader changes. Subclass it and override what you need."""

    @property
    def name(self) -> str:
        """The name that operators see, such as when it holds the log's start back."""
        return type(self).__name__

    async def handle_load_snapshot(self, reader: LoadSnapshotReader) -> None:
        """Replace everything read so far by the snapshot in `reader`, and close it."""
        raise NotImplementedError(f"{self.name} cannot load a snapshot; override handle_load_snapshot")

    async def handle_commit(self, reader: BatchReader) -> None:
        """Process the committed batches in `reader` and close it."""
        reader.close()

    async def handle_leader_change(self, leader_and_epoch: LeaderAndEpoch) -> None:
        """Handle a new leader."""

    async def begin_shutdown(self) -> None:
        """Prepare to stop: no further calls follow."""


def can_load_snapshots(listener: Listener) -> bool:
    """Whether it overrides `handle_load_snapshot`."""
    return type(listener).handle_load_snapshot is not Listener.handle_load_snapshot
