"""A log and a list, given the same steps by hypothesis, with crashes and full disks: they must agree at each step."""

from __future__ import annotations

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kraftbase.errors import OutOfSpace
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import Epoch, Offset
from raft.core.epochs import LOG_BEGINNING, EpochCache
from raft.core.types import Batch, OffsetAndEpoch
from raft.storage.segmented_log import LogConfig, PendingFlush, SegmentedLog
from tests.effort import examples
from tests.raft.storage.builders import all_batches, data_batch, open_log


class LogAgainstList(RuleBasedStateMachine):
    """`batches` are what the log must hold; `durable` is how far it must hold them after a crash."""

    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFileSystem()
        self.batches: list[Batch] = []
        self.durable = 0
        self.pending: PendingFlush | None = None
        self.pending_end = 0
        self.epoch = 1
        self.start = LOG_BEGINNING
        self.log: SegmentedLog

    @initialize(
        segment_bytes=st.sampled_from([1, 300, 1000, 50_000]),
        preallocate_bytes=st.sampled_from([1, 200, 2000]),
        tail_cache_bytes=st.sampled_from([0, 1000, 100_000]),
    )
    def open(self, segment_bytes: int, preallocate_bytes: int, tail_cache_bytes: int) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            preallocate_bytes=preallocate_bytes,
            tail_cache_bytes=tail_cache_bytes,
            reserve_bytes=100,
        )
        self.log = open_log(self.files, self.config)

    @property
    def end_offset(self) -> int:
        return self.batches[-1].end_offset if self.batches else self.start.offset

    @property
    def last_epoch(self) -> int:
        return self.batches[-1].epoch if self.batches else self.start.epoch

    @rule(
        counts=st.lists(st.integers(1, 3), min_size=1, max_size=4),
        size=st.sampled_from([0, 1, 90, 300, 2000]),
        reserves=st.booleans(),
    )
    def append(self, counts: list[int], size: int, reserves: bool) -> None:
        more: list[Batch] = []
        for count in counts:
            more.append(data_batch(more[-1].end_offset if more else self.end_offset, self.epoch, count, size))
        if reserves:
            self.log.reserve(sum(len(batch.data) for batch in more))
        self.log.append(more)
        self.batches += more

    @rule(count=st.integers(1, 3), room=st.integers(0, 200))
    def append_on_a_full_disk(self, count: int, room: int) -> None:
        self.files.space_limit = self.files.used_bytes() + room
        batch = data_batch(self.end_offset, self.epoch, count, 150)
        try:
            self.log.append([batch])
        except OutOfSpace:
            pass
        else:
            self.batches.append(batch)
        self.files.space_limit = None

    @rule()
    def start_an_epoch(self) -> None:
        self.epoch += 1

    @precondition(lambda self: self.pending is None)
    @rule()
    def flush(self) -> None:
        assert self.log.flush() == self.end_offset
        self.durable = self.end_offset

    @precondition(lambda self: self.pending is None)
    @rule()
    def start_flush(self) -> None:
        self.pending = self.log.start_flush()
        self.pending_end = self.end_offset

    @precondition(lambda self: self.pending is not None)
    @rule()
    def finish_flush(self) -> None:
        assert self.pending is not None
        self.pending.run()
        self.durable = max(self.durable, self.pending_end)
        assert self.log.finish_flush(self.pending) >= self.durable
        self.pending = None

    @rule()
    def write_marker(self) -> None:
        self.log.write_marker()

    @rule(fraction=st.floats(0, 1))
    def truncate(self, fraction: float) -> None:
        self.batches = self.batches[: round(fraction * len(self.batches))]
        self.log.truncate(Offset(self.end_offset))
        self.durable = min(self.durable, self.end_offset)
        self.pending_end = min(self.pending_end, self.end_offset)

    @rule(fraction=st.floats(0, 1))
    def advance_start(self, fraction: float) -> None:
        flushed = [batch for batch in self.batches if batch.end_offset <= self.log.flushed_end_offset]
        below = flushed[: round(fraction * len(flushed))]
        if below:
            self.start = OffsetAndEpoch(epoch=below[-1].epoch, offset=below[-1].end_offset)
        self.log.advance_start(self.start)
        self.batches = self.batches[len(below) :]
        self.durable = max(self.durable, self.start.offset)

    @rule(more_offsets=st.integers(1, 3))
    def start_anew_past_the_end(self, more_offsets: int) -> None:
        self._start_anew(self.end_offset + more_offsets, max(1, self.last_epoch))

    @rule(fraction=st.floats(0, 1))
    def start_anew_in_a_higher_epoch(self, fraction: float) -> None:
        self.epoch = max(self.epoch, self.last_epoch) + 1
        behind = self.end_offset - self.start.offset
        self._start_anew(self.start.offset + max(1, round(fraction * behind)), self.epoch)

    def _start_anew(self, offset: int, epoch: int) -> None:
        self.start = OffsetAndEpoch(epoch=Epoch(epoch), offset=Offset(offset))
        self.log.truncate_fully_and_start_at(self.start)
        self.batches = []
        self.durable = offset
        self.pending_end = min(self.pending_end, offset)

    @rule(start=st.floats(0, 1), end=st.floats(0, 1), max_bytes=st.integers(0, 2000))
    def read(self, start: float, end: float, max_bytes: int) -> None:
        start_offset = self.start.offset + round(start * (self.end_offset - self.start.offset))
        ends = [self.start.offset, *(batch.end_offset for batch in self.batches)]
        end_offset = ends[round(end * len(self.batches))]
        expected = [batch for batch in self.batches if start_offset < batch.end_offset <= end_offset]
        found = self.log.read_batches(Offset(start_offset), max_bytes, Offset(end_offset))
        assert list(found) == expected[: len(found)]
        assert bool(found) == bool(expected)
        assert len(found) <= 1 or sum(len(batch.data) for batch in found) <= max_bytes

    @rule(closes=st.booleans())
    def reopen(self, closes: bool) -> None:
        if closes:
            self.log.close()
        self._reopen()
        assert self.log.log_end_offset == self.end_offset

    @rule(kept_bytes=st.sampled_from([0, 1, 60, 500, 10**9]))
    def crash(self, kept_bytes: int) -> None:
        self.files.crash(kept_unsynced_bytes=kept_bytes)
        self._reopen()

    @rule(seed=st.integers(0, 2**32))
    def crash_in_any_order(self, seed: int) -> None:
        self.files.crash(random=Random(seed))
        self._reopen()

    def _reopen(self) -> None:
        self.log = open_log(self.files, self.config)
        assert self.durable <= self.log.log_end_offset
        self.batches = [batch for batch in self.batches if batch.end_offset <= self.log.log_end_offset]
        self.durable = self.end_offset
        self.pending = None
        assert self.log.flushed_end_offset == self.end_offset

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.log_end_offset == self.end_offset
        assert self.durable <= self.log.flushed_end_offset <= self.end_offset
        assert all_batches(self.log) == self.batches
        assert self.log.start == self.start
        epochs = EpochCache(start=self.start)
        for batch in self.batches:
            epochs.assign(batch.epoch, batch.base_offset)
        assert self.log.epochs.entries() == epochs.entries()


TestLogAgainstList = LogAgainstList.TestCase
TestLogAgainstList.settings = settings(max_examples=examples(120), stateful_step_count=40, deadline=None)
