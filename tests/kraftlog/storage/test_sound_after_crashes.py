"""No crash is taken for damage (DB-89): every deed is stopped before every operation on a file, and so is the start.

After each of these a start finds what a killed process leaves, what a loss of power leaves that keeps nothing unsynced,
or what one leaves that keeps some sectors and some names. It must find every log sound.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from random import Random
from uuid import UUID

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.files.memory import MemoryFileSystem
from kraftlog.storage import inventory
from kraftlog.storage.config import PartitionLogConfig
from kraftlog.storage.findings import Finding
from kraftlog.storage.log_directory import LogDirectory
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.storage.slices import run_at_once
from tests.effort import all_cases
from tests.kraftlog.storage.builders import (
    CLICKS,
    NOW_MS,
    TOPIC_ID,
    StepRuntime,
    append,
    batch,
    log_in,
    open_directory,
    rewrite,
)

GONE = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
OPERATIONS_MAX = 400


class Killed(BaseException):
    """The process ends here."""


@dataclass
class World:
    """One log of segments of two batches, of one record each."""

    config: PartitionLogConfig
    files: MemoryFileSystem = field(default_factory=MemoryFileSystem)
    runtime: StepRuntime = field(default_factory=StepRuntime)

    def __post_init__(self) -> None:
        self.directory: LogDirectory = open_directory(self.files, config=self.config, runtime=self.runtime)

    @property
    def log(self) -> PartitionLog:
        return log_in(self.directory, self.config)

    def grow(self, count: int) -> None:
        """Append, and flush nothing."""
        for _ in range(count):
            append(self.log, batch(1))

    def flush(self) -> None:
        """As a broker does, that is, the inventory is told."""
        self.directory.commits.wait(self.log, self.log.log_end_offset, lambda error: None)
        self.runtime.run()
        self.commit(self.log.log_end_offset)

    def commit(self, offset: int) -> None:
        self.log.advance_high_watermark(offset)


def nothing(_: World) -> None:
    """The deed makes the log."""


def flushed(world: World) -> None:
    world.grow(7)
    world.flush()
    run_at_once(world.directory.checkpoint())


def flushed_and_more(world: World) -> None:
    """Flushed up to 3, in the second segment; committed by others up to 9."""
    world.grow(3)
    world.flush()
    world.grow(6)
    world.commit(9)


def deleted_in_part(world: World) -> None:
    """Records are deleted up to the last segment; the segments are there."""
    flushed(world)
    world.log.delete_records(7)


def without_its_first_segments(world: World) -> None:
    deleted_in_part(world)
    world.log.delete_old_segments(NOW_MS)
    world.grow(3)
    world.flush()


def deleted_beyond_what_is_flushed(world: World) -> None:
    flushed_and_more(world)
    world.log.delete_records(9)


PREPARED = [
    nothing, flushed, flushed_and_more, deleted_in_part, without_its_first_segments, deleted_beyond_what_is_flushed,
]  # fmt: skip


def grow_and_flush(world: World) -> None:
    for _ in range(2):
        world.grow(5)
        world.flush()


def grow_beside_a_flush(world: World) -> None:
    """Roll while a flush is under way, which covers nothing of that."""
    world.grow(2)
    world.directory.commits.wait(world.log, world.log.log_end_offset, lambda error: None)
    world.directory.commits._flusher.recent_flush_ms = 1_000.0  # so it runs in the thread
    world.runtime.soon.pop(0)()
    world.grow(5)
    world.runtime.run()
    run_at_once(world.directory.checkpoint())


def roll_when_all_is_flushed(world: World) -> None:
    world.flush()
    world.log.roll(NOW_MS)
    run_at_once(world.directory.checkpoint())
    world.grow(1)
    run_at_once(world.directory.checkpoint_high_watermarks())


def retain_nothing(world: World) -> None:
    world.commit(world.log.log_end_offset)
    world.log.delete_old_segments(NOW_MS + 10_000)
    run_at_once(world.directory.checkpoint())


def retain_two_segments(world: World) -> None:
    world.commit(world.log.log_end_offset)
    world.log.delete_old_segments(NOW_MS)


def delete_records(world: World) -> None:
    world.commit(world.log.log_end_offset)
    world.log.delete_records(world.log.log_end_offset)
    world.log.delete_old_segments(NOW_MS)
    world.flush()


def cut_one(world: World) -> None:
    world.log.truncate(max(0, world.log.log_end_offset - 1))
    world.grow(4)
    world.flush()


def cut_to_a_segment(world: World) -> None:
    world.log.truncate(4)
    world.grow(3)
    world.flush()


def cut_below_the_start(world: World) -> None:
    world.log.truncate(2)
    world.grow(3)
    world.flush()


def cut_to_nothing(world: World) -> None:
    world.log.truncate(0)
    world.grow(5)
    world.flush()


def start_over_behind_the_end(world: World) -> None:
    world.log.truncate_fully_and_start_at(100)
    world.grow(5)
    world.flush()


def start_over_before_the_end(world: World) -> None:
    world.log.truncate_fully_and_start_at(3)
    world.grow(5)
    world.flush()


def go_and_be_made_again(world: World) -> None:
    world.directory.removal.delete_log(CLICKS, UUID(int=1), GONE)
    run_at_once(world.directory.removal.remove_deleted())
    world.grow(3)
    world.flush()


def be_set_aside(world: World) -> None:
    world.directory.removal.set_stray_aside(CLICKS, UUID(int=1), GONE)


def shut_down_and_start(world: World) -> None:
    world.directory.close(broker_epoch=41)
    world.directory = open_directory(world.files, config=world.config, runtime=world.runtime)
    world.grow(3)
    world.flush()
    world.directory.close(broker_epoch=42)


def find_no_room(world: World) -> None:
    """The disk is full, and what was reserved for the inventory is used."""
    world.files.space_limit = world.files.used_bytes()
    for deed in (lambda: world.grow(2), lambda: retain_two_segments(world), lambda: world.log.truncate(1)):
        with contextlib.suppress(ApiError):
            deed()
    world.files.space_limit = None
    world.grow(3)
    world.flush()


def merge_segments(world: World) -> None:
    world.flush()
    log = world.log
    end_offset, start = log.rewrites.end_offset, log._segments.first.base_offset
    if start < end_offset:
        rewrite(log, range(start, end_offset), [start]).finish()
    world.grow(2)
    world.flush()


def split_a_segment(world: World) -> None:
    world.flush()
    log = world.log
    segments = log._segments.from_offset(0)
    if log.rewrites.end_offset > segments[0].base_offset:
        start, end = segments[0].base_offset, segments[1].base_offset
        rewrite(log, range(start, end), [start, start + 1]).finish()
    world.grow(2)
    world.flush()


DEEDS = [
    grow_and_flush, grow_beside_a_flush, roll_when_all_is_flushed, retain_nothing, retain_two_segments,
    delete_records, cut_one, cut_to_a_segment, cut_below_the_start, cut_to_nothing, start_over_behind_the_end,
    start_over_before_the_end, go_and_be_made_again, be_set_aside, shut_down_and_start, find_no_room, merge_segments,
    split_a_segment,
]  # fmt: skip


def stop_before(files: MemoryFileSystem, operations: int, deed: Callable[[], object]) -> bool:
    """Do something in a process that is stopped when it has done so many operations; whether it was."""
    left = operations

    def stop(_: str, __: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed

    files.before_operation = stop
    try:
        deed()
    except Killed:
        return True
    finally:
        files.before_operation = None
    return False


def states(files: MemoryFileSystem, deed: Callable[[], object]) -> list[MemoryFileSystem]:
    """Do something; copies of the files before each of its operations, and when all is done."""
    found: list[MemoryFileSystem] = []

    def keep(_: str, __: str) -> None:
        assert len(found) < OPERATIONS_MAX, "the deed does not end"
        files.before_operation = None
        found.append(deepcopy(files))
        files.before_operation = keep

    files.before_operation = keep
    deed()
    files.before_operation = None
    return [*found, files]


def is_new(image: MemoryFileSystem, seen: set[object]) -> bool:
    """Whether no image was noted that has the same files, with which a start does the same; it is noted."""
    files = frozenset(
        (path, frozenset((name, bytes(of.current), of.is_read_only) for name, of in directory.current.items()))
        for path, directory in image._directories.items()
    )
    if files in seen:
        return False
    seen.add(files)
    return True


def images(files: MemoryFileSystem, seeds: range) -> Iterator[tuple[str, MemoryFileSystem]]:
    """What a kill leaves, and what losses of power may leave."""
    files.space_limit = None
    killed = deepcopy(files)
    killed.end_process()
    yield "killed", killed
    powerless = deepcopy(files)
    powerless.crash()
    yield "nothing kept", powerless
    for seed in seeds:
        torn = deepcopy(files)
        torn.crash(random=Random(seed))
        yield f"seed {seed}", torn


def check_is_sound(files: MemoryFileSystem, config: PartitionLogConfig, what: str) -> None:
    directory = open_directory(files, config=config)
    assert not directory.offline_reason, what
    if CLICKS not in directory.logs and CLICKS not in directory.damaged:
        assert directory.findings.assess_missing(CLICKS, TOPIC_ID) is Finding.NEW, what
    elif directory.records.entry(CLICKS) is None:
        # It was about to be deleted: consider one that starts at what a loss of power has taken.
        assert directory.findings.assess(CLICKS, None) is Finding.STRAY, what
    else:
        assert directory.damaged == {}, what
        assert directory.findings.assess(CLICKS, TOPIC_ID) is Finding.SOUND, what


# Fewer in the fast suite: those in which the most had to be mended.
CASES = [
    pytest.param(prepare, deed, flushes, preallocates, marks=() if is_fast else pytest.mark.slow)
    for prepare in PREPARED
    for deed in DEEDS
    for flushes, preallocates, is_fast in [
        (False, True, prepare is flushed_and_more),
        (True, False, False),
    ]
]


@pytest.mark.parametrize(("prepare", "deed", "flushes", "preallocates"), CASES)
def test_db89_no_crash_is_taken_for_damage(
    prepare: Callable[[World], None], deed: Callable[[World], None], flushes: bool, preallocates: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """DB-89."""
    monkeypatch.setattr(inventory, "APPENDED_BYTES_MAX", 600)  # so that the file is rewritten
    config = configured(flushes=flushes, preallocates=preallocates)
    world = World(config)
    prepare(world)
    seen: set[object] = set()
    for operations, files in enumerate(states(world.files, partial(deed, world))):
        for what, image in images(files, range(2 if all_cases() else 1)):
            if is_new(image, seen):
                check_is_sound(image, config, f"{what} before operation {operations}")


def configured(*, flushes: bool, preallocates: bool) -> PartitionLogConfig:
    return PartitionLogConfig(
        segment_bytes=160, index_interval_bytes=0, retention_ms=1_000, retention_bytes=300, flush_before_ack=flushes,
        preallocates=preallocates,
    )  # fmt: skip


@pytest.mark.parametrize("prepare", PREPARED)
@pytest.mark.parametrize("before", [None, 16, *(pytest.param(n, marks=pytest.mark.slow) for n in (4, 10, 22, 28, 34))])
def test_db89_no_crash_of_a_start_is_taken_for_damage(prepare: Callable[[World], None], before: int | None) -> None:
    """DB-89; `before`: the start is after a log was stopped on its way to start over; None: after an idle one was."""
    config = configured(flushes=False, preallocates=False)
    world = World(config)
    prepare(world)
    if before is not None:
        stop_before(world.files, before, partial(start_over_behind_the_end, world))
    for first, crashed in images(world.files, range(1)):
        files, seen = deepcopy(crashed), set[object]()
        for operations, found in enumerate(states(files, partial(open_directory, files, config=config))):
            for what, image in images(found, range(1)):
                if is_new(image, seen):
                    check_is_sound(image, config, f"{first}, then {what} before operation {operations} of a start")
