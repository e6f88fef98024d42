"""The log that a follower had before it started over, kept beside the new one until it cannot be needed (DB-34).

    00000000000000000466-7.old           the segment from offset 466 on, set aside while the leader's epoch was 7
    00000000000000009000-7.start-over    the log is about to start over at 9000; empty

The segments are renamed, not copied. During the renames the second file exists. A startup that finds it finishes the
renames if the log start offset on disk is 9000; with another log start offset they have not begun. So each record of
the old log is in one of the two logs, whenever the process ends.

A partition has at most one old log, the first one. It is removed when a record of the leader's epoch is committed here,
like `.cut` files, or when less than a tenth of the disk is free. Kafka opens neither file.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

import structlog

from kraftbase.errors import OutOfSpace, StorageError
from kraftbase.files.files import FileSystem, join, parent_directory
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.formats.names import LOG_SUFFIX, PRODUCER_SNAPSHOT_SUFFIX, SEGMENT_SUFFIXES, offset_in_name
from kraftlog.storage.leader_epochs import LeaderEpochs
from kraftlog.storage.segment import Segment

logger = structlog.get_logger(__name__)

OLD_SUFFIX: Final = ".old"
START_OVER_SUFFIX: Final = ".start-over"
SPACE_DIVISOR: Final = 10
"""An old log is removed when less than the size of the disk divided by this is free."""

_NAME: Final = re.compile(r"(\d{20})-(\d{1,10})(\.old|\.start-over)\Z", re.ASCII)


class OldFile(NamedTuple):
    """The name of one file."""

    leader_epoch: int
    """The epoch of the leader from which the new log is copied."""
    offset: int
    """The base offset of the segment; for `.start-over`, the offset at which the new log begins."""
    suffix: str = OLD_SUFFIX

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{self.offset:020d}-{self.leader_epoch}{self.suffix}"

    @classmethod
    def named(cls, name: str) -> OldFile | None:
        """Parse a file name; None if it is not the name of such a file."""
        found = _NAME.match(name)
        return None if found is None else cls(int(found[2]), int(found[1]), found[3])


class OldLog:
    """The old log of one partition, if it has one. For one thread."""

    def __init__(self, handles: FileHandles, directory: str, names: Iterable[str]) -> None:
        """`names` are the names of the files in the log's directory, after `finish_start_over`."""
        self._handles = handles
        self._directory = directory
        self._files = sorted(file for name in names if (file := OldFile.named(name)) and file.suffix == OLD_SUFFIX)
        self._under_way: OldFile | None = None

    def __len__(self) -> int:
        """The number of segments that are kept."""
        return len(self._files)

    # --- starting over ------------------------------------------------------------------------------------------------

    def begin(self, offset: int, leader_epoch: int) -> bool:
        """Record durably that the log is about to start over; return whether its segments are to be set aside.

        They are not if there is an old log already, or too little room. Raises StorageError, FlushFailed.
        """
        if self._files or has_little_space(self._handles.files, parent_directory(self._directory)):
            return False
        under_way = OldFile(leader_epoch, offset, START_OVER_SUFFIX)
        try:
            self._handles.create(self._path(under_way))
        except OutOfSpace:
            return False
        self._handles.drop(self._path(under_way))
        self._handles.files.fsync_directory(self._directory)
        self._under_way = under_way
        return True

    def set_aside(self, segment: Segment) -> None:
        """Rename a segment's `.log`, and remove its other files, without a sync. Raises StorageError."""
        if self._under_way is None:
            return
        file = OldFile(self._under_way.leader_epoch, segment.base_offset)
        _set_aside(self._handles, self._directory, segment.base_offset, file, segment.size_bytes)
        if segment.size_bytes:
            self._files = sorted([*self._files, file])

    def end(self) -> None:
        """Note that the new log has begun, durably. Raises StorageError, FlushFailed."""
        if self._under_way is not None:
            self._handles.remove(self._path(self._under_way))
            # Durable before anything is appended: otherwise a startup might take the new log for the old one.
            self._handles.files.fsync_directory(self._directory)
            self._under_way = None
            logger.info(
                "the old log of a follower that started over is kept for now", directory=self._directory,
                segments=len(self._files),
            )  # fmt: skip

    # --- forgetting ---------------------------------------------------------------------------------------------------

    def delete_obsolete(self, high_watermark: int, epochs: LeaderEpochs) -> None:
        """Remove the old log if it can no longer be needed with this high watermark."""
        if self._files and epochs.is_committed(self._files[-1].leader_epoch, high_watermark):
            self._remove()

    def remove_without_room(self) -> None:
        """Remove the old log if less than a tenth of the disk is free. Raises StorageError."""
        if has_little_space(self._handles.files, parent_directory(self._directory)):
            logger.warning(
                "the old log of a follower that started over is removed: the disk is nearly full",
                directory=self._directory, segments=len(self._files),
            )  # fmt: skip
            self._remove()

    def _remove(self) -> None:
        for file in self._files:
            with contextlib.suppress(StorageError):  # the next startup finds the file again
                self._handles.remove(self._path(file))
        self._files.clear()

    def _path(self, file: OldFile) -> str:
        return join(self._directory, file.name)


def has_little_space(files: FileSystem, directory: str) -> bool:
    """Whether less than a tenth of a disk is free. Raises StorageError."""
    space = files.space(directory)
    return space.free_bytes * SPACE_DIVISOR < space.total_bytes


def finish_start_over(
    handles: FileHandles, directory: str, names: Collection[str], log_start_offset: int,
    about_to_start_over: Callable[[int], None],
) -> bool:  # fmt: skip
    """Finish starting over after a crash, before the log is opened; return whether there was anything to finish.

    `names` are the names of the files in the log's directory, and `log_start_offset` is the one on disk. Nothing was
    appended to the new log yet, so all segments belong to the old one. `about_to_start_over` records that they go: if
    the old log started at the same offset, the crash may have come before that record. Raises StorageError.
    """
    is_finished = False
    found = [file for name in names if (file := OldFile.named(name)) and file.suffix == START_OVER_SUFFIX]
    for under_way in found:
        if under_way.offset == log_start_offset:
            logger.warning("resumed starting a log over after a crash", directory=directory, offset=log_start_offset)
            is_finished = True
            about_to_start_over(log_start_offset)
            bases = [offset for name in names if (offset := offset_in_name(name, LOG_SUFFIX)) is not None]
            for base_offset in bases:
                size = handles.get(join(directory, f"{base_offset:020d}{LOG_SUFFIX}")).size()
                _set_aside(handles, directory, base_offset, OldFile(under_way.leader_epoch, base_offset), size)
            for name in names:
                if offset_in_name(name, PRODUCER_SNAPSHOT_SUFFIX) is not None:
                    handles.remove(join(directory, name))
            handles.files.fsync_directory(directory)
        handles.remove(join(directory, under_way.name))
        handles.files.fsync_directory(directory)
    return is_finished


def _set_aside(handles: FileHandles, directory: str, base_offset: int, file: OldFile, size_bytes: int) -> None:
    for suffix in SEGMENT_SUFFIXES:
        path = join(directory, f"{base_offset:020d}{suffix}")
        if suffix == LOG_SUFFIX and size_bytes:
            log = handles.get(path)
            if log.size() > size_bytes:  # `preallocate`
                log.truncate(size_bytes)
            handles.drop(path)
            handles.files.rename(path, join(directory, file.name))
        else:
            handles.remove(path)
