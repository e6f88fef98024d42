"""Batches, logs and damage for the tests of storage."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from kraftbase.files.files import FileSystem
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import Epoch, Offset
from raft.core.types import Batch
from raft.storage.batch import encode_batch, encode_body
from raft.storage.segmented_log import LogConfig, SegmentedLog

LOG = "data/log"
"""The directory of the log that the tests use."""

SMALL = LogConfig(segment_bytes=600, preallocate_bytes=512, reserve_bytes=256, tail_cache_bytes=1000)
"""Three to five batches of the tests fill a segment, and three fill the cache."""

BIG = LogConfig()

EPOCH = Epoch(7)
"""The epoch of a replica that opens a damaged log."""


class Stopped(BaseException):
    """The process ends here."""


def data_batch(base_offset: int, epoch: int = 1, record_count: int = 1, size: int = 20) -> Batch:
    """A batch whose records name their offsets."""
    records = [b"%d" % (base_offset + index) + b"." * size for index in range(record_count)]
    return encode_batch(Offset(base_offset), Epoch(epoch), encode_body(records), record_count, 1_700_000_000_000)


def batches_from(base_offset: int, count: int, epoch: int = 1, size: int = 20) -> list[Batch]:
    """Contiguous batches of one and two records in turn."""
    batches: list[Batch] = []
    for index in range(count):
        batches.append(data_batch(base_offset, epoch, 1 + index % 2, size))
        base_offset = batches[-1].end_offset
    return batches


def open_log(files: FileSystem, config: LogConfig = SMALL, minimum_durable_offset: int = 0) -> SegmentedLog:
    """The log that the tests use."""
    return SegmentedLog.open(files, LOG, config=config, minimum_durable_offset=Offset(minimum_durable_offset))


def open_accepting(
    files: FileSystem, config: LogConfig = SMALL, minimum_durable_offset: int = 0, *, may_create: bool = False
) -> SegmentedLog:
    """That log, opened by a replica that can fetch damaged records from other voters."""
    return SegmentedLog.open(
        files,
        LOG,
        config=config,
        minimum_durable_offset=Offset(minimum_durable_offset),
        accept_damage_in_epoch=EPOCH,
        may_create=may_create,
    )


def all_batches(log: SegmentedLog) -> list[Batch]:
    """Everything in the log, read in small pieces."""
    batches: list[Batch] = []
    offset = log.log_start_offset
    while found := log.read_batches(offset, 300):
        batches += found
        offset = found[-1].end_offset
    assert offset == log.log_end_offset
    return batches


def segment_paths(files: FileSystem) -> list[str]:
    """The segment files of the log that the tests use, in order."""
    return [f"{LOG}/{name}" for name in files.list_directory(LOG) if name.endswith(".log")]


def overwrite(files: FileSystem, path: str, position: int, data: bytes) -> None:
    """Put other bytes into a file, durably."""
    file = files.open(path)
    file.write_at(position, data)
    file.fsync()
    file.close()


def flip(files: FileSystem, path: str, position: int, mask: int = 0xFF) -> None:
    """Flip bits of one byte of a file, durably."""
    file = files.open(path)
    (byte,) = file.read_at(position, 1)
    file.close()
    overwrite(files, path, position, bytes([byte ^ mask]))


@contextmanager
def room_for(files: FileSystem, byte_count: int) -> Iterator[None]:
    """No file may grow past `byte_count` bytes: by a space limit, or by the process's own limit on file sizes."""
    if isinstance(files, MemoryFileSystem):
        files.space_limit = byte_count
        yield
        files.space_limit = None
        return
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (byte_count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def no_more_room(files: FileSystem) -> AbstractContextManager[None]:
    """The last segment of the log that the tests use can no longer grow."""
    return room_for(files, files.open(segment_paths(files)[-1]).size())
