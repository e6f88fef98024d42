"""A log directory and a list, given the same steps by hypothesis, with kills between any two operations on files.

The invariants: no start takes a crash for damage, what was acknowledged is there, no offset that a reader has seen is
given to other records, indexes and producers agree with the log.
"""

from __future__ import annotations

from random import Random

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.findings import Finding
from kraftlog.storage.formats.batch_header import read_header
from kraftlog.storage.log_directory import LogDirectory
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.producer_states import ProducerStates
from kraftlog.storage.slices import run_at_once
from tests.effort import examples
from tests.kraftlog.storage.agreement import check_agreement
from tests.kraftlog.storage.builders import (
    CLICKS,
    NOW_MS,
    TOPIC_ID,
    StepRuntime,
    all_batches,
    batch,
    log_in,
    open_directory,
)

PRODUCERS = 3


class Killed(BaseException):
    """The process ends here."""


class DirectoryAgainstList(RuleBasedStateMachine):
    """`written` is what the log must hold if nothing is lost, `acknowledged` how much of it must survive."""

    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFileSystem()
        self.written: list[bytes] = []
        self.acknowledged = 0
        self.start = 0
        self.epoch = 0
        self.sequences = dict.fromkeys(range(PRODUCERS), 0)
        self.now_ms = NOW_MS
        self.runtime = StepRuntime()
        self.directory: LogDirectory
        self.log: PartitionLog

    @initialize(
        segment_bytes=st.sampled_from([300, 1000, 20_000]),
        index_interval_bytes=st.sampled_from([0, 100, 4096]),
        segment_index_bytes=st.sampled_from([40, 10_000]),
        preallocates=st.booleans(),
    )
    def open(self, segment_bytes: int, index_interval_bytes: int, segment_index_bytes: int, preallocates: bool) -> None:
        self.config = PartitionLogConfig(
            segment_bytes=segment_bytes, index_interval_bytes=index_interval_bytes,
            segment_index_bytes=segment_index_bytes, preallocates=preallocates, max_message_bytes=segment_bytes,
            retention_ms=1_000,
        )  # fmt: skip
        self._open()

    def _open(self) -> None:
        self.runtime = StepRuntime()
        self.directory = open_directory(
            self.files, config=self.config, now_ms=self.now_ms, runtime=self.runtime, open_files_max=3
        )
        assert self.directory.damaged == {}, "no crash is damage (DB-89)"
        self.log = log_in(self.directory, self.config)
        assert self.directory.findings.assess(CLICKS, TOPIC_ID) is Finding.SOUND
        self.log.advance_high_watermark(self.log.log_end_offset)

    @property
    def end_offset(self) -> int:
        return read_header(self.written[-1]).last_offset + 1 if self.written else self.start

    # --- steps --------------------------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 4), size=st.sampled_from([0, 40]), producer=st.sampled_from([-1, *range(PRODUCERS)]))
    def append(self, count: int, size: int, producer: int) -> None:
        base_offset = self.end_offset
        self.now_ms += 10
        data = batch(
            count, value=b"v" * size, timestamp_ms=self.now_ms, producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1, sequence=self.sequences.get(producer, -1),
        )  # fmt: skip
        if len(data) > self.config.segment_bytes:
            return
        appended = self.log.append_as_leader(bytearray(data), self.epoch, self.now_ms)
        self._note(appended.base_offset, base_offset, data, producer, count)

    def _note(self, found: int, expected: int, data: bytes, producer: int, count: int) -> None:
        assert found == expected, "an offset is used again, or left out"
        stored = bytearray(data)
        stored[0:8] = expected.to_bytes(8, "big")
        stored[12:16] = self.epoch.to_bytes(4, "big")
        self.written.append(bytes(stored))
        if producer >= 0:
            self.sequences[producer] += count

    @precondition(lambda self: self.written)
    @rule()
    def append_on_a_full_disk(self) -> None:
        self.files.space_limit = self.files.used_bytes() + 30
        try:
            self.log.append_as_leader(batch(2), self.epoch, self.now_ms)
        except ApiError as error:
            assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
        else:
            self._note(self.log.log_end_offset - 2, self.end_offset, batch(2), -1, 2)
        self.files.space_limit = None

    @rule()
    def acknowledge(self) -> None:
        answered: list[ApiError | None] = []
        self.directory.acknowledge(self.log, self.log.log_end_offset, answered.append)
        self.runtime.run()
        assert answered == [None]
        self.acknowledged = len(self.written)
        self.log.advance_high_watermark(self.log.log_end_offset)

    @rule()
    def checkpoint(self) -> None:
        run_at_once(self.directory.checkpoint())

    @rule()
    def checkpoint_high_watermarks(self) -> None:
        run_at_once(self.directory.checkpoint_high_watermarks())

    @rule()
    def start_an_epoch(self) -> None:
        self.epoch += 1
        self.log.assign_epoch(self.epoch)

    @rule(fraction=st.floats(0, 1))
    def truncate(self, fraction: float) -> None:
        kept = round(fraction * len(self.written))
        self.written = self.written[:kept]
        self.acknowledged = min(self.acknowledged, kept)
        self.log.truncate(self.end_offset)
        self.start = min(self.start, self.end_offset)
        self._recount()

    def _recount(self) -> None:
        """Sequences go on where the log has them."""
        for producer in self.sequences:
            state = self.log.producers.states.state_of(producer)
            self.sequences[producer] = state.batches[-1].last_sequence + 1 if state and state.batches else 0

    @rule(fraction=st.floats(0, 1))
    def delete_records(self, fraction: float) -> None:
        below = self.written[: round(fraction * self.acknowledged)]
        if below:
            offset = read_header(below[-1]).last_offset + 1
            assert self.log.delete_records(offset) == max(offset, self.start)
            self._forget_below(max(offset, self.start))

    def _forget_below(self, start: int) -> None:
        kept = [data for data in self.written if read_header(data).base_offset >= start]
        self.acknowledged = max(0, self.acknowledged - (len(self.written) - len(kept)))
        self.written, self.start = kept, start

    @rule(later_ms=st.sampled_from([0, 500, 2_000]))
    def delete_old_segments(self, later_ms: int) -> None:
        self.log.delete_old_segments(self.now_ms + later_ms)
        self._forget_below(self.log.log_start_offset)

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    # --- ends ---------------------------------------------------------------------------------------------------------

    @rule()
    def restart(self) -> None:
        self.directory.close(broker_epoch=1)
        self.acknowledged = len(self.written)
        self._open()
        assert self.log.log_end_offset == self.end_offset

    @rule()
    def kill(self) -> None:
        self.files.end_process()
        self._open()
        assert self.log.log_end_offset == self.end_offset

    @rule(seed=st.integers(0, 2**32), sector_bytes=st.sampled_from([512, 4096]))
    def lose_power(self, seed: int, sector_bytes: int) -> None:
        self.files.crash(random=Random(seed), sector_bytes=sector_bytes)
        self._recover()

    @rule(kept_bytes=st.sampled_from([0, 1, 70, 500, 10**9]))
    def lose_power_torn(self, kept_bytes: int) -> None:
        self.files.crash(kept_unsynced_bytes=kept_bytes)
        self._recover()

    @rule(
        operations=st.integers(0, 12),
        what=st.sampled_from(["append", "acknowledge", "truncate", "delete", "restart", "checkpoint"]),
        seed=st.one_of(st.none(), st.integers(0, 2**32)),
        fraction=st.floats(0, 1),
    )
    def be_killed_within(self, operations: int, what: str, seed: int | None, fraction: float) -> None:
        left = operations

        def stop(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed(f"{operation} of {path}")

        written, acknowledged, start = list(self.written), self.acknowledged, self.start
        self.files.before_operation = stop
        try:
            match what:
                case "append":
                    self.append(2, 40, -1)
                case "acknowledge":
                    self.acknowledge()
                case "truncate":
                    acknowledged = min(acknowledged, round(fraction * len(self.written)))
                    self.truncate(fraction)
                case "delete":
                    self.delete_old_segments(2_000)
                case "checkpoint":
                    self.checkpoint()
                case _:
                    self.restart()
        except Killed:
            self.written, self.acknowledged, self.start = written, acknowledged, start
        finally:
            self.files.before_operation = None
        if seed is None:
            self.files.end_process()
        else:
            self.files.crash(random=Random(seed))
        self._recover(may_have_more=what == "append", may_start_later=what == "delete")

    def _recover(self, *, may_have_more: bool = False, may_start_later: bool = False) -> None:
        """Start after a crash: a first part is there, at least what was acknowledged."""
        self._open()
        found = all_batches(self.log)
        if may_start_later:
            self._forget_below(self.log.log_start_offset)
        if may_have_more and len(found) > len(self.written):
            assert len(found) == len(self.written) + 1
            self.written.append(found[-1])
        assert self.acknowledged <= len(found)
        assert found == self.written[: len(found)]
        self.written = found
        self._recount()

    # --- what always holds --------------------------------------------------------------------------------------------

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.log_end_offset == max(self.end_offset, self.start)
        assert self.log.log_start_offset == self.start
        assert all_batches(self.log) == self.written
        check_agreement(self.log)
        expected = ProducerStates()
        for data in self.written:
            header = read_header(data)
            if header.producer_id >= 0:
                expected.append(header, None, 0)
        for producer in self.sequences:
            known, found = expected.state_of(producer), self.log.producers.states.state_of(producer)
            if known is not None:
                assert found is not None
                assert found.epoch == known.epoch
                assert [*found.batches][-len(known.batches) :] == [*known.batches]


TestDirectoryAgainstList = DirectoryAgainstList.TestCase
TestDirectoryAgainstList.settings = settings(
    max_examples=examples(200),
    stateful_step_count=40,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # to shrink a case takes longer than a test may
)
