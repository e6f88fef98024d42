"""The logs and records that the next start of a stopped broker will find missing, by the inventory of a log directory
(DB-89).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import UUID

from kraftbase.files.posix import PosixFileSystem
from kraftbase.partition import TopicPartition
from kraftbase.uuids import uuid_to_text
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.offline.file_reports import FileReport, FileStatus
from kraftlog.storage.findings import Known, lost_end, missing_segments
from kraftlog.storage.formats.checkpoints import decode_partition_metadata
from kraftlog.storage.formats.inventory import LogEntry, decode_inventory
from kraftlog.storage.formats.names import (
    INVENTORY_NAME,
    LOG_SUFFIX,
    PARTITION_METADATA_NAME,
    directory_name,
    offset_in_name,
)
from kraftlog.storage.inventory import DirectoryNotes, why_it_does_not_count

REBUILDS: Final = "rebuilds it from the logs and the checkpoints, and finds nothing missing"
LEADS_NOT: Final = "takes the partition offline here, and deletes nothing"
LEADS_NOT_IF_ASSIGNED: Final = (
    f"{LEADS_NOT}, if this broker has a replica of that topic and the log is in none of its log directories"
)
ASKS_METADATA: Final = "uses the log for the topic in the metadata, or sets it aside"
WRITES_TOPIC_ID: Final = "writes it again, with the topic id of the inventory"


@dataclass(slots=True)
class FoundInventory:
    """The entries of an inventory."""

    entries: dict[TopicPartition, LogEntry] = field(default_factory=dict)
    """Empty if there is no inventory, or it is not valid."""
    report: FileReport | None = None
    """The report on the file itself; None if the file does not exist."""


def read_inventory(directory: Path, directory_id: UUID | None) -> FoundInventory:
    """Read the inventory as a start would, without writing. `directory_id` is None if unknown. Raises OSError."""
    path = directory / INVENTORY_NAME
    if not path.exists():
        return FoundInventory()
    notes = DirectoryNotes.read(PosixFileSystem(), str(directory))
    try:
        content = decode_inventory(path.read_bytes(), str(path))
    except MalformedBytes as error:
        report = FileReport(INVENTORY_NAME, FileStatus.MENDED, "damaged", str(error), REBUILDS)
        return FoundInventory(report=report)
    reason = why_it_does_not_count(content, directory_id or content.directory_id, notes)
    if reason:
        return FoundInventory(report=FileReport(INVENTORY_NAME, FileStatus.MENDED, "does not count", reason, REBUILDS))
    report = FileReport(INVENTORY_NAME, found=f"{len(content.entries)} logs")
    return FoundInventory(content.entries, report)


def missing_logs(inventory: FoundInventory, found: set[str]) -> Iterator[FileReport]:
    """A report for each log that is in the inventory and not in the directory."""
    for partition in sorted(inventory.entries):
        name = directory_name(partition)
        if name not in found:
            yield FileReport(name, FileStatus.DAMAGED, "missing", "the inventory lists it", LEADS_NOT_IF_ASSIGNED)


def verify_log(log: Path, entry: LogEntry, end_offset: int) -> Iterator[FileReport]:
    """Reports on records that a log lacks, by its inventory entry. `end_offset`: where its valid batches end."""
    yield from _topic_id(log, entry)
    reason = missing_segments(entry, _segment_sizes(log))
    known = Known(recovery_point=entry.recovery_point, log_start_offset=entry.log_start_offset, entry=entry)
    reason = reason or lost_end(known, end_offset)
    if reason:
        yield FileReport(log.name, FileStatus.DAMAGED, "lacks records of the inventory", reason, LEADS_NOT)


def _topic_id(log: Path, entry: LogEntry) -> Iterator[FileReport]:
    path = log / PARTITION_METADATA_NAME
    name = f"{log.name}/{path.name}"
    try:
        found_id = decode_partition_metadata(path.read_bytes(), str(path)) if path.exists() else None
    except MalformedBytes as error:
        yield FileReport(name, FileStatus.MENDED, "damaged", str(error), WRITES_TOPIC_ID)
        return
    if found_id is None:
        yield FileReport(name, FileStatus.MENDED, "missing", "", WRITES_TOPIC_ID)
    elif found_id != entry.topic_id:
        reason = f"it has {uuid_to_text(found_id)}, and the inventory {uuid_to_text(entry.topic_id)}"
        yield FileReport(name, FileStatus.MENDED, "another topic id", reason, ASKS_METADATA)


def _segment_sizes(log: Path) -> Mapping[int, int]:
    sizes = {offset_in_name(path.name, LOG_SUFFIX): path.stat().st_size for path in log.iterdir()}
    return {offset: size for offset, size in sizes.items() if offset is not None}
