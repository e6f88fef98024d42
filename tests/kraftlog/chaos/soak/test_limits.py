"""Each bound accepts a figure at it and refuses one beyond it; the samples here are invented."""

from __future__ import annotations

import math

import pytest

from kraftbase.types import NodeId
from kraftlog.chaos.arena import Reading, Start
from kraftlog.chaos.soak import limits
from kraftlog.chaos.soak.bounds_checker import BoundsChecker
from kraftlog.chaos.soak.limits import MEBIBYTE, WAL_BYTES_MAX, measures, start_measure, wal_bytes_max
from kraftlog.chaos.soak.samples import FileKind, Sample, Written
from tests.kraftlog.chaos.soak.samples import ONE, process, sample

RATE = 500.0
AT_THE_BOUND = {
    "metadata.db-wal bytes": sample({FileKind.WAL: limits.WAL_BYTES_MAX}),
    "log bytes": sample({FileKind.LOG: limits.log_bytes_max(RATE)}),
    "metadata.db bytes": sample({FileKind.DATABASE: limits.DATABASE_BYTES_MAX}),
    "unfinished bytes": sample({FileKind.UNFINISHED: limits.UNFINISHED_BYTES_MAX}),
    "damaged bytes": sample({FileKind.DAMAGED: limits.DAMAGED_BYTES_MAX}),
    "small bytes": sample({FileKind.SMALL: limits.SMALL_BYTES_MAX}),
    "snapshots": sample(snapshots=limits.SNAPSHOTS_MAX),
    "resident bytes": sample(process=process(resident_bytes=limits.RESIDENT_BYTES_MAX)),
    "descriptors": sample(process=process(descriptors=limits.DESCRIPTORS_MAX)),
    "threads": sample(process=process(threads=limits.THREADS_MAX)),
}
BEYOND = {
    "metadata.db-wal bytes": sample({FileKind.WAL: limits.WAL_BYTES_MAX + 1}),
    "log bytes": sample({FileKind.LOG: limits.log_bytes_max(RATE) + 1}),
    "metadata.db bytes": sample({FileKind.DATABASE: limits.DATABASE_BYTES_MAX + 1}),
    "unfinished bytes": sample({FileKind.UNFINISHED: limits.UNFINISHED_BYTES_MAX + 1}),
    "damaged bytes": sample({FileKind.DAMAGED: limits.DAMAGED_BYTES_MAX + 1}),
    "small bytes": sample({FileKind.SMALL: limits.SMALL_BYTES_MAX + 1}),
    "snapshots": sample(snapshots=limits.SNAPSHOTS_MAX + 1),
    "resident bytes": sample(process=process(resident_bytes=limits.RESIDENT_BYTES_MAX + 1)),
    "descriptors": sample(process=process(descriptors=limits.DESCRIPTORS_MAX + 1)),
    "threads": sample(process=process(threads=limits.THREADS_MAX + 1)),
}


def broken(found: Sample) -> list[str]:
    return [measure.name for measure in measures(found, [], Written(), RATE) if not measure.holds]


def test_every_measure_of_a_sample_is_tried_here() -> None:
    names = {measure.name for measure in measures(sample(process=process()), [], Written(), RATE)}
    assert names == set(AT_THE_BOUND) == set(BEYOND)


@pytest.mark.parametrize("name", AT_THE_BOUND)
def test_what_is_at_its_bound_is_accepted(name: str) -> None:
    assert broken(AT_THE_BOUND[name]) == []
    checker = BoundsChecker(RATE)
    checker.see_samples([AT_THE_BOUND[name]], [])
    assert checker.violations() == []


@pytest.mark.parametrize("name", BEYOND)
def test_what_is_beyond_its_bound_is_rejected(name: str) -> None:
    assert broken(BEYOND[name]) == [name]
    checker = BoundsChecker(RATE)
    checker.see_samples([BEYOND[name]], [])
    (story,) = checker.violations()
    assert story.startswith(f"{name}: node 1 had ")


@pytest.mark.parametrize(
    ("seconds", "waited", "first", "holds"),
    [
        (3.0, 0.0, 1.0, True),
        (3.1, 0.0, 1.0, False),
        (9.0, 6.0, 1.0, True),  # other processes had the processors
        (9.0, 5.9, 1.0, False),
        (4.0, 0.0, 2.0, True),  # an empty node takes half as long on this machine
        (4.1, 0.0, 2.0, False),
    ],
)
def test_a_start_takes_three_seconds_of_its_own_at_most(
    seconds: float, waited: float, first: float, holds: bool
) -> None:
    assert start_measure(Start(ONE, 0.0, seconds, waited), first).holds is holds


# --- the write-ahead log behind readers -------------------------------------------------------------------------------


def written(*megabytes: int) -> Written:
    """How much by second 0, 1, 2 ..."""
    found = Written()
    for at_seconds, size in enumerate(megabytes):
        found.note(sample(at_seconds=at_seconds, process=process(written_bytes=size * MEBIBYTE)))
    return found


def test_nobody_reads_and_a_new_reader_change_nothing() -> None:
    assert wal_bytes_max(3.0, [], written(0, 10, 20, 30)) == WAL_BYTES_MAX
    assert wal_bytes_max(3.0, [Reading(ONE, 2.0)], written(0, 10, 20, 30)) == WAL_BYTES_MAX
    assert wal_bytes_max(1.5, [Reading(ONE, 2.0)], written(0, 10, 20, 30)) == WAL_BYTES_MAX


def test_an_old_reader_allows_what_was_written_since_it_began() -> None:
    assert wal_bytes_max(3.0, [Reading(ONE, 1.0)], written(0, 10, 20, 35)) == WAL_BYTES_MAX + 25 * MEBIBYTE


def test_the_oldest_of_several_readers_counts() -> None:
    readings = [Reading(ONE, 2.5), Reading(ONE, 0.0), Reading(ONE, 1.0)]
    assert wal_bytes_max(3.0, readings, written(0, 10, 20, 35)) == WAL_BYTES_MAX + 35 * MEBIBYTE


def test_a_reader_counts_for_some_time_after_its_end_and_not_for_ever() -> None:
    reading = Reading(ONE, 0.0, ended=5.0)
    one_a_second = written(*range(30))
    last = 5.0 + limits.READER_GRACE_SECONDS
    assert wal_bytes_max(last - 0.1, [reading], one_a_second) > WAL_BYTES_MAX
    assert wal_bytes_max(last, [reading], one_a_second) == WAL_BYTES_MAX


def test_no_reader_may_hold_more_than_the_stop() -> None:
    most = limits.WAL_STOP_BYTES + limits.WAL_STOP_SLACK_BYTES
    assert wal_bytes_max(2.0, [Reading(ONE, 0.0)], written(0, 400, 9000)) == most


def test_a_reader_that_held_too_much_is_told_of() -> None:
    """It began at 0, 10 MiB were written since, and 74 MiB are the bound."""
    for size, wrong in ((74 * MEBIBYTE, 0), (74 * MEBIBYTE + 1, 1)):
        checker = BoundsChecker(RATE)
        for at_seconds in range(3):
            found = sample(
                {FileKind.WAL: size if at_seconds == 2 else 0},
                at_seconds=at_seconds,
                process=process(written_bytes=at_seconds * 5 * MEBIBYTE),
            )
            checker.see_samples([found], [Reading(ONE, 0.0)])
        assert len(checker.violations()) == wrong


def test_another_node_s_reader_is_no_excuse() -> None:
    checker = BoundsChecker(RATE)
    found = sample({FileKind.WAL: WAL_BYTES_MAX + 1}, at_seconds=9.0, process=process(written_bytes=MEBIBYTE))
    checker.see_samples([found], [Reading(NodeId(2), 0.0)])
    assert len(checker.violations()) == 1


def test_what_is_written_goes_on_in_the_next_process() -> None:
    found = Written()
    for at_seconds, (pid, size) in enumerate([(1, 5), (1, 10), (2, 1), (2, 4)]):
        found.note(sample(at_seconds=at_seconds, process=process(pid=pid, written_bytes=size)))
    found.note(sample(at_seconds=9.0))  # it does not run
    assert found.since(-math.inf) == 14
    assert found.since(0.0) == 9
    assert found.since(1.5) == 4
    assert found.since(3.0) == 0
    assert Written().since(0.0) == 0
