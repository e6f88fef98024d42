"""The lines of a log directory's inventory, each with its own checksum (docs/formats/partition-log.md).

    eb0211eb ["inventory",1,"k7YOaIvkT7ur2JHm0pDEUQ"]
    e214f82e ["log","clicks",0,"MkTRi9xBQ0SR0lyFXJwFhA",1180,0,1000,0,3197532415,0,[[0,1000,52000]]]
    c3ccdd07 ["roll","clicks",0,1400,[[1000,1400,20800,3808858755,719885386]]]
    62c55901 ["at","clicks",0,1420,200,0,0,0]
    db812610 ["gone","clicks",0]
    e2e1cdf4 ["shutdown",41]
    fbc56cba ["start"]
    6abe7329 ["epoch",57]

A file begins with a line for each log; the changes since then follow.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from kraftbase.checksum import crc32c
from kraftbase.errors import ConfigurationError
from kraftbase.partition import TopicPartition
from kraftbase.uuids import uuid_from_text, uuid_to_text
from kraftlog.kafka.errors import MalformedBytes

VERSION: Final = 1
NEVER_FLUSHED: Final = -1
"""The recovery point of a log that was never flushed."""

_CRC_DIGITS: Final = 8
_SECTOR_BYTES: Final = 512  # a disk writes a sector completely or not at all


class ClosedSegment(NamedTuple):
    """A segment that gets no more appends."""

    base_offset: int
    end_offset: int
    byte_count: int
    """The size of its `.log`."""
    aborted_checksum: int = 0
    """CRC-32C of its index of aborted transactions, which has no checksum itself; 0 if there is no index."""
    snapshot_checksum: int = 0
    """The CRC in the snapshot of producers at its end offset; 0 if unknown."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """The inventory's entry of one log."""

    topic_id: UUID
    recovery_point: int
    """Every record below this offset was flushed; -1 if the log was never flushed."""
    log_start_offset: int
    last_base_offset: int | None
    """The base offset of the segment that gets appends; None while the log starts over, and until a new log's first
    flush: then any files are possible."""
    closed: tuple[ClosedSegment, ...] = ()
    """The flushed segments before the last one, except those that end at or below the log start offset."""
    last_aborted_checksum: int = 0
    """The last segment's `aborted_checksum`, as in `ClosedSegment`; valid only after a clean shutdown."""
    last_batch_checksum: int = 0
    """The CRC of the batch that ends at the recovery point; 0 if unknown."""
    last_snapshot_checksum: int = 0
    """The CRC in the snapshot of producers at the recovery point; 0 if unknown."""

    @property
    def is_new(self) -> bool:
        """Whether the log was never flushed: its files, and even its directory, may be missing (DB-95)."""
        return self.recovery_point == NEVER_FLUSHED


def new_entry(topic_id: UUID) -> LogEntry:
    """Return the entry of a log that is about to be created."""
    return LogEntry(topic_id, NEVER_FLUSHED, 0, None)


def entry_below(entry: LogEntry, offset: int) -> LogEntry:
    """Return the entry of a log that is about to be truncated to `offset`, or to the batch that contains it.

    It has no checksum of the last batch, so that a startup syncs the file: the disk may still have bytes that were cut.
    """
    bases = [*(segment.base_offset for segment in entry.closed), entry.last_base_offset]
    if entry.last_base_offset is None:
        return entry
    last_base_offset = max((base for base in bases if base is not None and base < offset), default=None)
    closed = () if last_base_offset is None else tuple(s for s in entry.closed if s.base_offset < last_base_offset)
    return replace(
        entry, recovery_point=min(entry.recovery_point, offset), last_base_offset=last_base_offset, closed=closed,
        last_batch_checksum=0,
        last_snapshot_checksum=entry.last_snapshot_checksum if entry.recovery_point <= offset else 0,
    )  # fmt: skip


def starting_at(entry: LogEntry, offset: int) -> LogEntry:
    """Return the entry of a log whose start offset moves to `offset`."""
    kept = tuple(segment for segment in entry.closed if segment.end_offset > offset)
    return replace(entry, log_start_offset=offset, closed=kept)


def without_below(entry: LogEntry, base_offset: int) -> LogEntry:
    """Return the entry of a log whose segments below `base_offset` are about to be removed."""
    last = entry.last_base_offset
    entry = starting_at(entry, max(base_offset, entry.log_start_offset))
    return replace(entry, last_base_offset=None if last is None else max(last, base_offset))


def without_range(entry: LogEntry, offsets: range) -> LogEntry:
    """Return the entry of a log whose segments with base offsets in a range are about to be replaced."""
    return replace(entry, closed=tuple(segment for segment in entry.closed if segment.base_offset not in offsets))


def starting_over(entry: LogEntry, offset: int) -> LogEntry:
    """Return the entry of a log that is about to start over at `offset`."""
    recovery_point = min(entry.recovery_point, offset)
    return LogEntry(entry.topic_id, recovery_point, offset, None)


@dataclass(slots=True)
class InventoryContent:
    """The content of an inventory, after some or all of its lines."""

    directory_id: UUID
    entries: dict[TopicPartition, LogEntry] = field(default_factory=dict)
    shutdown_epoch: int | None = None
    """The broker epoch of the last clean shutdown; None if there was none."""
    broker_epoch: int = -1
    """The epoch of the last registration with the directory; -1 if there was none."""
    is_running: bool = False
    """Whether the directory was in use when the last line was written."""
    byte_count: int = 0
    """The position of the next line; bytes after it were torn by a crash."""


# --- writing ----------------------------------------------------------------------------------------------------------


def encode_line(fields: list[Any]) -> bytes:
    """Return one line: the checksum, and the fields as JSON."""
    payload = json.dumps(fields, separators=(",", ":"), ensure_ascii=True)
    return f"{crc32c(payload.encode('ascii')):0{_CRC_DIGITS}x} {payload}\n".encode("ascii")


def encode_whole(directory_id: UUID, entries: Mapping[TopicPartition, LogEntry], broker_epoch: int = -1) -> bytes:
    """Return the lines of a new file, of a directory that is in use."""
    lines = [encode_line(["inventory", VERSION, uuid_to_text(directory_id)]), encode_start()]
    lines += [encode_registration(broker_epoch)] if broker_epoch >= 0 else []
    lines += [_whole(partition, entry) for partition, entry in sorted(entries.items())]
    return b"".join(lines)


def encode_shutdown(broker_epoch: int) -> bytes:
    """Return the line with which a clean shutdown ends the file."""
    return encode_line(["shutdown", broker_epoch])


def encode_registration(broker_epoch: int) -> bytes:
    """Return the line of a broker's registration."""
    return encode_line(["epoch", broker_epoch])


def encode_start() -> bytes:
    """Return the line that a startup adds."""
    return encode_line(["start"])


def encode_change(partition: TopicPartition, before: LogEntry | None, after: LogEntry | None) -> bytes:
    """Return the lines that turn one entry into another; None means no entry. Empty if nothing has changed."""
    if after == before:
        return b""
    if after is None:
        return encode_line(["gone", *partition])
    if before is None or before.topic_id != after.topic_id or None in (before.last_base_offset, after.last_base_offset):
        return _whole(partition, after)
    kept = tuple(segment for segment in before.closed if segment.end_offset > after.log_start_offset)
    if after.closed[: len(kept)] != kept:
        return _whole(partition, after)
    lines = b""
    if after.last_base_offset != before.last_base_offset or len(after.closed) > len(kept):
        new = after.closed[len(kept) :]
        lines += encode_line(["roll", *partition, after.last_base_offset, _encode_segments(new)])
    if _at(after) != _at(before):
        lines += encode_line(["at", *partition, *_at(after)])
    return lines


def _at(entry: LogEntry) -> tuple[int, ...]:
    return (entry.recovery_point, entry.log_start_offset, *_checksums(entry))


def _checksums(entry: LogEntry) -> tuple[int, int, int]:
    return entry.last_aborted_checksum, entry.last_batch_checksum, entry.last_snapshot_checksum


def _encode_segments(segments: Iterable[ClosedSegment]) -> list[list[int]]:
    """Return the fields of each segment, without checksums at the end that are 0."""
    return [
        list(segment if segment.snapshot_checksum else segment[: 4 if segment.aborted_checksum else 3])
        for segment in segments
    ]


def _whole(partition: TopicPartition, entry: LogEntry) -> bytes:
    return encode_line([
        "log", *partition, uuid_to_text(entry.topic_id), entry.recovery_point, entry.log_start_offset,
        entry.last_base_offset, *_checksums(entry), _encode_segments(entry.closed),
    ])  # fmt: skip


# --- reading ----------------------------------------------------------------------------------------------------------


def decode_inventory(data: bytes, path: str) -> InventoryContent:
    """Decode all lines, except a last one that a crash has torn.

    Raises MalformedBytes for a damaged line, also if it is the last one. Consider a last line that records a log's
    start-over: without it the line before would claim segments that are gone.
    """
    content: InventoryContent | None = None
    position = 0
    while position < len(data):
        end = data.find(b"\n", position) + 1 or len(data)
        fields = _decode_line(data[position:end])
        if fields is None:
            is_followed = any(_decode_line(line + b"\n") is not None for line in data[end:].split(b"\n"))
            if is_followed or not _is_torn(data, position, end):
                raise MalformedBytes(path, f"the line at byte {position} is damaged")
            break
        try:
            content = _take(content, fields)
        except (KeyError, TypeError, ValueError, IndexError, ConfigurationError) as error:
            raise MalformedBytes(path, f"the line at byte {position} cannot be read: {error}") from None
        position = end
    if content is None:
        raise MalformedBytes(path, "it has no first line")
    content.byte_count = position
    return content


def _is_torn(data: bytes, position: int, end: int) -> bool:
    """Whether a crash may have left the bytes from `position` on, where a line or reserved room begins.

    A crash loses whole sectors, which read as zeros or are beyond the end of the file. A line has no zeros.
    """
    written_end = position + len(data[position:end].rstrip(b"\0"))
    if written_end == position:
        return True
    if _decode_line(data[position : written_end - 1] + b"\n") is not None:
        return False  # the line is complete except for its newline, which was changed
    while position < written_end:
        sector_end = min(written_end, (position // _SECTOR_BYTES + 1) * _SECTOR_BYTES)
        if data.count(0, position, sector_end) == sector_end - position:
            return True
        position = sector_end
    is_whole = data[written_end - 1 : written_end] == b"\n"
    return not is_whole and (written_end == len(data) or written_end % _SECTOR_BYTES == 0)


def _decode_line(line: bytes) -> list[Any] | None:
    digits, payload = line[:_CRC_DIGITS], line[_CRC_DIGITS + 1 : -1]
    if line[_CRC_DIGITS : _CRC_DIGITS + 1] != b" " or line[-1:] != b"\n":
        return None
    if digits != f"{crc32c(payload):0{_CRC_DIGITS}x}".encode("ascii"):
        return None
    fields = json.loads(payload)
    return fields if isinstance(fields, list) and fields else None


def _take(content: InventoryContent | None, fields: list[Any]) -> InventoryContent:
    """Apply one line."""
    kind, values = fields[0], fields[1:]
    if content is None:
        if kind != "inventory" or values[0] != VERSION:
            raise ValueError(f"only version {VERSION} is known, and the file begins with {fields[:2]}")
        return InventoryContent(uuid_from_text(values[1]))
    match kind:
        case "log":
            topic, number, topic_id, recovery_point, log_start_offset, last_base_offset, *checksums, closed = values
            aborted, batch, snapshot = checksums
            content.entries[TopicPartition(topic, number)] = LogEntry(
                uuid_from_text(topic_id),
                recovery_point,
                log_start_offset,
                last_base_offset,
                _segments(closed),
                aborted,
                batch,
                snapshot,
            )
        case "roll":
            topic, number, last_base_offset, closed = values
            entry = content.entries[TopicPartition(topic, number)]
            content.entries[TopicPartition(topic, number)] = replace(
                entry, last_base_offset=last_base_offset, closed=entry.closed + _segments(closed)
            )
        case "at":
            topic, number, recovery_point, log_start_offset, aborted, batch, snapshot = values
            entry = content.entries[TopicPartition(topic, number)]
            content.entries[TopicPartition(topic, number)] = replace(
                entry, recovery_point=recovery_point, log_start_offset=log_start_offset, last_aborted_checksum=aborted,
                last_batch_checksum=batch, last_snapshot_checksum=snapshot,
                closed=tuple(segment for segment in entry.closed if segment.end_offset > log_start_offset),
            )  # fmt: skip
        case "gone":
            content.entries.pop(TopicPartition(*values), None)
        case "shutdown":
            content.shutdown_epoch, content.is_running = values[0], False
        case "start":
            content.is_running = True
        case "epoch":
            content.broker_epoch = operator.index(values[0])
        case _:
            raise ValueError(f"{kind!r} is not known")
    return content


def _segments(found: Iterable[Any]) -> tuple[ClosedSegment, ...]:
    return tuple(ClosedSegment(*segment) for segment in found)
