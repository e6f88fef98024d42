"""Replaces segments' files by others, so that a startup after a crash has either all old files or all new ones.

    00000000000000000000.log.cleaned     of an unfinished new segment: a startup removes it
    00000000000000000000.log.swap        of a complete new segment: a startup replaces the old ones by it

The order is Kafka's (`LocalLog.replaceSegments`), and so are the steps at startup (`LogLoader`, KAFKA-6264), so each
program can finish a replacement that the other began. The new segments get `.swap` from the last one to the first: as
long as a `.cleaned` exists, a `.swap` at the same or a later offset is not valid. When the first one has `.swap`, the
old segments are removed, and then the suffixes. Between these steps the directory is synced, which Kafka leaves to the
file system's journal.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import structlog

from kraftbase.errors import OutOfSpace, StorageError
from kraftbase.files.files import join
from kraftlog.storage.damage import DamagedLog, DamagedSegment
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.formats.names import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
    offset_of_segment_file,
)
from kraftlog.storage.segment import Segment

logger = structlog.get_logger(__name__)

_FIRST_NAMED: Final = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)


def swap_in(handles: FileHandles, directory: str, old: Collection[int], new: Sequence[int]) -> None:
    """Replace old segments by new ones, durably; both are given by their base offsets, ascending.

    The new files' content is durable already. Raises StorageError, FlushFailed, and OutOfSpace, after which nothing has
    changed.
    """
    files = handles.files
    files.fsync_directory(directory)
    try:
        for base_offset in reversed(new):
            for suffix in SEGMENT_SUFFIXES:
                _rename(handles, directory, base_offset, suffix, (CLEANED_SUFFIX, SWAP_SUFFIX))
            files.fsync_directory(directory)
    except OutOfSpace:
        remove_unfinished(handles, directory, new)
        raise
    try:
        _put_in_place(handles, directory, old, new)
    except OutOfSpace as error:  # the old segments may be gone
        raise StorageError(f"segments in {directory} cannot be replaced: {error}") from error


def remove_unfinished(handles: FileHandles, directory: str, new: Collection[int]) -> None:
    """Remove the unfinished files of new segments. Raises StorageError, FlushFailed."""
    for unfinished in (SWAP_SUFFIX, CLEANED_SUFFIX):
        for base_offset in new:
            for suffix in SEGMENT_SUFFIXES:
                handles.remove(join(directory, file_name(base_offset, suffix) + unfinished))
        handles.files.fsync_directory(directory)


def finish_swap(handles: FileHandles, directory: str, names: Collection[str], present: Collection[int]) -> bool:
    """Finish or undo a replacement that a crash has interrupted; return whether there was one.

    `names` are the files in the directory. `present` are the base offsets of segments that must exist by the inventory,
    which drops the old segments before they are replaced.

    Raises StorageError, FlushFailed, and DamagedLog if a new segment is unreadable or would replace one of `present`.
    """
    cleaned, swapped = ([name for name in names if name.endswith(end)] for end in (CLEANED_SUFFIX, SWAP_SUFFIX))
    if not cleaned and not swapped:
        return False
    first = min((_offset_of(name, CLEANED_SUFFIX) for name in cleaned), default=None)
    undone = [name for name in swapped if first is not None and _offset_of(name, SWAP_SUFFIX) >= first]
    logger.warning("a replacement of segments was interrupted", directory=directory, cleaned=cleaned, swapped=swapped)
    for some in (undone, cleaned):  # in this order: without a `.cleaned` the `.swap` files would be valid
        for name in some:
            handles.remove(join(directory, name))
        handles.files.fsync_directory(directory)
    whole = [name for name in swapped if name not in undone]
    new = sorted({_offset_of(name, SWAP_SUFFIX) for name in whole})
    logs = [base_offset for base_offset in new if file_name(base_offset, LOG_SUFFIX) + SWAP_SUFFIX in whole]
    replaced = range(logs[0], _end_of(handles, directory, logs)) if logs else range(0)
    offsets = {offset_of_segment_file(name) for name in names}
    old = [offset for offset in offsets if offset is not None and (offset in replaced or offset in logs)]
    kept = sorted(set(old).intersection(present))
    if kept:
        what = f"{swapped[0]} would replace the segment at offset {kept[0]}, which the inventory still has"
        raise DamagedLog(directory, what)
    _put_in_place(handles, directory, sorted(old), new)
    return True


def _put_in_place(handles: FileHandles, directory: str, old: Collection[int], new: Sequence[int]) -> None:
    """Remove the old segments, and then the suffixes of the new ones, which are complete; durably.

    The new segments are renamed one after the other, each with its index of aborted transactions last: as long as the
    `.log` has the suffix, an index without it belongs to an old segment.
    """
    files = handles.files
    for base_offset in old:
        for suffix in SEGMENT_SUFFIXES:
            handles.remove(join(directory, file_name(base_offset, suffix)))
    files.fsync_directory(directory)
    for base_offset in new:
        for some in (_FIRST_NAMED, (TRANSACTION_INDEX_SUFFIX,)):
            if [_rename(handles, directory, base_offset, suffix, (SWAP_SUFFIX, "")) for suffix in some].count(True):
                files.fsync_directory(directory)


def _rename(handles: FileHandles, directory: str, base_offset: int, suffix: str, change: tuple[str, str]) -> bool:
    """Change the suffix of a file from `change[0]` to `change[1]`; return whether the file existed."""
    path = join(directory, file_name(base_offset, suffix))
    if not handles.files.exists(path + change[0]):
        return False
    handles.rename(path + change[0], path + change[1])
    return True


def _end_of(handles: FileHandles, directory: str, base_offsets: Sequence[int]) -> int:
    """Return the end offset of some new segments: the one after their last batch. Raises DamagedLog."""
    end_offset = 0
    for base_offset in base_offsets:
        segment = Segment(handles, directory, base_offset, created_ms=0)
        segment.renamed(SWAP_SUFFIX)
        segment.size_bytes = handles.get(segment.path).size()
        try:
            for _, header in segment.batches(0):
                end_offset = max(end_offset, header.last_offset + 1)
        except DamagedSegment as error:
            raise DamagedLog(directory, str(error)) from error
    return end_offset


def _offset_of(name: str, suffix: str) -> int:
    """Return the offset in the name of a file; 0 for a file of no segment, to treat it like the first one's."""
    offset = offset_of_segment_file(name, suffix)
    return 0 if offset is None else offset
