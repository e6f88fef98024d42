"""What a start makes of the files of one log: new, sound, damaged or stray (DB-89).

Pure: from what the metadata, the inventory and the checkpoints say, and which files are there, to a finding. A start
asks twice. When it opens the logs it does not know the metadata yet, and takes the topic id that inventory or files
have. When it has applied its own registration it asks again, with the topic id that the metadata has.

Only the inventory shows that something is missing. Consider a log whose segments begin at 0, 1000 and 2000, of which
the second one is deleted by accident. Without an inventory it looks like a topic that was once compacted.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from kraftlog.storage.formats.inventory import LogEntry


class Finding(enum.Enum):
    """What a partition's log is to this broker."""

    NEW = enum.auto()
    """Nothing is here, and nothing has to be: an empty log is made."""
    SOUND = enum.auto()
    DAMAGED = enum.auto()
    """Records are missing that were here: the replica does not lead by itself (DB-88)."""
    STRAY = enum.auto()
    """It is of another topic, or of no partition of this broker: it is set aside."""


@dataclass(frozen=True, slots=True)
class LogFiles:
    """What a partition's directory has."""

    topic_id: UUID | None
    """As `partition.metadata` has it; None if it is missing or not readable."""
    segments: Mapping[int, int]
    """By base offset, the bytes of each segment's `.log`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What was noted of a log before its files are read; the inventory beats the checkpoints."""

    recovery_point: int = 0
    """Everything below was flushed."""
    log_start_offset: int = 0
    high_watermark: int = 0
    """Everything below was committed; the log may have lost some of it."""
    entry: LogEntry | None = None
    """Of the inventory, if it counts and is about this log."""
    was_shut_down_cleanly: bool = False

    @property
    def aborted_checksums(self) -> dict[int, int]:
        """By base offset, the checksums of those indexes of aborted transactions that have not changed since."""
        if self.entry is None:
            return {}
        found = {segment.base_offset: segment.aborted_checksum for segment in self.entry.closed}
        if self.was_shut_down_cleanly and self.entry.last_base_offset is not None:
            found[self.entry.last_base_offset] = self.entry.last_aborted_checksum
        return found

    @property
    def snapshot_checksums(self) -> dict[int, int]:
        """By offset, the CRCs of snapshots of producers; only those that are known."""
        if self.entry is None:
            return {}
        found = {segment.end_offset: segment.snapshot_checksum for segment in self.entry.closed}
        found[self.entry.recovery_point] = self.entry.last_snapshot_checksum or found.get(self.entry.recovery_point, 0)
        return {offset: checksum for offset, checksum in found.items() if checksum}

    @property
    def base_offsets(self) -> list[int]:
        """Where the segments begin that must be there."""
        if self.entry is None or self.entry.last_base_offset is None:
            return []
        return [*(segment.base_offset for segment in self.entry.closed), self.entry.last_base_offset]

    @property
    def starts_over(self) -> bool:
        """Whether the log was starting over, or nothing of it was ever flushed: then its files may be any."""
        return self.entry is not None and self.entry.last_base_offset is None


def assess(topic_id: UUID | None, entry: LogEntry | None, files: LogFiles | None) -> tuple[Finding, str]:
    """What a log is, and why it is damaged.

    `topic_id`: what the metadata has for the partition's topic, None if this broker has no replica of it. `entry`: what
    an inventory of this broker has of the partition, if it counts. `files`: None if no log directory of this broker has
    the log.
    """
    if topic_id is None:
        return Finding.STRAY, ""
    if entry is not None and entry.topic_id != topic_id:
        if files is None:
            return Finding.NEW, ""
        # Without its own file a log is of the topic that the inventory names: consider a topic that was made again.
        return (Finding.SOUND if files.topic_id == topic_id else Finding.STRAY), ""
    if files is None:
        is_new = entry is None or entry.is_new
        return (Finding.NEW, "") if is_new else (Finding.DAMAGED, "its directory is missing")
    if entry is None:
        return (Finding.SOUND if files.topic_id in (None, topic_id) else Finding.STRAY), ""
    reason = missing_segments(entry, files.segments)
    return (Finding.DAMAGED if reason else Finding.SOUND), reason


def missing_segments(entry: LogEntry, segments: Mapping[int, int]) -> str:
    """Which segment is missing, or not of the size that the inventory has; empty if none is. It costs no reading."""
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
    """Why a log that ends there is damaged, by what was flushed or deleted; empty if it is not."""
    if known.starts_over:
        return ""
    if known.entry is not None and end_offset < known.recovery_point:
        return f"it ends at offset {end_offset}, and was flushed up to {known.recovery_point}"
    if known.entry is None and end_offset < known.log_start_offset:
        return f"it ends at offset {end_offset}, and the checkpoint says that it starts at {known.log_start_offset}"
    return ""
