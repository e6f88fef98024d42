"""The records of a Kafka's metadata as JSON objects, in the order in which they were written."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.notation import Message
from kraftlog.kafka.record_batch import RecordBatch
from kraftlog.kafka.record_values import CONTROL_RECORDS, METADATA_RECORDS, decode_control_record
from kraftlog.kafka.records import Record
from kraftlog.offline.kafka.batch_files import BrokenEnd, metadata_of, records_of, unreadable, walk_file
from kraftlog.offline.kafka.directory import Progress, behind_snapshot, log_batches, open_directory
from kraftlog.offline.kafka.secrets import shown_fields


class Wanted(NamedTuple):
    """Which records to print."""

    start_offset: int = 0
    end_offset: int | None = None
    """Exclusive; None: to the end."""
    types: frozenset[str] | None = None
    """Kafka's names, such as TOPIC_RECORD; None: all."""

    def has(self, offset: int) -> bool:
        """Whether that offset is wanted."""
        return self.start_offset <= offset and (self.end_offset is None or offset < self.end_offset)


@cache
def type_name(message: type[Message]) -> str:
    """Kafka's name of a type: TopicRecord is TOPIC_RECORD."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", message.__name__).upper()


TYPE_NAMES: Final = frozenset(map(type_name, {*METADATA_RECORDS.values(), *CONTROL_RECORDS.values()}))


def parse_type(text: str) -> str:
    """The type that a user names: TOPIC_RECORD, TopicRecord or topic. Raises ValueError."""
    known = {_bare(name): name for name in TYPE_NAMES}
    found = known.get(_bare(text))
    if found is None:
        bare = _bare(text)
        containing = sorted(name for key, name in known.items() if bare and bare in key)
        close = containing[:3] or [known[name] for name in get_close_matches(bare, known, n=3)] or ["TOPIC_RECORD"]
        raise ValueError(f"{text!r} is not a type of record; write for example {' or '.join(close)}")
    return found


def _bare(name: str) -> str:
    return name.replace("_", "").lower().removesuffix("record")


def parse_offsets(text: str) -> tuple[int, int | None]:
    """The first offset and the exclusive end of a range A:B; each may be left out. Raises ValueError."""
    match = re.fullmatch(r"([0-9]{0,19}):([0-9]{0,19})", text)
    start, end = (int(match[1] or 0), int(match[2]) if match[2] else None) if match else (0, -1)
    if end is not None and end < start:
        raise ValueError(f"{text!r} is not a range of offsets; write A:B, A: or :B, with A not above B")
    return start, end


def dump(path: Path, wanted: Wanted, progress: Progress | None = None) -> Iterator[dict[str, Any]]:
    """The records of the log in one of Kafka's directories, or of one segment or checkpoint.

    Those of a checkpoint have no offset and no time. A torn end is an object of its own, the last one. Raises
    StorageError.
    """
    if path.is_dir():
        for found in log_batches(open_directory(path), wanted.start_offset, progress):
            if isinstance(found, BrokenEnd):
                yield _described_end(found)
                return
            if wanted.end_offset is not None and found.batch.base_offset >= wanted.end_offset:
                return
            yield from _records(found.path, found.batch, wanted, has_offsets=True)
        return
    has_offsets = path.suffix != ".checkpoint"
    size_bytes = path.stat().st_size
    for one in walk_file(path):
        if isinstance(one, BrokenEnd):
            yield _described_end(one)
            return
        if progress is not None:
            progress(one.end_position, size_bytes)
        yield from _records(path, one.batch, wanted, has_offsets=has_offsets)


def warnings(path: Path, last_offset: int) -> list[str]:
    """A warning about records up to `last_offset` of a directory's log that may be uncommitted. Raises StorageError.
    For a single file this is unknown.
    """
    if not path.is_dir():
        return []
    newest = open_directory(path).newest_checkpoint
    return behind_snapshot(0 if newest is None else newest.snapshot_id.offset, last_offset + 1)


def _described_end(end: BrokenEnd) -> dict[str, Any]:
    return {
        "damage": "torn" if end.is_torn else "damaged",
        "file": end.path.name,
        "from": end.position,
        "to": end.size_bytes,
        "reason": end.reason,
    }


def _records(path: Path, batch: RecordBatch, wanted: Wanted, *, has_offsets: bool) -> Iterator[dict[str, Any]]:
    for record in records_of(path, batch):
        if has_offsets and not wanted.has(record.offset):
            continue
        if _is_other_type(batch, record, wanted.types):
            continue
        message, version = _decoded(path, batch, record)
        name = type_name(type(message))
        if wanted.types is not None and name not in wanted.types:
            continue
        place: dict[str, Any] = {}
        if has_offsets:
            place = {
                "offset": record.offset,
                "epoch": batch.partition_leader_epoch,
                "timestamp": record.timestamp_ms,
            }
        yield {**place, "type": name, "version": version, "data": shown_fields(message, version)}


def _is_other_type(batch: RecordBatch, record: Record, types: Collection[str] | None) -> bool:
    """Whether the record's number shows that it is of another type, so that most records need not be decoded."""
    if types is None or batch.is_control or record.value is None or len(record.value) < 2:
        return False
    message = METADATA_RECORDS.get(record.value[1])
    return message is not None and type_name(message) not in types


def _decoded(path: Path, batch: RecordBatch, record: Record) -> tuple[Message, int]:
    if not batch.is_control:
        return metadata_of(path, record)
    try:
        message = decode_control_record(record.key, record.value)[1]
    except MalformedBytes as error:
        raise unreadable(path, record.offset, error) from None
    return message, getattr(message, "version", 0)
