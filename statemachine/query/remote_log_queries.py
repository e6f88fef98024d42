"""Lookups of remote segments in a metadata database: the reading half of Kafka's RemoteLogMetadataManager (TS-56).

Offsets are inclusive. Topic ids must have 16 bytes, else ValueError is raised. No lookup in a leader epoch finds a
segment that another has replaced in that epoch, but lists contain it (TS-60, TS-63).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from typing import Final

from kraftbase.ids import id_to_bytes, id_to_text
from kraftpb.v1.metadata_pb2 import RemoteLogSegmentMetadataRecord
from statemachine.tables.remote_log_tables import REMOTE_EPOCH_ENDS, REMOTE_SEGMENTS
from statemachine.words.remote_log_states import SegmentState

_OF_PARTITION: Final = "topic_id = ? AND partition_id = ?"

_OF_EPOCH: Final = (
    f"{_OF_PARTITION} AND segment_id IN"  # noqa: S608 (texts of our own, as below)
    f" (SELECT segment_id FROM remote_segment_epochs WHERE {_OF_PARTITION} AND leader_epoch = ?)"
)


def find_segment(
    connection: sqlite3.Connection, topic_id: bytes, partition_id: int, leader_epoch: int, offset: int
) -> RemoteLogSegmentMetadataRecord | None:
    """The finished copy that has the record at `offset`, written in `leader_epoch`; None if none is found.

    Only the copy that starts last at or below `offset` in that epoch is considered: if the epoch ends in that copy
    before `offset`, nothing is found, even if a longer copy that starts earlier has the offset (TS-61).
    """
    found = connection.execute(
        f"SELECT segment_id, end_offset FROM remote_segment_epochs WHERE {_OF_PARTITION} AND leader_epoch = ?"  # noqa: S608
        " AND start_offset <= ? AND is_referenced ORDER BY start_offset DESC LIMIT 1",
        (id_to_text(topic_id), partition_id, leader_epoch, offset),
    ).fetchone()
    if found is None or offset > found[1]:
        return None
    return REMOTE_SEGMENTS.get(connection, (topic_id, partition_id, id_to_bytes(found[0])))


def highest_offset(connection: sqlite3.Connection, topic_id: bytes, partition_id: int, leader_epoch: int) -> int | None:
    """The highest offset of that leader epoch that was ever copied; None if none was. Deletions do not lower it."""
    found = REMOTE_EPOCH_ENDS.get(connection, (topic_id, partition_id, leader_epoch))
    return None if found is None else found.highest_offset


def list_segments(
    connection: sqlite3.Connection, topic_id: bytes, partition_id: int, leader_epoch: int | None = None
) -> Generator[RemoteLogSegmentMetadataRecord, None, None]:
    """The segments of a partition, or those with offsets of one leader epoch, by start offset, then by id (TS-62).

    They are in any state but DELETE_FINISHED, referenced or not, so several may hold the same offsets.
    """
    where, parameters = _condition(topic_id, partition_id, leader_epoch)
    rows = connection.execute(
        f"SELECT {', '.join(REMOTE_SEGMENTS.columns)} FROM remote_segments WHERE {where}"  # noqa: S608
        " ORDER BY start_offset, segment_id",
        parameters,
    )
    for row in rows:
        yield REMOTE_SEGMENTS.from_row(row)


def size_bytes(
    connection: sqlite3.Connection, topic_id: bytes, partition_id: int, leader_epoch: int | None = None
) -> int:
    """How many bytes the finished copies of a partition have, or those with offsets of one leader epoch (TS-46)."""
    where, parameters = _condition(topic_id, partition_id, leader_epoch)
    found: int = connection.execute(
        f"SELECT coalesce(sum(size_bytes), 0) FROM remote_segments WHERE {where} AND state = ?",  # noqa: S608
        (*parameters, SegmentState.COPY_FINISHED.value),
    ).fetchone()[0]
    return found


def _condition(topic_id: bytes, partition_id: int, leader_epoch: int | None) -> tuple[str, tuple[str | int, ...]]:
    partition = (id_to_text(topic_id), partition_id)
    return (_OF_PARTITION, partition) if leader_epoch is None else (_OF_EPOCH, (*partition, *partition, leader_epoch))
