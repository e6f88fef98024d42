"""A log of twelve batches that will start above offset 0, and the content that it must have then."""

from __future__ import annotations

from kraftbase.files.files import FileSystem, read_whole
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import Epoch, Offset
from raft.core.types import Batch, OffsetAndEpoch
from raft.storage.log_start_file import write_log_start
from raft.storage.segment import parse_segment_name
from raft.storage.segmented_log import LogConfig, SegmentedLog
from tests.raft.storage.builders import LOG, all_batches, data_batch, open_accepting, open_log

BATCHES = [data_batch(offset, epoch=1 + offset // 4) for offset in range(12)]
"""Offsets 0 to 3 are of epoch 1, 4 to 7 of epoch 2, 8 to 11 of epoch 3."""
END = Offset(12)
FOURS = LogConfig(segment_bytes=500, preallocate_bytes=512, reserve_bytes=0, tail_cache_bytes=1000)
"""Four of BATCHES fill a segment."""


def point(offset: int, epoch: int | None = None) -> OffsetAndEpoch:
    """A start in BATCHES, by default of the epoch before it."""
    return OffsetAndEpoch(epoch=Epoch(1 + (offset - 1) // 4) if epoch is None else Epoch(epoch), offset=Offset(offset))


def opened(files: FileSystem, minimum_durable_offset: int = 0) -> SegmentedLog:
    """The log, with segments of four batches."""
    return open_log(files, FOURS, minimum_durable_offset)


def filled(files: FileSystem, *, is_flushed: bool = True) -> SegmentedLog:
    """A log of BATCHES in several segments."""
    log = opened(files)
    for batch in BATCHES:
        log.append([batch])
    if is_flushed:
        log.flush()
        log.write_marker()
    assert bases(files) == [0, 4, 8]
    return log


def bases(files: FileSystem) -> list[int]:
    """The base offsets of the existing segments."""
    found = (parse_segment_name(name) for name in files.list_directory(LOG))
    return [base for base in found if base is not None]


def contents(files: FileSystem) -> dict[str, bytes]:
    """Every file of the log."""
    return {name: read_whole(files, f"{LOG}/{name}") for name in files.list_directory(LOG)}


def on_disk(start: OffsetAndEpoch | None = None) -> MemoryFileSystem:
    """A closed log of BATCHES, and optionally the start that was written just before a crash."""
    files = MemoryFileSystem()
    filled(files).close()
    files.crash(kept_unsynced_bytes=10**9)
    if start is not None:
        write_log_start(files, LOG, start)
    return files


def accepting(files: FileSystem, minimum_durable_offset: int = 0) -> SegmentedLog:
    """The log opened by a replica that has other voters to fetch from."""
    return open_accepting(files, FOURS, minimum_durable_offset)


def assert_empty_at(log: SegmentedLog, start: OffsetAndEpoch) -> None:
    """It is empty and continues at its start."""
    assert log.start == start
    assert log.log_start_offset == log.log_end_offset == log.flushed_end_offset == start.offset
    assert log.epochs.entries() == []
    assert log.epochs.last_epoch == start.epoch
    assert log.size_bytes == 0
    assert all_batches(log) == []


def assert_holds(log: SegmentedLog, start: OffsetAndEpoch, held: list[Batch] = BATCHES) -> None:
    """The log starts there and holds those of the batches that are not below."""
    assert log.start == start
    assert all_batches(log) == [batch for batch in held if batch.base_offset >= start.offset]
    assert all(offset >= start.offset and epoch > start.epoch for epoch, offset in log.epochs.entries())


REPLACEMENTS = [point(13, 3), point(500, 9), point(500, 2), point(12, 4), point(8, 4), point(6, 4), point(3, 9)]
"""Past the log's end, or of a higher epoch than its last, in the middle of a segment or where one begins."""
