"""Start, applied, flushed, committed and end of log are in order."""

from __future__ import annotations

import pytest

from kraftbase.types import Offset
from kraftlog.sim.quorum.invariants.state_ordering import StateOrdering
from kraftlog.sim.quorum.observation.node_view import AppliedState
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, at, batches, violates


def with_records(flushed: int, unflushed: int, high_watermark: int, applied: int) -> tuple[Cluster, StateOrdering]:
    cluster = Cluster()
    epochs = [1] * (flushed + unflushed)
    cluster.store(1, *batches(*epochs)[:flushed])
    cluster.append(1, *batches(*epochs)[flushed:])
    cluster.become(1, high_watermark=high_watermark)
    cluster.nodes[1].applied = AppliedState(Offset(applied), "digest")
    return cluster, StateOrdering(cluster)


@pytest.mark.parametrize(
    ("flushed", "unflushed", "high_watermark", "applied"),
    [(2, 0, 2, 2), (1, 2, 3, 1), (2, 0, 1, 2), (2, 1, -1, 2)],
    ids=["all", "committed before it is flushed here", "learned again after a start", "not known after a start"],
)
def test_ends_in_order(flushed: int, unflushed: int, high_watermark: int, applied: int) -> None:
    cluster, invariant = with_records(flushed, unflushed, high_watermark, applied)
    invariant.after_step(cluster.step(1))


@pytest.mark.parametrize(
    ("flushed", "unflushed", "high_watermark", "applied"),
    [(1, 1, 3, 0), (1, 2, 3, 2)],
    ids=["committed past the log", "applied past the disk"],
)
def test_ends_out_of_order(flushed: int, unflushed: int, high_watermark: int, applied: int) -> None:
    cluster, invariant = with_records(flushed, unflushed, high_watermark, applied)
    with violates(invariant):
        invariant.after_step(cluster.step(1))


def test_a_disk_that_lost_data_may_hold_less_than_is_applied() -> None:
    cluster, invariant = with_records(2, 0, 2, 2)
    invariant.after_step(cluster.lose(1))


def test_flushed_must_not_be_past_the_end() -> None:
    cluster, invariant = with_records(1, 0, 1, 0)
    cluster.log(1)._flushed_end_offset = Offset(2)
    with violates(invariant):
        invariant.after_step(cluster.step(1))


def test_a_node_whose_log_is_behind_its_replica_is_judged_later() -> None:
    cluster, invariant = with_records(1, 0, 2, 0)
    cluster.nodes[1].is_behind = True
    invariant.after_step(cluster.step(1))


def test_the_log_start_is_not_past_what_is_committed() -> None:
    cluster, invariant = with_records(2, 1, 2, 2)
    invariant.after_step(cluster.advance(1, at(2)))
    cluster.become(1, high_watermark=1)
    with violates(invariant):
        invariant.after_step(cluster.step(1))


def test_what_a_snapshot_holds_that_took_the_place_of_the_log_is_on_the_disk() -> None:
    cluster, invariant = with_records(2, 0, 2, 2)
    step = cluster.truncate_fully_and_start_at(1, at(5))
    cluster.become(1, high_watermark=5)
    invariant.after_step(step)
    cluster.nodes[1].applied = AppliedState(Offset(5), "digest")
    invariant.after_step(cluster.step(1))
    cluster.nodes[1].applied = AppliedState(Offset(6), "digest")
    with violates(invariant):
        invariant.after_step(cluster.step(1))
