"""What a user's state machine implements to be fed the committed log (rules LI-01 to LI-08).

The contract, for a listener registered with a node or with `raft.observe.observe`:

- `handle_commit` gets every committed batch from the start offset on: in order, contiguous, each once, never one that
  is not committed. Records appended together arrive in one batch (LI-02); control batches arrive with no records, so
  that offsets stay contiguous (LI-03).
- The listener must close the reader (`with reader:`). The next one comes only then (LI-04).
- `handle_leader_change` tells of leaders; epochs never go back. The leader's own listener is told that it leads only
  after it has closed a reader past the start of its epoch, so it has seen everything before (LI-05). A leader that
  resigns is told that nobody leads its epoch any more.
- Several listeners are independent: each has its own task, a slow one holds up nobody (LI-07).
- An exception out of a listener is the application's bug. It ends that listener; what else it ends is up to the fault
  handler that the node was given (LI-08).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType

from raft.core.types import Batch, Epoch, LeaderAndEpoch, Offset
from raft.storage.batch import batch_body, batch_timestamp, records


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
        """Whether the batch holds the protocol's own records, which listeners see as none."""
        return self._batch.is_control

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
    """Committed batches for one `handle_commit`. Iterate it, then close it; `with reader:` does both ends."""

    __slots__ = ("_batches", "_on_close", "closed")

    def __init__(self, batches: tuple[Batch, ...], on_close: Callable[[], None]) -> None:
        self._batches = batches
        self._on_close = on_close
        self.closed = False

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
        """Say that everything in it was taken; closing twice changes nothing."""
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


class Listener:
    """What is told of commits and leaders. Subclass it and override what you need."""

    async def handle_commit(self, reader: BatchReader) -> None:
        """Take the committed batches in `reader` and close it."""
        reader.close()

    async def handle_leader_change(self, leader_and_epoch: LeaderAndEpoch) -> None:
        """Take note of who leads."""

    async def begin_shutdown(self) -> None:
        """Get ready: nothing more will come."""
