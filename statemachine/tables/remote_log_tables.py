"""The tables of tiered storage: remote segments, the epochs in them, and partitions that are being deleted."""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from kraftbase.ids import id_to_bytes, id_to_text
from kraftpb.v1.metadata_pb2 import (
    RemoteLogEpochEndRecord,
    RemoteLogSegmentMetadataRecord,
    RemotePartitionDeleteMetadataRecord,
    SegmentLeaderEpoch,
)
from statemachine.tables.table import Row, Table, key_to_sql


def _segment_to_row(record: RemoteLogSegmentMetadataRecord) -> Row:
    epochs = [
        [entry.leader_epoch, entry.start_offset, int(entry.unreferenced)] for entry in record.segment_leader_epochs
    ]
    return (
        id_to_text(record.topic_id),
        record.partition_id,
        id_to_text(record.segment_id),
        record.start_offset,
        record.end_offset,
        record.state,
        record.broker_id,
        record.max_timestamp_ms,
        record.event_timestamp_ms,
        record.segment_size_bytes,
        json.dumps(epochs),
        record.custom_metadata if record.HasField("custom_metadata") else None,
        int(record.txn_index_empty),
    )


def _segment_from_row(row: Row) -> RemoteLogSegmentMetadataRecord:
    return RemoteLogSegmentMetadataRecord(
        topic_id=id_to_bytes(row[0]),
        partition_id=row[1],
        segment_id=id_to_bytes(row[2]),
        start_offset=row[3],
        end_offset=row[4],
        state=row[5],
        broker_id=row[6],
        max_timestamp_ms=row[7],
        event_timestamp_ms=row[8],
        segment_size_bytes=row[9],
        segment_leader_epochs=[
            SegmentLeaderEpoch(leader_epoch=epoch, start_offset=start, unreferenced=bool(unreferenced))
            for epoch, start, unreferenced in json.loads(row[10])
        ],
        custom_metadata=row[11],
        txn_index_empty=bool(row[12]),
    )


REMOTE_SEGMENTS: Final = Table[RemoteLogSegmentMetadataRecord](
    name="remote_segments",
    key=("topic_id", "partition_id", "segment_id"),
    columns=(
        "topic_id",
        "partition_id",
        "segment_id",
        "start_offset",
        "end_offset",
        "state",
        "broker_id",
        "max_timestamp_ms",
        "event_timestamp_ms",
        "size_bytes",
        "leader_epochs",
        "custom_metadata",
        "txn_index_empty",
    ),
    kind="remote_log_segment_metadata",
    key_of=lambda record: (record.topic_id, record.partition_id, record.segment_id),
    to_row=_segment_to_row,
    from_row=_segment_from_row,
)


class SegmentInEpoch(NamedTuple):
    """The part of a remote segment that belongs to one leader epoch."""

    topic_id: bytes
    partition_id: int
    leader_epoch: int
    start_offset: int
    """Where the epoch begins in the segment."""
    segment_id: bytes
    end_offset: int
    """The last offset of the epoch in the segment: inclusive."""
    is_referenced: bool
    """Whether lookups find it (TS-60)."""


REMOTE_SEGMENT_EPOCHS: Final = Table[SegmentInEpoch](
    name="remote_segment_epochs",
    key=("topic_id", "partition_id", "leader_epoch", "start_offset", "segment_id"),
    columns=(
        "topic_id",
        "partition_id",
        "leader_epoch",
        "start_offset",
        "segment_id",
        "end_offset",
        "is_referenced",
    ),
    key_of=lambda entry: tuple(entry)[:5],
    to_row=lambda entry: key_to_sql((*entry[:-1], int(entry.is_referenced))),
    from_row=lambda row: SegmentInEpoch(
        id_to_bytes(row[0]), row[1], row[2], row[3], id_to_bytes(row[4]), row[5], bool(row[6])
    ),
)
"""Derived from the remote segments."""

REMOTE_EPOCH_ENDS: Final = Table[RemoteLogEpochEndRecord](
    name="remote_epoch_ends",
    key=("topic_id", "partition_id", "leader_epoch"),
    columns=("topic_id", "partition_id", "leader_epoch", "highest_offset"),
    kind="remote_log_epoch_end",
    key_of=lambda record: (record.topic_id, record.partition_id, record.leader_epoch),
    to_row=lambda record: (
        id_to_text(record.topic_id),
        record.partition_id,
        record.leader_epoch,
        record.highest_offset,
    ),
    from_row=lambda row: RemoteLogEpochEndRecord(
        topic_id=id_to_bytes(row[0]), partition_id=row[1], leader_epoch=row[2], highest_offset=row[3]
    ),
)

REMOTE_PARTITION_DELETES: Final = Table[RemotePartitionDeleteMetadataRecord](
    name="remote_partition_deletes",
    key=("topic_id", "partition_id"),
    columns=("topic_id", "partition_id", "state", "broker_id", "event_timestamp_ms"),
    kind="remote_partition_delete_metadata",
    key_of=lambda record: (record.topic_id, record.partition_id),
    to_row=lambda record: (
        id_to_text(record.topic_id),
        record.partition_id,
        record.state,
        record.broker_id,
        record.event_timestamp_ms,
    ),
    from_row=lambda row: RemotePartitionDeleteMetadataRecord(
        topic_id=id_to_bytes(row[0]), partition_id=row[1], state=row[2], broker_id=row[3], event_timestamp_ms=row[4]
    ),
)
