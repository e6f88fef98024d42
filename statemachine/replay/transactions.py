"""Which committed batches take effect together: metadata transactions (KIP-868; CT-16).

A transaction begins with one record and ends, or is aborted, with a later one of the same batch or of another. The log
joins appends into batches as they arrive, so records of other appends may precede and follow in the same batch. All
records between take effect at once with the end, and not at all if the transaction is aborted. Whole batches wait for
its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from kraftbase.types import Offset
from kraftpb.v1.metadata_pb2 import MetadataBatch, MetadataRecord, NoOpRecord
from raft.listener import CommittedBatch
from statemachine.replay.replay import ReplayError

MARKERS: Final = frozenset(("begin_transaction", "end_transaction", "abort_transaction"))


class CommittedRun(NamedTuple):
    """A committed batch and its records, with NoOps in place of records without effect."""

    batch: CommittedBatch
    records: Sequence[MetadataRecord]


class OpenTransaction(NamedTuple):
    """Decoded batches that wait for the end of a transaction: each is decoded once, whenever the others arrive."""

    earlier: OpenTransaction | None
    """The batches that waited before the last one arrived."""
    latest: tuple[CommittedRun, ...]
    """Whole batches, at least one. The first of all is the one in which the transaction begins; where it begins in the
    batch that ends another transaction, the batches that waited for that one still wait.
    """
    begun: Offset
    """The offset of the record that begins it."""
    size_bytes: int
    """Of all the batches."""

    @property
    def last_batch(self) -> CommittedBatch:
        """The batch after which the next one must follow."""
        return self.latest[-1].batch

    def runs(self) -> list[CommittedRun]:
        """All that waits, in order."""
        parts: list[tuple[CommittedRun, ...]] = []
        part: OpenTransaction | None = self
        while part is not None:
            parts.append(part.latest)
            part = part.earlier
        return [run for latest in reversed(parts) for run in latest]


class AppliedTogether(NamedTuple):
    """Batches that may be applied, and those that wait for the end of their transaction, if there are any."""

    runs: list[CommittedRun]
    open_transaction: OpenTransaction | None


# Consider a log in which offsets 0 to 9 are applied, and these batches:
#
#     10 to 12   topic a, begin, topic b
#     13 to 14   topic c, end
#
# After the first batch nothing is applied, not even topic a: a batch is applied whole or not at all, so that the
# applied end offset, 10, is where some batch begins. With the second batch a, b and c take effect at once. Were offset
# 14 an abort, b and c would be replaced by records that do nothing, and a would stay.
#
# Now the controller is lost when only the first batch is committed. Every node stays at 10, a restarted node continues
# from 10, and snapshots end at 10. Only the next controller ends the transaction: the first record that it appends,
# after its LeaderChange, is the abort (`activation_records`). If it appended anything else first, that would be part of
# the transaction and be undone with it.
def applied_together(batches: Iterable[CommittedBatch], before: OpenTransaction | None = None) -> AppliedTogether:
    """Divide `batches`, which follow the ones waiting in `before`, into applied and waiting ones. Raises ReplayError.

    Costs a look-up for each of their records, not for those that wait. `before` stays as it is: the same batches may be
    given again.
    """
    runs: list[CommittedRun] = []
    waiting: list[CommittedRun] = []
    begun = None if before is None else before.begun
    for batch in batches:
        waiting.append(CommittedRun(batch, [] if batch.is_control else _records(batch)))
        for offset, record in enumerate(waiting[-1].records, batch.base_offset):
            kind = record.WhichOneof("record")
            if kind not in MARKERS:
                continue
            if (begun is None) != (kind == "begin_transaction"):
                raise ReplayError(f"the committed record at offset {offset} is a {kind} where none is allowed")
            if begun is not None and before is not None:
                waiting = [*before.runs(), *waiting]
                before = None
            if begun is not None and kind == "abort_transaction":
                _forget(waiting, begun, Offset(offset))
            begun = Offset(offset) if begun is None else None
        if begun is None:
            runs += waiting
            waiting = []
    if begun is None or not waiting:
        return AppliedTogether(runs, before)
    size_bytes = (0 if before is None else before.size_bytes) + sum(run.batch.size_bytes for run in waiting)
    return AppliedTogether(runs, OpenTransaction(before, tuple(waiting), begun, size_bytes))


def _forget(waiting: list[CommittedRun], begun: Offset, end: Offset) -> None:
    """Cancel the effect of the records from the one at `begun` to the one before `end`, which is in the last run."""
    for number in range(len(waiting) - 1, -1, -1):
        batch, records = waiting[number]
        if batch.end_offset <= begun:
            return
        start, stop = max(0, begun - batch.base_offset), min(len(records), end - batch.base_offset)
        no_ops = [MetadataRecord(no_op=NoOpRecord())] * (stop - start)  # the others keep their offsets
        waiting[number] = CommittedRun(batch, [*records[:start], *no_ops, *records[stop:]])


def _records(batch: CommittedBatch) -> Sequence[MetadataRecord]:
    try:
        body = MetadataBatch.FromString(batch.body)
        body.DiscardUnknownFields()  # data that rows cannot keep must not be in digests either
        records = body.records
    except DecodeError as error:
        raise ReplayError(f"the committed batch at offset {batch.base_offset} is no MetadataBatch: {error}") from None
    if len(records) != batch.end_offset - batch.base_offset:
        raise ReplayError(
            f"the committed batch at offset {batch.base_offset} holds {len(records)} records,"
            f" its header says {batch.end_offset - batch.base_offset}"
        )
    return records
