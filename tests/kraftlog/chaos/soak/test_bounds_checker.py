"""The judge keeps the worst of each figure, and ends a run whose files run away."""

from __future__ import annotations

from kraftbase.types import NodeId
from kraftlog.chaos.arena import Start
from kraftlog.chaos.soak.bounds_checker import BoundsChecker
from kraftlog.chaos.soak.limits import MEBIBYTE, RUNAWAY_BYTES, START_SECONDS_MAX, WAL_BYTES_MAX
from kraftlog.chaos.soak.samples import FileKind
from tests.kraftlog.chaos.soak.samples import ONE, sample

TWO = NodeId(2)


def test_the_worst_of_all_nodes_and_times_is_kept() -> None:
    checker = BoundsChecker(500.0)
    checker.see_samples([sample({FileKind.WAL: 5}), sample({FileKind.WAL: 9}, node_id=TWO, at_seconds=0.5)], [])
    checker.see_samples([sample({FileKind.WAL: 7}, at_seconds=1.0)], [])
    worst = checker.worst["metadata.db-wal bytes"]
    assert (worst.node_id, worst.measure.value, worst.at_seconds) == (TWO, 9, 0.5)


def test_each_bound_has_one_story_with_its_worst() -> None:
    checker = BoundsChecker(500.0)
    for more in (1, 3, 2):
        checker.see_samples([sample({FileKind.WAL: WAL_BYTES_MAX + more, FileKind.DAMAGED: more})], [])
    stories = checker.violations()
    assert len(stories) == 2
    assert any("67,108,867" in story for story in stories)


def test_the_points_of_the_plot_are_the_most_of_any_node() -> None:
    checker = BoundsChecker(500.0)
    checker.see_samples(
        [sample({FileKind.LOG: 5, FileKind.WAL: 1}), sample({FileKind.LOG: 2, FileKind.WAL: 8}, node_id=TWO)], []
    )
    (point,) = checker.points
    assert (point.file_bytes[FileKind.LOG], point.file_bytes[FileKind.WAL]) == (5, 8)


def test_starts_are_held_against_three_seconds_or_two_first_starts_of_the_slowest() -> None:
    checker = BoundsChecker(500.0)
    checker.see_first_starts([Start(ONE, 0.0, 1.0, 0.0), Start(TWO, 0.0, 9.0, 4.0)])
    checker.see_start(Start(TWO, 7.0, 10.0, 0.0))
    assert checker.violations() == []
    assert checker.worst["seconds to start"].measure.limit == 10.0 > START_SECONDS_MAX
    checker.see_start(Start(TWO, 8.0, 10.5, 0.0))
    assert checker.violations() == ["seconds to start: node 2 had 10.5 at 8 s; the bound is 10"]


def test_files_that_run_away_are_noticed() -> None:
    checker = BoundsChecker(500.0)
    checker.see_samples([sample({FileKind.LOG: MEBIBYTE, FileKind.WAL: RUNAWAY_BYTES - MEBIBYTE})], [])
    assert checker.runaway is None
    checker.see_samples([sample({FileKind.LOG: MEBIBYTE, FileKind.WAL: RUNAWAY_BYTES})], [])
    assert checker.runaway is not None
    assert "the run ended early" in checker.violations()[-1]
