"""Logs that agree at one offset agree below it."""

from __future__ import annotations

import pytest

from kraftlog.sim.quorum.invariants.log_matching import LogMatching
from raft.core.types import Batch
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, at, batches, violates
from tests.raft.storage.builders import data_batch


def test_prefixes_and_logs_that_part_are_fine() -> None:
    cluster = Cluster()
    invariant = LogMatching(cluster)
    invariant.after_step(cluster.store(1, *batches(1, 1, 3)))
    invariant.after_step(cluster.store(2, *batches(1, 1)))
    invariant.after_step(cluster.store(3, *batches(1, 2)))
    invariant.after_step(cluster.cut(3, 1))
    invariant.after_step(cluster.store(3, *batches(1, 1, 3)[1:]))


@pytest.mark.parametrize(
    "other",
    [
        [data_batch(0, 1), data_batch(1, 1, size=21)],
        [data_batch(0, 1), data_batch(1, 1, record_count=2)],
        [data_batch(0, 2), data_batch(1, 2), data_batch(2, 3)],
    ],
    ids=["other bytes", "another border", "another epoch before it"],
)
def test_what_differs_below_a_common_batch_is_wrong(other: list[Batch]) -> None:
    cluster = Cluster()
    invariant = LogMatching(cluster)
    invariant.after_step(cluster.store(1, *batches(1, 1, 3)))
    with violates(invariant):
        invariant.after_step(cluster.disk_holds(2, *other))


@pytest.mark.parametrize("first", [0, 1])
def test_batches_that_overlap_in_one_epoch_and_begin_elsewhere_are_wrong(first: int) -> None:
    logs = [
        [data_batch(0, 1), data_batch(1, 2, record_count=3)],
        [data_batch(0, 1), data_batch(1, 1), data_batch(2, 2)],
    ]
    cluster = Cluster()
    invariant = LogMatching(cluster)
    invariant.after_step(cluster.store(1, *logs[first]))
    with violates(invariant):
        invariant.after_step(cluster.store(2, *logs[1 - first]))


def test_what_was_on_a_disk_once_is_remembered() -> None:
    cluster = Cluster()
    invariant = LogMatching(cluster)
    invariant.after_step(cluster.store(1, *batches(1, 2)))
    invariant.after_step(cluster.cut(1, 0))
    with violates(invariant):
        invariant.after_step(cluster.store(1, data_batch(0, 1, size=21)))


def test_a_log_that_begins_behind_a_snapshot_is_compared_from_there() -> None:
    cluster = Cluster()
    invariant = LogMatching(cluster)
    log = batches(1, 1, 3, 3)
    invariant.after_step(cluster.store(1, *log))
    invariant.after_step(cluster.advance(1, at(3, 3)))
    invariant.after_step(cluster.truncate_fully_and_start_at(2, at(2)))
    invariant.after_step(cluster.store(2, *log[2:]))
    cluster.truncate_fully_and_start_at(3, at(3, 3))
    with violates(invariant):
        invariant.after_step(cluster.store(3, data_batch(3, 3, size=21)))


def test_the_epoch_before_the_start_counts() -> None:
    cluster = Cluster()
    invariant = LogMatching(cluster)
    log = batches(1, 1, 3)
    invariant.after_step(cluster.store(1, *log))
    cluster.truncate_fully_and_start_at(2, at(2, 2))
    with violates(invariant):
        invariant.after_step(cluster.store(2, *log[2:]))
