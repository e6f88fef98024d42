"""Records that a follower has cut off, kept in files beside the log until they cannot be missed (DB-31).

    00000000000000000010-7.cut               from offset 10 on, cut while the leader's epoch was 7
    00000000000000000010-7.cut-committed     the same, of which some were below the high watermark

The bytes are those of the log: a copy with the name of a segment can be read by kafka-dump-log. A `.cut` file is
removed when something of the new leader's is committed here; a `.cut-committed` file is the operator's, for these
records were acknowledged. Kafka opens neither, as it looks at suffixes that it knows.

At most `CUT_BYTES_MAX` of one cut are kept, those that come first, and `CUT_FILES_MAX` files of a log, the newest.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

import structlog

from kraftbase.errors import OutOfSpace, StorageError
from kraftbase.files.files import join
from kraftlog.storage.damage import DamagedSegment
from kraftlog.storage.file_handles import FileHandles
from kraftlog.storage.leader_epochs import LeaderEpochs
from kraftlog.storage.segment_list import SegmentList

logger = structlog.get_logger(__name__)

CUT_BYTES_MAX: Final = 64 * 1024**2
CUT_FILES_MAX: Final = 16
_PIECE_BYTES: Final = 1024**2
_NAME: Final = re.compile(r"(\d{20})-(\d{1,10})\.cut(-committed)?\Z", re.ASCII)


class CutFile(NamedTuple):
    """One file."""

    leader_epoch: int
    """The epoch of the leader whose log the records are not in."""
    offset: int
    """Where the log was cut."""
    is_committed: bool
    """Whether some of the records were below the high watermark."""

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{self.offset:020d}-{self.leader_epoch}.cut{'-committed' if self.is_committed else ''}"

    @classmethod
    def named(cls, name: str) -> CutFile | None:
        """The file with a name; None if that is another file."""
        found = _NAME.match(name)
        return None if found is None else cls(int(found[2]), int(found[1]), found[3] is not None)


class CutRecords:
    """Of one log. For one thread."""

    def __init__(self, handles: FileHandles, directory: str, segments: SegmentList, names: Iterable[str]) -> None:
        """`names` are those in the log's directory when it was opened."""
        self._handles = handles
        self._directory = directory
        self._segments = segments
        self._files = sorted(file for name in names if (file := CutFile.named(name)) is not None)

    def __len__(self) -> int:
        """How many files there are."""
        return len(self._files)

    def keep(self, end_offset: int, leader_epoch: int, high_watermark: int) -> None:
        """Copy what a cut at `end_offset` takes, durably. Without room nothing is kept. Raises StorageError."""
        found = self._segments.locate(end_offset)
        if found is None:
            return
        segment, place = found
        file = CutFile(leader_epoch, end_offset, is_committed=end_offset < high_watermark)
        if file in self._files:
            return  # what was cut here before is the older branch
        try:
            byte_count = self._copy(join(self._directory, file.name), segment.base_offset, place.position)
        except OutOfSpace as error:
            self._remove(file)
            logger.warning("there is no room to keep the records that are cut", reason=str(error))
            return
        self._files = sorted([*self._files, file])
        logger.info("records that are cut are kept", file=file.name, directory=self._directory, bytes=byte_count)
        for old in self._files[:-CUT_FILES_MAX]:
            self._files.remove(old)
            self._remove(old)

    def _copy(self, path: str, base_offset: int, position: int) -> int:
        """Copy from a position of the segment with a base offset on; returns how many bytes it were."""
        copy = self._handles.create(path)
        byte_count = 0
        for segment in self._segments.from_offset(base_offset):
            start = position if segment.base_offset == base_offset else 0
            while start < segment.size_bytes and byte_count < CUT_BYTES_MAX:
                piece = segment.read(start, min(_PIECE_BYTES, segment.size_bytes - start, CUT_BYTES_MAX - byte_count))
                if not piece:
                    raise DamagedSegment(segment.path, start, "the file has become shorter")
                copy.write_at(byte_count, piece)
                start += len(piece)
                byte_count += len(piece)
        copy.fsync()
        self._handles.drop(path)
        self._handles.files.fsync_directory(self._directory)
        return byte_count

    def forget(self, high_watermark: int, epochs: LeaderEpochs) -> None:
        """Remove the files that nobody can miss any more, as the high watermark is there now. Raises StorageError.

        Consider a cut at offset 10 in epoch 7, which begins at 12 in the leader's log. With offset 12 committed, no
        replica can be elected cleanly that has another record there.
        """
        for file in list(self._files):
            if not file.is_committed and epochs.is_committed(file.leader_epoch, high_watermark):
                self._files.remove(file)
                self._remove(file)

    def _remove(self, file: CutFile) -> None:
        with contextlib.suppress(StorageError):  # the next start sees it again
            self._handles.remove(join(self._directory, file.name))
