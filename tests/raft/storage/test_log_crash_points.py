"""A crash between any two operations of a log: nothing flushed is lost, nothing appears that was not written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import Offset
from raft.core.types import Batch
from raft.storage.segmented_log import SegmentedLog
from tests.raft.storage.builders import all_batches, batches_from, open_log
from tests.raft.storage.crash_points import stop_everywhere


@dataclass
class Told:
    """The written batches, and how many of them must last."""

    written: list[Batch] = field(default_factory=list)
    durable: Offset = field(default=Offset(0))

    def append(self, log: SegmentedLog, batches: list[Batch]) -> None:
        self.written = self.written + batches
        log.reserve(sum(len(batch.data) for batch in batches))
        log.append(batches)

    def flush(self, log: SegmentedLog) -> None:
        self.durable = log.flush()
        log.write_marker()

    def truncate(self, log: SegmentedLog, end_offset: Offset) -> None:
        self.durable = min(self.durable, end_offset)
        log.truncate(end_offset)
        self.written = [batch for batch in self.written if batch.end_offset <= end_offset]
        self.durable = end_offset


def prepare(files: MemoryFileSystem) -> Told:
    return Told()


def verify(files: MemoryFileSystem, told: Told) -> None:
    """The log is a prefix of the written batches with all that must last, and it continues from there."""
    log = open_log(files)
    found = all_batches(log)
    assert found == told.written[: len(found)]
    assert log.log_end_offset >= told.durable
    more = batches_from(log.log_end_offset, 9, epoch=9)
    for batch in more:
        log.append([batch])
    log.flush()
    files.crash()
    assert all_batches(open_log(files)) == found + more


def append_and_flush(files: MemoryFileSystem, told: Told) -> None:
    log = open_log(files)
    for offset in (0, 3, 6):
        told.append(log, batches_from(offset, 2))
        told.flush(log)


def append_over_segments(files: MemoryFileSystem, told: Told) -> None:
    log = open_log(files)
    for index in range(6):
        told.append(log, batches_from(index * 3, 2))
        if index % 2:
            told.flush(log)
    log.close()


def append_while_flushing(files: MemoryFileSystem, told: Told) -> None:
    log = open_log(files)
    for index in range(5):
        told.append(log, batches_from(index * 6, 2))
        pending = log.start_flush()
        told.append(log, batches_from(index * 6 + 3, 2))
        pending.run()
        told.durable = log.finish_flush(pending)


def cut_within_a_segment(files: MemoryFileSystem, told: Told) -> None:
    log = open_log(files)
    told.append(log, batches_from(0, 4))
    told.flush(log)
    told.append(log, batches_from(6, 1))
    told.truncate(log, Offset(3))
    told.append(log, batches_from(3, 2, epoch=2))
    told.flush(log)


def cut_over_segments(files: MemoryFileSystem, told: Told) -> None:
    log = open_log(files)
    for index in range(8):
        told.append(log, batches_from(index * 3, 2))
    told.flush(log)
    told.truncate(log, Offset(4))
    told.append(log, batches_from(4, 2, epoch=2))
    told.flush(log)


def cut_to_nothing_and_to_a_segments_start(files: MemoryFileSystem, told: Told) -> None:
    log = open_log(files)
    for index in range(6):
        told.append(log, batches_from(index * 3, 2))
    told.truncate(log, Offset(6))
    told.truncate(log, Offset(0))
    told.append(log, batches_from(0, 2, epoch=2))
    told.flush(log)


def reopen(files: MemoryFileSystem, told: Told) -> None:
    log = open_log(files)
    told.append(log, batches_from(0, 3))
    log = open_log(files)
    told.durable = log.flushed_end_offset
    told.append(log, batches_from(4, 3))
    log.close()
    log = open_log(files)
    told.durable = log.flushed_end_offset


@pytest.mark.parametrize(
    ("story", "least_operations"),
    [
        (append_and_flush, 10),
        (append_over_segments, 20),
        (append_while_flushing, 20),
        (cut_within_a_segment, 12),
        (cut_over_segments, 30),
        (cut_to_nothing_and_to_a_segments_start, 30),
        (reopen, 10),
    ],
)
def test_whatever_operation_a_crash_comes_before_the_log_recovers(
    story: Callable[[MemoryFileSystem, Told], None], least_operations: int
) -> None:
    assert stop_everywhere(prepare, story, verify) >= least_operations
