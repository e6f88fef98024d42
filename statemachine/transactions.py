"""Which committed batches take effect together: metadata transactions (KIP-868; CT-16).

A transaction begins with one record and ends, or is aborted, with a later one of the same batch or of another; the log
joins appends into batches as they come, so others' records may stand before and behind in the same batch. Everything
between takes effect at once with the end, and not at all if it is aborted. Whole batches wait for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from kraftpb.v1.metadata_pb2 import MetadataBatch, MetadataRecord, NoOpRecord
from raft.listener import CommittedBatch
from statemachine.replay import ReplayError

MARKERS: Final = frozenset(("begin_transaction", "end_transaction", "abort_transaction"))


class CommittedRun(NamedTuple):
    """A committed batch and its records, with NoOps in the place of those that take no effect."""

    batch: CommittedBatch
    records: Sequence[MetadataRecord]


class AppliedTogether(NamedTuple):
    """Batches that may be applied, and those that wait for the end of their transaction."""

    runs: list[CommittedRun]
    open_transaction: tuple[CommittedBatch, ...]


def applied_together(batches: Iterable[CommittedBatch]) -> AppliedTogether:
    """Sort out `batches`, of which the first is in no transaction or begins one. Raises ReplayError."""
    runs: list[CommittedRun] = []
    waiting: list[CommittedRun] = []
    is_open, begun = False, (0, 0)
    for batch in batches:
        waiting.append(CommittedRun(batch, [] if batch.is_control else _records(batch)))
        for index, kind in enumerate([record.WhichOneof("record") for record in waiting[-1].records]):
            if kind not in MARKERS:
                continue
            if is_open == (kind == "begin_transaction"):
                raise ReplayError(
                    f"the committed record at offset {batch.base_offset + index} is a {kind} where none may be"
                )
            is_open = not is_open
            if is_open:
                begun = (len(waiting) - 1, index)
            elif kind == "abort_transaction":
                _forget(waiting, begun, index)
        if not is_open:
            runs += waiting
            waiting = []
    return AppliedTogether(runs, tuple(run.batch for run in waiting))


def _forget(waiting: list[CommittedRun], begun: tuple[int, int], end: int) -> None:
    """Let nothing take effect from the record `begun`, by run and index, to the one at `end` in the last run."""
    first_run, first = begun
    for number in range(first_run, len(waiting)):
        records = list(waiting[number].records)
        start = first if number == first_run else 0
        stop = end if number == len(waiting) - 1 else len(records)
        records[start:stop] = [MetadataRecord(no_op=NoOpRecord())] * (stop - start)  # the others keep their offsets
        waiting[number] = waiting[number]._replace(records=records)


def _records(batch: CommittedBatch) -> Sequence[MetadataRecord]:
    try:
        body = MetadataBatch.FromString(batch.body)
        body.DiscardUnknownFields()  # what rows cannot keep must not be in digests either
        records = body.records
    except DecodeError as error:
        raise ReplayError(f"the committed batch at offset {batch.base_offset} is no MetadataBatch: {error}") from None
    if len(records) != batch.end_offset - batch.base_offset:
        raise ReplayError(
            f"the committed batch at offset {batch.base_offset} holds {len(records)} records,"
            f" its header says {batch.end_offset - batch.base_offset}"
        )
    return records
