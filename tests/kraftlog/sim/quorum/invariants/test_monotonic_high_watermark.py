"""What is committed stays committed."""

from __future__ import annotations

import pytest

from kraftlog.sim.quorum.invariants.monotonic_high_watermark import MonotonicHighWatermark
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, at, batches, violates


def known(high_watermark: int) -> tuple[Cluster, MonotonicHighWatermark]:
    """Node 1 has three records, and knows this many as committed."""
    cluster = Cluster()
    invariant = MonotonicHighWatermark(cluster)
    cluster.store(1, *batches(1, 1, 1))
    cluster.become(1, high_watermark=high_watermark)
    invariant.after_step(cluster.step(1))
    return cluster, invariant


def test_it_grows_up_to_the_end_of_the_log() -> None:
    cluster, invariant = known(-1)
    for high_watermark in (0, 2, 2, 3):
        cluster.become(1, high_watermark=high_watermark)
        invariant.after_step(cluster.step(1))


def test_it_must_not_go_back() -> None:
    cluster, invariant = known(2)
    cluster.become(1, high_watermark=1)
    with violates(invariant):
        invariant.after_step(cluster.step(1))


def test_it_must_not_be_past_the_log() -> None:
    cluster, invariant = known(2)
    cluster.become(1, high_watermark=4)
    with violates(invariant):
        invariant.after_step(cluster.step(1))


def test_a_new_process_learns_it_anew() -> None:
    cluster, invariant = known(3)
    invariant.after_step(cluster.start(1))
    cluster.become(1, high_watermark=1)
    invariant.after_step(cluster.step(1))


def test_a_new_process_must_not_guess_it() -> None:
    cluster, invariant = known(3)
    with violates(invariant):
        invariant.after_step(cluster.start(1, high_watermark=3))


def test_a_sole_voter_knows_it_at_once() -> None:
    cluster = Cluster(voter_count=1)
    cluster.store(1, *batches(1, 1, 1))
    MonotonicHighWatermark(cluster).after_step(cluster.start(1, high_watermark=3))


@pytest.mark.parametrize("high_watermark", [2, 3])
def test_a_new_process_knows_what_its_newest_snapshot_holds_and_no_more(high_watermark: int) -> None:
    cluster, invariant = known(3)
    step = cluster.start(1, high_watermark=high_watermark, latest_snapshot_id=at(2))
    if high_watermark == 2:
        invariant.after_step(step)
        return
    with violates(invariant):
        invariant.after_step(step)


def test_a_new_process_knows_that_what_is_below_its_log_start_is_committed() -> None:
    cluster, invariant = known(3)
    cluster.advance(1, at(2))
    invariant.after_step(cluster.start(1, high_watermark=2))


def test_a_snapshot_that_takes_the_place_of_the_log_takes_nothing_back() -> None:
    cluster, invariant = known(3)
    step = cluster.truncate_fully_and_start_at(1, at(9))
    cluster.become(1, high_watermark=9)
    invariant.after_step(step)
    cluster.become(1, high_watermark=3)
    with violates(invariant):
        invariant.after_step(cluster.step(1))
