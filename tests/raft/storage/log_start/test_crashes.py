"""A crash while the log's start advances, a snapshot replaces the log (SN-14, SN-42 to SN-44), or the log is discarded.

The opened log is the old one or the new one; it opens to the same again, and continues.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import Epoch, Offset
from raft.core.epochs import LOG_BEGINNING
from raft.core.types import Batch, OffsetAndEpoch
from raft.storage.log_start_file import write_log_start
from raft.storage.recovering_file import begin_anew
from raft.storage.segmented_log import LogConfig, SegmentedLog
from tests.effort import all_cases
from tests.raft.storage.builders import all_batches, data_batch
from tests.raft.storage.crash_points import stop_everywhere
from tests.raft.storage.images import crash_everywhere
from tests.raft.storage.log_start.builders import point

EPOCH = Epoch(30)


@dataclass
class Told:
    """A state in which the log may be found: its start, and its content, of which a first part must exist."""

    config: LogConfig
    start: OffsetAndEpoch = LOG_BEGINNING
    batches: list[Batch] = field(default_factory=list)
    durable: Offset = field(default=Offset(0))
    new: OffsetAndEpoch | None = None
    """A new start in progress; the content that stays in the log does not change."""
    is_replaced: bool = False
    """Whether the operation in progress removes all of it."""

    def open(self, files: MemoryFileSystem) -> SegmentedLog:
        return SegmentedLog.open(files, "data/log", config=self.config, may_create=True)

    def append(self, log: SegmentedLog, *batches: Batch) -> None:
        for batch in batches:
            self.batches = [*self.batches, batch]
            log.append([batch])

    def flush(self, log: SegmentedLog) -> None:
        self.durable = log.flush()

    def advance_start(self, log: SegmentedLog, start: OffsetAndEpoch) -> None:
        self.new = start
        log.advance_start(start)
        self._done([batch for batch in self.batches if batch.base_offset >= start.offset])

    def truncate_fully_and_start_at(self, log: SegmentedLog, start: OffsetAndEpoch) -> None:
        self.new, self.is_replaced = start, True
        log.truncate_fully_and_start_at(start)
        self._done([])

    def _done(self, batches: list[Batch]) -> None:
        assert self.new is not None
        self.durable = self.new.offset if self.is_replaced else max(self.durable, self.new.offset)
        self.start, self.new, self.batches, self.is_replaced = self.new, None, batches, False

    def outcome(self, start: OffsetAndEpoch) -> tuple[list[Batch], Offset]:
        """The content that a log with that start may have, and how far it must have it."""
        if start == self.start:
            return self.batches, self.durable
        assert start == self.new, "it starts at its old start or its new one, and nowhere else"
        if self.is_replaced:
            return [], start.offset
        return [batch for batch in self.batches if batch.base_offset >= start.offset], self.durable


def verify(files: MemoryFileSystem, told: Told) -> None:
    log = told.open(files)  # a crash is no damage: that would be refused here
    assert log.recovering is None
    start, found = log.start, all_batches(log)
    allowed, durable = told.outcome(start)
    assert found == allowed[: len(found)]
    assert durable <= log.log_end_offset == log.flushed_end_offset
    assert all(epoch > start.epoch and offset >= start.offset for epoch, offset in log.epochs.entries())
    assert log.epochs.last_epoch == (found[-1].epoch if found else start.epoch)
    assert [batch for batch in found if log.epochs.epoch_before(batch.end_offset) != batch.epoch] == []
    files.crash()
    log = told.open(files)
    assert (log.start, all_batches(log)) == (start, found)
    assert not log.recovery.has_begun_anew, "it was finished"
    more = [data_batch(log.log_end_offset + index, epoch=20) for index in range(2)]
    log.append(more)
    log.flush()
    files.crash()
    assert all_batches(told.open(files)) == [*found, *more]
    segments = [name for name in files.list_directory("data/log") if name.endswith(".log")]
    assert sum(int(name.partition(".")[0]) <= start.offset for name in segments) == 1, "nothing below is left"


def fill(files: MemoryFileSystem, told: Told) -> SegmentedLog:
    """Segments from offset 0, 3 and 6; the last one has unflushed data."""
    log = told.open(files)
    told.append(log, *(data_batch(offset, epoch=1 + offset // 4, size=100) for offset in range(7)))
    told.flush(log)
    log.write_marker()
    told.append(log, data_batch(7, epoch=2, size=100))
    assert log._base_offsets == [0, 3, 6]
    return log


def _moves_up_within_a_segment(files: MemoryFileSystem, told: Told) -> None:
    log = fill(files, told)
    told.advance_start(log, point(2, 1))
    told.advance_start(log, point(5, 2))
    told.flush(log)


def _moves_up_to_a_segment(files: MemoryFileSystem, told: Told) -> None:
    log = fill(files, told)
    told.advance_start(log, point(3, 1))
    told.append(log, data_batch(8, epoch=3))
    told.advance_start(log, point(6, 2))


def _moves_up_to_the_end(files: MemoryFileSystem, told: Told) -> None:
    log = fill(files, told)
    told.flush(log)
    told.advance_start(log, point(8, 2))
    told.append(log, data_batch(8, epoch=3))


def _begins_past_the_end(files: MemoryFileSystem, told: Told) -> None:
    log = fill(files, told)
    told.truncate_fully_and_start_at(log, point(9, 2))
    told.append(log, data_batch(9, epoch=3))
    told.flush(log)
    told.append(log, data_batch(10, epoch=3))


def _begins_in_a_higher_epoch_within_a_segment(files: MemoryFileSystem, told: Told) -> None:
    log = fill(files, told)
    told.truncate_fully_and_start_at(log, point(4, 3))
    told.append(log, data_batch(4, epoch=3))
    told.flush(log)


def _begins_in_a_higher_epoch_at_a_segment(files: MemoryFileSystem, told: Told) -> None:
    log = fill(files, told)
    told.truncate_fully_and_start_at(log, point(3, 3))
    told.append(log, data_batch(3, epoch=4))


def _begins_in_a_higher_epoch_at_the_last_segment(files: MemoryFileSystem, told: Told) -> None:
    log = fill(files, told)
    told.truncate_fully_and_start_at(log, point(6, 3))


def _begins_in_a_higher_epoch_at_the_end(files: MemoryFileSystem, told: Told) -> None:
    log = fill(files, told)
    told.truncate_fully_and_start_at(log, point(8, 3))


def _begins_where_an_empty_segment_does(files: MemoryFileSystem, told: Told) -> None:
    log = fill(files, told)
    log.reserve(told.config.segment_bytes)
    told.durable = log.flushed_end_offset
    told.truncate_fully_and_start_at(log, point(8, 3))
    told.append(log, data_batch(8, epoch=3))


def _moves_up_begins_anew_and_again(files: MemoryFileSystem, told: Told) -> None:
    log = fill(files, told)
    told.advance_start(log, point(4, 1))
    told.truncate_fully_and_start_at(log, point(6, 3))
    told.truncate_fully_and_start_at(log, point(9, 3))
    told.append(log, data_batch(9, epoch=4), data_batch(10, epoch=4))
    told.flush(log)
    told.advance_start(log, point(10, 4))


def _begins_anew_while_flushing(files: MemoryFileSystem, told: Told) -> None:
    log = fill(files, told)
    pending = log.start_flush()
    told.truncate_fully_and_start_at(log, point(4, 3))
    pending.run()
    told.append(log, data_batch(4, epoch=3))
    assert log.finish_flush(pending) == 4


def _moves_up_and_is_cut_there(files: MemoryFileSystem, told: Told) -> None:
    log = fill(files, told)
    told.advance_start(log, point(5, 2))
    held, told.durable = told.batches, Offset(5)
    log.truncate(Offset(5))
    told.batches = [batch for batch in held if batch.end_offset <= 5]
    told.append(log, data_batch(5, epoch=6))
    told.flush(log)


def _opens_after_a_crash(files: MemoryFileSystem, told: Told) -> None:
    """Finishing is stopped, too."""
    log = fill(files, told)
    told.new, told.is_replaced = point(4, 3), True
    write_start_only(files, log, told.new)
    told.open(files)


def write_start_only(files: MemoryFileSystem, log: SegmentedLog, start: OffsetAndEpoch) -> None:
    write_log_start(files, "data/log", start)
    log.close()


STORIES: dict[Callable[[MemoryFileSystem, Told], None], int] = {
    _moves_up_within_a_segment: 30,
    _moves_up_to_a_segment: 30,
    _moves_up_to_the_end: 30,
    _begins_past_the_end: 30,
    _begins_in_a_higher_epoch_within_a_segment: 30,
    _begins_in_a_higher_epoch_at_a_segment: 30,
    _begins_in_a_higher_epoch_at_the_last_segment: 30,
    _begins_in_a_higher_epoch_at_the_end: 30,
    _begins_where_an_empty_segment_does: 30,
    _moves_up_begins_anew_and_again: 50,
    _begins_anew_while_flushing: 30,
    _moves_up_and_is_cut_there: 30,
    _opens_after_a_crash: 30,
}
"""The scenarios, with the least number of operations of each."""

GROWING = LogConfig(segment_bytes=600, preallocate_bytes=1, reserve_bytes=0, tail_cache_bytes=0)
PREALLOCATED = LogConfig(segment_bytes=600, preallocate_bytes=256, reserve_bytes=0, tail_cache_bytes=0)
CONFIGS = {"growing": GROWING, "preallocated": PREALLOCATED}
BOTH_CONFIGS = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def stories(first: int) -> pytest.MarkDecorator:
    """Each story with both configs; in `make test` with one of them, alternately. The two tests take different ones."""
    cases = [
        pytest.param(story, config, id=f"{story.__name__}-{name}")
        for index, story in enumerate(STORIES)
        for place, (name, config) in enumerate(CONFIGS.items())
        if all_cases() or (first + index + place) % 2 == 0
    ]
    return pytest.mark.parametrize(("story", "config"), cases)


@stories(first=0)
def test_sn_44_whatever_operation_a_crash_comes_before_the_log_is_the_old_or_the_new_one(
    story: Callable[[MemoryFileSystem, Told], None], config: LogConfig
) -> None:
    assert stop_everywhere(lambda _: Told(config), story, verify) >= STORIES[story]


@stories(first=1)
def test_sn_44_whatever_a_crash_leaves_the_log_is_the_old_or_the_new_one(
    story: Callable[[MemoryFileSystem, Told], None], config: LogConfig
) -> None:
    coverage = crash_everywhere(lambda _: Told(config), story, verify)
    assert coverage.images >= 2 * STORIES[story]
    assert coverage.sampled == 0


# --- a crash of the opening that finishes ---------------------------------------------------------------------------

UNFINISHED = [point(2, 1), point(3, 1), point(5, 2), point(6, 2)], [point(9, 2), point(4, 3), point(3, 3), point(8, 3)]
"""Starts to which a log advances, and starts at which a log starts over."""


@BOTH_CONFIGS
@pytest.mark.parametrize("start", [*UNFINISHED[0], *UNFINISHED[1]])
def test_sn_44_whatever_a_crash_of_an_opening_leaves_the_start_that_was_written_down_holds(
    start: OffsetAndEpoch, config: LogConfig
) -> None:
    def prepare(files: MemoryFileSystem) -> Told:
        told = Told(config)
        write_start_only(files, fill(files, told), start)
        told.new, told.is_replaced = start, start in UNFINISHED[1]
        return told

    def verify_new(files: MemoryFileSystem, told: Told) -> None:
        assert told.open(files).start == start
        verify(files, told)

    coverage = crash_everywhere(prepare, lambda files, told: told.open(files).close(), verify_new)
    assert coverage.operations >= 2
    assert coverage.sampled == 0


# --- a crash of giving a log up -------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [point(2, 1), point(5, 2), point(6, 2), point(8, 2), point(9, 3)])
def test_whatever_a_crash_leaves_of_giving_a_log_up_it_is_as_it_was_or_recovers(start: OffsetAndEpoch) -> None:
    def accept(files: MemoryFileSystem) -> SegmentedLog:
        return SegmentedLog.open(files, "data/log", config=GROWING, accept_damage_in_epoch=EPOCH, may_create=False)

    def prepare(files: MemoryFileSystem) -> Told:
        told = Told(GROWING)
        log = fill(files, told)
        told.flush(log)
        if start.offset > log.log_end_offset:
            told.truncate_fully_and_start_at(log, start)
        else:
            told.advance_start(log, start)
        log.close()
        files.crash()
        return told

    def give_up(files: MemoryFileSystem, told: Told) -> None:
        begin_anew(files, "data/log", epoch=EPOCH, reason="no snapshot")

    def verify_given_up(files: MemoryFileSystem, told: Told) -> None:
        log = accept(files)
        found = all_batches(log)
        if log.recovering is None:
            assert (log.start, found) == (told.start, told.batches)
        else:
            assert log.start in (told.start, LOG_BEGINNING)
            assert found == told.batches[: len(found)]
            assert (log.recovering.until_offset, log.recovering.epoch) == (max(8, start.offset), EPOCH)
        log.close()
        if log.start != LOG_BEGINNING:
            give_up(files, told)  # as a node that finds no snapshot does
        files.crash()
        log = accept(files)
        assert (log.start, all_batches(log)) == (LOG_BEGINNING, [])
        assert log.recovering is not None
        assert (log.recovering.until_offset, log.recovering.epoch) == (max(8, start.offset), EPOCH)

    coverage = crash_everywhere(prepare, give_up, verify_given_up)
    assert coverage.operations >= 8
    assert coverage.sampled == 0
