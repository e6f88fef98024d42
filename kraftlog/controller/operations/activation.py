"""The records that a controller appends when it becomes active (CT-14)."""

from __future__ import annotations

from kraftpb.v1.metadata_pb2 import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
)
from statemachine.metadata.state import MetadataState
from statemachine.words.features import BOOTSTRAP

BOOTSTRAP_TRANSACTION = "Bootstrap records"


def activation_records(state: MetadataState, *, has_open_transaction: bool) -> list[list[MetadataRecord]]:
    """Batches of records, each to be appended as one.

    A transaction that the previous controller left open is aborted. A cluster without any feature level is new, or its
    bootstrap was aborted: it gets the first ones, in a transaction.
    """
    batches = []
    if has_open_transaction:
        reason = "the controller that began it is no longer active"
        batches.append([MetadataRecord(abort_transaction=AbortTransactionRecord(reason=reason))])
    if not state.features() and not state.brokers() and next(state.topics(), None) is None:
        levels = [
            MetadataRecord(feature_level=FeatureLevelRecord(name=name, level=level))
            for name, level in BOOTSTRAP.items()
        ]
        begin = MetadataRecord(begin_transaction=BeginTransactionRecord(name=BOOTSTRAP_TRANSACTION))
        batches.append([begin, *levels, MetadataRecord(end_transaction=EndTransactionRecord())])
    return batches
