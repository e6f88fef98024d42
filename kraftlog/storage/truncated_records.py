"""Records that a follower has truncated, kept in files beside the log until they cannot be needed (DB-31).

    00000000000000000010-7.cut               from offset 10 on, truncated while the leader's epoch was 7
    00000000000000000010-7.cut-committed     the same; some of the records were below the high watermark

The bytes are those of the log: kafka-dump-log can read a copy that is named like a segment. The broker removes a `.cut`
file when a record of the new leader's epoch is committed here. It leaves a `.cut-committed` file to the operator, since
those records were acknowledged. Kafka opens neither: it reads only files with suffixes that it knows.

Of one truncation the first `TRUNCATED_BYTES_MAX` are kept, and of one log the newest `TRUNCATED_FILES_MAX` files.
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

TRUNCATED_BYTES_MAX: Final = 64 * 1024**2
TRUNCATED_FILES_MAX: Final = 16
_PIECE_BYTES: Final = 1024**2
_NAME: Final = re.compile(r"(\d{20})-(\d{1,10})\.cut(-committed)?\Z", re.ASCII)


class TruncatedRecordsFile(NamedTuple):
    """The name of one file with truncated records."""

    leader_epoch: int
    """The epoch of the leader whose log does not have the records."""
    offset: int
    """The offset to which the log was truncated."""
    is_committed: bool
    """Whether some of the records were below the high watermark."""

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{self.offset:020d}-{self.leader_epoch}.cut{'-committed' if self.is_committed else ''}"

    @classmethod
    def named(cls, name: str) -> TruncatedRecordsFile | None:
        """Parse a file name; None if it is not the name of such a file."""
        found = _NAME.match(name)
        return None if found is None else cls(int(found[2]), int(found[1]), found[3] is not None)


class TruncatedRecords:
    """The files with truncated records of one log. For one thread."""

    def __init__(self, handles: FileHandles, directory: str, segments: SegmentList, names: Iterable[str]) -> None:
        """`names` are the names of the files in the log's directory when it was opened."""
        self._handles = handles
        self._directory = directory
        self._segments = segments
        self._files = sorted(file for name in names if (file := TruncatedRecordsFile.named(name)) is not None)

    def __len__(self) -> int:
        """The number of files."""
        return len(self._files)

    def keep(self, end_offset: int, leader_epoch: int, high_watermark: int) -> None:
        """Copy, durably, the records from `end_offset` on before they are truncated.

        With too little room for the copy nothing is kept. Raises StorageError.
        """
        found = self._segments.locate(end_offset)
        if found is None:
            return
        segment, place = found
        file = TruncatedRecordsFile(leader_epoch, end_offset, is_committed=end_offset < high_watermark)
        if file in self._files:
            return  # the file has the records of an earlier truncation to this offset
        try:
            byte_count = self._copy(join(self._directory, file.name), segment.base_offset, place.position)
        except OutOfSpace as error:
            self._remove(file)
            logger.warning("no room to keep the truncated records", reason=str(error))
            return
        self._files = sorted([*self._files, file])
        logger.info("truncated records are kept", file=file.name, directory=self._directory, bytes=byte_count)
        for old in self._files[:-TRUNCATED_FILES_MAX]:
            self._files.remove(old)
            self._remove(old)

    def _copy(self, path: str, base_offset: int, position: int) -> int:
        """Copy the log from a position of the segment with a base offset on; return the number of bytes."""
        copy = self._handles.create(path)
        byte_count = 0
        for segment in self._segments.from_offset(base_offset):
            start = position if segment.base_offset == base_offset else 0
            while start < segment.size_bytes and byte_count < TRUNCATED_BYTES_MAX:
                piece = segment.read(
                    start, min(_PIECE_BYTES, segment.size_bytes - start, TRUNCATED_BYTES_MAX - byte_count)
                )
                if not piece:
                    raise DamagedSegment(segment.path, start, "the file has become shorter")
                copy.write_at(byte_count, piece)
                start += len(piece)
                byte_count += len(piece)
        copy.fsync()
        self._handles.drop(path)
        self._handles.files.fsync_directory(self._directory)
        return byte_count

    def delete_obsolete(self, high_watermark: int, epochs: LeaderEpochs) -> None:
        """Remove the files that can no longer be needed with this high watermark. Raises StorageError.

        Consider a truncation to offset 10 in epoch 7, which begins at offset 12 in the leader's log. Once offset 12 is
        committed, no replica with another record at that offset can win a clean election.
        """
        for file in list(self._files):
            if not file.is_committed and epochs.is_committed(file.leader_epoch, high_watermark):
                self._files.remove(file)
                self._remove(file)

    def _remove(self, file: TruncatedRecordsFile) -> None:
        with contextlib.suppress(StorageError):  # the next startup finds the file again
            self._handles.remove(join(self._directory, file.name))
