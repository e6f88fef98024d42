"""How the files of segments take the place of others: a start finds all of the old ones, or all of the new ones.

    00000000000000000000.log.cleaned     of a new segment that is being made: a start removes it
    00000000000000000000.log.swap        of a new segment that is whole: a start puts it in the place of the old ones

The order is Kafka's (`LocalLog.replaceSegments`), and so is what a start makes of it (`LogLoader`, KAFKA-6264), so each
can finish what the other began. The new segments get `.swap` from the last one to the first: as long as a `.cleaned`
is there, a `.swap` of the same offset or behind it is not to be trusted. When the first one has it, the old ones go,
and then the suffix. Between these steps the directory is synced, which Kafka leaves to a journal.
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
    """Put new segments in the place of old ones, durably; both by their base offsets, ascending.

    What is in the new files is durable. Raises StorageError, FlushFailed; OutOfSpace, and then nothing has changed.
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
    except OutOfSpace as error:  # there is no way back
        raise StorageError(f"segments in {directory} cannot be replaced: {error}") from error


def remove_unfinished(handles: FileHandles, directory: str, new: Collection[int]) -> None:
    """Remove what was made of new segments. Raises StorageError, FlushFailed."""
    for unfinished in (SWAP_SUFFIX, CLEANED_SUFFIX):
        for base_offset in new:
            for suffix in SEGMENT_SUFFIXES:
                handles.remove(join(directory, file_name(base_offset, suffix) + unfinished))
        handles.files.fsync_directory(directory)


def finish_swap(handles: FileHandles, directory: str, names: Collection[str], present: Collection[int]) -> bool:
    """Finish what a crash has interrupted, or undo it; returns whether there was something.

    `names` are those in the directory; `present` are the base offsets of segments that must be there, by the inventory:
    it says no longer that an old one must, when it is about to be replaced.

    Raises StorageError, FlushFailed; DamagedLog if a new segment does not read back, or would replace one of `present`.
    """
    cleaned, swapped = ([name for name in names if name.endswith(end)] for end in (CLEANED_SUFFIX, SWAP_SUFFIX))
    if not cleaned and not swapped:
        return False
    first = min((_offset_of(name, CLEANED_SUFFIX) for name in cleaned), default=None)
    undone = [name for name in swapped if first is not None and _offset_of(name, SWAP_SUFFIX) >= first]
    logger.warning("a replacement of segments did not end", directory=directory, cleaned=cleaned, swapped=swapped)
    for some in (undone, cleaned):  # in this order: without a `.cleaned` the others would count
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
        what = f"{swapped[0]} would take the place of the segment with offset {kept[0]}, which was not to be replaced"
        raise DamagedLog(directory, what)
    _put_in_place(handles, directory, sorted(old), new)
    return True


def _put_in_place(handles: FileHandles, directory: str, old: Collection[int], new: Sequence[int]) -> None:
    """Remove the old segments, and let the new ones, which are whole, lose their suffix; durably.

    One new segment after the other, and of each the index of aborted transactions last: as long as its log has the
    suffix, such an index without one is of an old segment.
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
    """Change what is behind the name of a file; whether there is one."""
    path = join(directory, file_name(base_offset, suffix))
    if not handles.files.exists(path + change[0]):
        return False
    handles.rename(path + change[0], path + change[1])
    return True


def _end_of(handles: FileHandles, directory: str, base_offsets: Sequence[int]) -> int:
    """The largest offset after the last batch of some new segments."""
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
    """The offset in the name of a file; that of no segment comes first, and goes or stays with the others."""
    offset = offset_of_segment_file(name, suffix)
    return 0 if offset is None else offset
