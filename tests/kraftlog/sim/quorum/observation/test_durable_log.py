"""What the checkers see of the log on a disk: the same if they look after every change or once at the end."""

from __future__ import annotations

from random import Random

import pytest

from kraftbase.files.memory import MemoryFileSystem
from kraftbase.types import Epoch, Offset
from kraftlog.sim.quorum.observation.durable_log import DurableLog
from raft.core.epochs import LOG_BEGINNING
from raft.core.types import OffsetAndEpoch
from raft.storage.batch import encode_batch, encode_body
from raft.storage.segmented_log import LogConfig, SegmentedLog
from tests.effort import some
from tests.kraftlog.sim.quorum.invariants.builders import at
from tests.raft.storage.builders import all_batches
from tests.raft.storage.crash_points import stop_everywhere

SMALL = LogConfig(segment_bytes=400, preallocate_bytes=64, reserve_bytes=0, tail_cache_bytes=0)


def append(log: SegmentedLog, epoch: int) -> None:
    log.append((encode_batch(log.log_end_offset, Epoch(epoch), encode_body([b"record"]), 1, 0),))


def test_only_what_is_synced_is_seen() -> None:
    files = MemoryFileSystem()
    log = SegmentedLog.open(files, "log", config=SMALL)
    seen = DurableLog()
    append(log, 1)
    seen.refresh(files, "log")
    assert seen.end_offset == 0
    log.flush()
    seen.refresh(files, "log")
    assert seen.end_offset == 1
    assert seen.batches == list(log.read_batches(Offset(0), 1_000))


@pytest.mark.parametrize("seed", some(range(30), part=4))
def test_looking_after_every_change_is_the_same_as_looking_once(seed: int) -> None:
    random = Random(seed)
    files = MemoryFileSystem()
    log = SegmentedLog.open(files, "log", config=SMALL)
    often = DurableLog()
    epoch = 1
    for _ in range(80):
        match random.randrange(10):
            case 0 | 1 | 2 | 3:
                append(log, epoch)
            case 4 | 5 | 6:
                log.flush()
            case 7:
                log.truncate(Offset(random.randint(max(0, log.log_end_offset - 3), log.log_end_offset)))
                epoch += 1
            case 8:
                log.flush()
                log.write_marker()
            case 9:
                files.crash(random=random)
                log = SegmentedLog.open(files, "log", config=SMALL)
        often.refresh(files, "log")
        assert often.batches == all_batches(log)[: len(often.batches)]
        assert often.end_offset >= log.flushed_end_offset
    once = DurableLog()
    once.refresh(files, "log")
    assert once.batches == often.batches


def test_a_batch_that_was_cut_and_written_anew_counts_as_changed() -> None:
    files = MemoryFileSystem()
    log = SegmentedLog.open(files, "log", config=SMALL)
    seen = DurableLog()
    for _ in range(3):
        append(log, 1)
    log.flush()
    seen.refresh(files, "log")
    log.truncate(Offset(1))
    append(log, 2)
    log.flush()
    seen.refresh(files, "log")
    assert [batch.epoch for batch in seen.batches] == [1, 2]
    assert seen.first_changed <= 1


def test_damage_ends_what_is_seen() -> None:
    files = MemoryFileSystem()
    log = SegmentedLog.open(files, "log", config=LogConfig(preallocate_bytes=64, reserve_bytes=0))
    for _ in range(3):
        append(log, 1)
    log.flush()
    seen = DurableLog()
    seen.refresh(files, "log")
    name, file = next(iter(files.durable_files("log").items()))
    position = len(file.data) // 2
    files.damage(f"log/{name}", position, bytes([file.data[position] ^ 1]))
    seen.refresh(files, "log")
    assert seen.end_offset < 3


# --- a log that starts behind a snapshot ------------------------------------------------------------------------------


def written(files: MemoryFileSystem, count: int = 9) -> SegmentedLog:
    """A flushed log of some segments."""
    log = SegmentedLog.open(files, "log", config=SMALL)
    for _ in range(count):
        append(log, 1)
    log.flush()
    return log


def seen_on(files: MemoryFileSystem) -> DurableLog:
    seen = DurableLog()
    seen.refresh(files, "log")
    return seen


def test_a_start_within_a_segment_hides_what_is_below() -> None:
    files = MemoryFileSystem()
    log = written(files)
    log.advance_start(at(5))
    seen = seen_on(files)
    assert seen.start == at(5)
    assert seen.from_start() == all_batches(log)
    assert seen.batches[0].base_offset < 5
    assert seen.holds(0, 7) and seen.holds(5, 1)
    assert not seen.holds(5, 2) and not seen.holds(9, 1)


def test_a_log_that_began_anew_is_empty_at_its_start() -> None:
    files = MemoryFileSystem()
    log = written(files)
    log.truncate_fully_and_start_at(at(20, 3))
    seen = seen_on(files)
    assert (seen.start, seen.end_offset, seen.batches) == (at(20, 3), 20, [])
    append(log, 3)
    log.flush()
    seen.refresh(files, "log")
    assert (seen.end_offset, seen.from_start()) == (21, all_batches(log))


@pytest.mark.parametrize("what", ["moves on", "starts over"])
def test_an_interrupted_removal_or_beginning_anew_is_seen_as_the_log_that_opens(what: str) -> None:
    start = at(7) if what == "moves on" else at(20, 3)

    def story(files: MemoryFileSystem, often: DurableLog) -> None:
        log = written(files)
        often.refresh(files, "log")
        (log.advance_start if what == "moves on" else log.truncate_fully_and_start_at)(start)

    def verify(files: MemoryFileSystem, often: DurableLog) -> None:
        often.refresh(files, "log")
        once = seen_on(files)
        assert (once.start, once.batches) == (often.start, often.batches)
        log = SegmentedLog.open(files, "log", config=SMALL)
        assert once.start == log.start
        assert once.from_start() == all_batches(log)
        assert once.start in (LOG_BEGINNING, start)

    assert stop_everywhere(lambda files: DurableLog(), story, verify) > 20


def test_damage_below_the_start_hides_what_follows_in_that_segment_and_nothing_that_is_in_a_snapshot() -> None:
    files = MemoryFileSystem()
    written(files).advance_start(at(5))
    name, file = min(files.durable_files("log").items())
    assert name.endswith(".log")
    files.damage(f"log/{name}", 10, bytes([file.data[10] ^ 1]))
    seen = seen_on(files)
    assert seen.from_start() == []
    assert seen.holds(4, 1)
    assert not seen.holds(5, 1)


def test_damage_below_the_start_in_a_segment_that_is_gone_is_none() -> None:
    files = MemoryFileSystem()
    log = written(files, 20)
    before = sorted(files.durable_files("log"))
    log.advance_start(at(19))
    assert sorted(files.durable_files("log"))[0] != before[0]
    assert seen_on(files).from_start() == all_batches(log)


@pytest.mark.parametrize("seed", some(range(20), part=4))
def test_looking_after_every_change_is_the_same_when_the_start_moves(seed: int) -> None:
    random = Random(seed)
    files = MemoryFileSystem()
    log = SegmentedLog.open(files, "log", config=SMALL)
    often = DurableLog()
    for _ in range(60):
        match random.randrange(8):
            case 0 | 1 | 2 | 3:
                append(log, log.epochs.last_epoch or 1)
            case 4 | 5:
                log.flush()
                offset = Offset(random.randint(log.log_start_offset, log.log_end_offset))
                log.advance_start(OffsetAndEpoch(epoch=log.epochs.epoch_before(offset), offset=offset))
            case 6 if random.random() < 0.3:
                log.truncate_fully_and_start_at(
                    at(log.log_end_offset + random.randint(1, 9), log.epochs.last_epoch + 1)
                )
            case 7:
                files.crash(random=random)
                log = SegmentedLog.open(files, "log", config=SMALL)
        often.refresh(files, "log")
        assert often.start == log.start
        assert often.from_start() == all_batches(log)[: len(often.from_start())]
        assert often.end_offset >= log.flushed_end_offset
    once = seen_on(files)
    assert (once.start, once.batches) == (often.start, often.batches)
