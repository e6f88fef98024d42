"""Which committed batches take effect together: metadata transactions (KIP-868; CT-16).

A transaction begins with the first record of a batch and ends, or is aborted, with the last record of that batch or of
a later one. Everything between takes effect at once with the end, and not at all if it is aborted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from kraftpb.v1.metadata_pb2 import MetadataBatch, MetadataRecord
from raft.listener import CommittedBatch
from statemachine.replay import ReplayError


class CommittedRun(NamedTuple):
    """A committed batch and the records of it that take effect."""

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
    for batch in batches:
        records = [] if batch.is_control else _records(batch)
        kinds = [record.WhichOneof("record") for record in records]
        _check_markers(batch, kinds, is_open=bool(waiting))
        if not waiting and (not kinds or kinds[0] != "begin_transaction"):
            runs.append(CommittedRun(batch, records))
            continue
        waiting.append(CommittedRun(batch, records))
        last = kinds[-1] if kinds else None
        if last == "end_transaction":
            runs += waiting
            waiting = []
        elif last == "abort_transaction":
            runs += [run._replace(records=()) for run in waiting]
            waiting = []
    return AppliedTogether(runs, tuple(run.batch for run in waiting))


def _check_markers(batch: CommittedBatch, kinds: Sequence[str | None], *, is_open: bool) -> None:
    """Nested transactions, ends without a beginning and markers in the middle of a batch are illegal."""
    for index, kind in enumerate(kinds):
        begins = kind == "begin_transaction"
        ends = kind in ("end_transaction", "abort_transaction")
        if (begins and (is_open or index > 0)) or (ends and (not is_open or index + 1 < len(kinds))):
            raise ReplayError(
                f"the committed record at offset {batch.base_offset + index} is a {kind} where none may be"
            )
        is_open |= begins


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
