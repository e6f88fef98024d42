"""Classifies a log at startup: new, sound, damaged or stray (DB-89).

Pure: the finding follows from the metadata, the inventory, the checkpoints and the names of the files. A startup
classifies each log twice. When it opens the logs it does not have the metadata yet, and uses the topic id of the
inventory or the files. When it has applied its own registration, it uses the topic id of the metadata.

Only the inventory shows that a segment is missing. Consider a log with segments at 0, 1000 and 2000, of which the
second one is deleted by accident. Without an inventory the log looks like one of a topic that was once compacted.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from kraftlog.storage.formats.inventory import LogEntry


class Finding(enum.Enum):
    """The classes of logs."""

    NEW = enum.auto()
    """The log does not exist and never did: an empty one is created."""
    SOUND = enum.auto()
    DAMAGED = enum.auto()
    """The log has lost records: the replica does not become leader without an operator (DB-88)."""
    STRAY = enum.auto()
    """The log is of another topic, or of a partition that has no replica here: it is set aside."""


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The content of a partition's directory."""

    topic_id: UUID | None
    """The id in `partition.metadata`; None if that file is missing or unreadable."""
    segments: Mapping[int, int]
    """The size in bytes of each segment's `.log`, by base offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The recorded state of a log, before its files are read; the inventory overrides the checkpoints."""

    recovery_point: int = 0
    """Every record below this offset was flushed."""
    log_start_offset: int = 0
    high_watermark: int = 0
    """Every record below this offset was committed; the log may have lost some of them."""
    entry: LogEntry | None = None
    """The log's entry in the inventory, if the inventory is valid and the entry is of this topic."""
    was_shut_down_cleanly: bool = False

    @property
    def aborted_checksums(self) -> dict[int, int]:
        """The checksums of the indexes of aborted transactions that cannot have changed since, by base offset."""
        if self.entry is None:
            return {}
        found = {segment.base_offset: segment.aborted_checksum for segment in self.entry.closed}
        if self.was_shut_down_cleanly and self.entry.last_base_offset is not None:
            found[self.entry.last_base_offset] = self.entry.last_aborted_checksum
        return found

    @property
    def snapshot_checksums(self) -> dict[int, int]:
        """The known CRCs of producer snapshots, by offset."""
        if self.entry is None:
            return {}
        found = {segment.end_offset: segment.snapshot_checksum for segment in self.entry.closed}
        found[self.entry.recovery_point] = self.entry.last_snapshot_checksum or found.get(self.entry.recovery_point, 0)
        return {offset: checksum for offset, checksum in found.items() if checksum}

    @property
    def base_offsets(self) -> list[int]:
        """The base offsets of the segments that must exist."""
        if self.entry is None or self.entry.last_base_offset is None:
            return []
        return [*(segment.base_offset for segment in self.entry.closed), self.entry.last_base_offset]

    @property
    def starts_over(self) -> bool:
        """Whether the log was starting over, or was never flushed: then any files are possible."""
        return self.entry is not None and self.entry.last_base_offset is None


def assess(topic_id: UUID | None, entry: LogEntry | None, files: LogFiles | None) -> tuple[Finding, str]:
    """Return the class of a log, and the reason if it is damaged.

    `topic_id` is the id of the partition's topic in the metadata; None if this broker has no replica of the partition.
    `entry` is the partition's entry in a valid inventory of this broker. `files` is None if no log directory of this
    broker has the log.
    """
    if topic_id is None:
        return Finding.STRAY, ""
    if entry is not None and entry.topic_id != topic_id:
        if files is None:
            return Finding.NEW, ""
        # A log without a topic id of its own is of the topic in the inventory: consider a topic that was recreated.
        return (Finding.SOUND if files.topic_id == topic_id else Finding.STRAY), ""
    if files is None:
        is_new = entry is None or entry.is_new
        return (Finding.NEW, "") if is_new else (Finding.DAMAGED, "its directory is missing")
    if entry is None:
        return (Finding.SOUND if files.topic_id in (None, topic_id) else Finding.STRAY), ""
    reason = missing_segments(entry, files.segments)
    return (Finding.DAMAGED if reason else Finding.SOUND), reason


def missing_segments(entry: LogEntry, segments: Mapping[int, int]) -> str:
    """Name the first segment that is missing or whose size differs from the inventory's; empty if there is none.

    Reads no files.
    """
    if entry.last_base_offset is None:
        return ""
    for base_offset, end_offset, byte_count, *_ in entry.closed:
        found_bytes = segments.get(base_offset)
        if found_bytes is None:
            return f"the segment with offsets {base_offset} to {end_offset - 1} is missing"
        if found_bytes != byte_count:
            return (
                f"the segment with offsets {base_offset} to {end_offset - 1} has {found_bytes} bytes,"
                f" and had {byte_count}"
            )
    if entry.last_base_offset not in segments:
        return f"the last segment, which begins at offset {entry.last_base_offset}, is missing"
    return ""


def lost_end(known: Known, end_offset: int) -> str:
    """Return why a log that ends at `end_offset` is damaged, by its recovery point or log start; empty if it is not."""
    if known.starts_over:
        return ""
    if known.entry is not None and end_offset < known.recovery_point:
        return f"it ends at offset {end_offset}, and was flushed up to {known.recovery_point}"
    if known.entry is None and end_offset < known.log_start_offset:
        return f"it ends at offset {end_offset}, and the checkpoint says that it starts at {known.log_start_offset}"
    return ""
