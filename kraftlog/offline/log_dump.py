"""A segment as JSON objects: one for each frame, and one for each stretch of bytes that is not a frame (OT-21)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kraftbase.errors import ApiError, StorageError
from kraftbase.types import Offset
from kraftlog.offline.record_json import committed_records
from raft.storage.directory import LOG_NAME
from raft.storage.frame import Frame
from raft.storage.inspection import DamagedStretch, FoundFrame, LogCursor, segment_base_offsets, walk_segment
from raft.storage.segment import parse_segment_name, segment_name


def dump(path: Path, *, decode: bool = False) -> Iterator[dict[str, Any]]:
    """The content of a segment file, a directory of segments, or a node's data directory, in order. With `decode`,
    batches include their records. Raises OSError, and StorageError for a directory without segments.
    """
    segments = _segments(path)
    cursor = LogCursor.at_segment(segments[0][0])
    for base_offset, segment_path in segments:
        if base_offset is not None:
            cursor.enter_segment(base_offset)
        for item in walk_segment(segment_path.read_bytes(), cursor):
            yield {"file": segment_path.name, **_described(item, decode)}


def _segments(path: Path) -> list[tuple[Offset | None, Path]]:
    if not path.is_dir():
        return [(parse_segment_name(path.name), path)]
    directory = path / LOG_NAME if (path / LOG_NAME).is_dir() else path
    bases = segment_base_offsets(directory)
    if not bases:
        raise StorageError(f"{directory} holds no segments; name a segment file, a log or a node's data directory")
    return [(base, directory / segment_name(base)) for base in bases]


def _described(item: FoundFrame | DamagedStretch, decode: bool) -> dict[str, Any]:
    if isinstance(item, DamagedStretch):
        described = {"damage": item.looks_like, "from": item.position, "to": item.end_position}
        return {**described, "lostSector": item.has_lost_sector}
    frame = item.frame
    described = {
        "kind": "marker" if frame.batch is None else "batch",
        "position": frame.position,
        "endPosition": frame.end_position,
        "durableBefore": frame.durable_before,
        "chained": item.is_chained,
    }
    if item.misfits:
        described["misfits"] = list(item.misfits)
    return {**described, **_batch(frame, decode)}


def _batch(frame: Frame, decode: bool) -> dict[str, Any]:
    batch = frame.batch
    if batch is None:
        return {}
    described: dict[str, Any] = {
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "epoch": batch.epoch,
        "recordCount": batch.record_count,
        "isControl": batch.is_control,
    }
    if decode:
        try:
            described["records"] = list(committed_records(batch))
        except ApiError as error:
            described["undecodable"] = str(error)
    return described
