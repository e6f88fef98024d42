"""Every acknowledged operation is on disks."""

from __future__ import annotations

import pytest

from kraftbase.types import Offset
from kraftlog.sim.quorum.invariants.durability import Durability
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, at, batches, violates


def acknowledging(disks: int) -> tuple[Cluster, Durability]:
    """Two batches are acknowledged and committed, and on that many disks."""
    cluster = Cluster()
    cluster.commit(*batches(1, 1))
    for node_id in range(1, disks + 1):
        cluster.store(node_id, *batches(1, 1))
    cluster.acknowledged_end_offsets = [Offset(2)]
    return cluster, Durability(cluster)


def test_a_majority_of_disks_is_enough() -> None:
    cluster, invariant = acknowledging(2)
    invariant.after_step(cluster.step(1))
    invariant.at_end()


def test_less_is_not_while_nothing_was_damaged() -> None:
    cluster, invariant = acknowledging(1)
    with violates(invariant):
        invariant.after_step(cluster.step(1))


def test_a_disk_that_forgets_later_is_noticed() -> None:
    cluster, invariant = acknowledging(2)
    invariant.after_step(cluster.step(1))
    invariant.after_step(cluster.step(2))
    cluster.cut(2, 1)
    with violates(invariant):
        invariant.after_step(cluster.step(2))


def test_one_disk_is_enough_while_damage_has_the_other() -> None:
    cluster, invariant = acknowledging(2)
    invariant.after_step(cluster.step(2))
    invariant.after_step(cluster.lose(2))


@pytest.mark.parametrize("may_lose_quorum", [False, True])
def test_no_disk_is_not_unless_the_run_destroys_a_majority(may_lose_quorum: bool) -> None:
    cluster, invariant = acknowledging(2)
    cluster.faults_may_lose_quorum = may_lose_quorum
    cluster.lose(1)
    cluster.lose(2)
    if may_lose_quorum:
        invariant.after_step(cluster.step(3))
        return
    with violates(invariant):
        invariant.after_step(cluster.step(3))


def test_what_nobody_knew_as_committed_must_not_be_acknowledged() -> None:
    cluster, invariant = acknowledging(3)
    cluster.acknowledged_end_offsets.append(Offset(3))
    with violates(invariant):
        invariant.after_step(cluster.step(1))


def test_what_is_committed_must_stay_on_disks_too_before_anybody_is_told() -> None:
    cluster, invariant = acknowledging(2)
    cluster.acknowledged_end_offsets = []
    invariant.after_step(cluster.step(1))
    invariant.after_step(cluster.step(2))
    cluster.cut(2, 1)
    with violates(invariant):
        invariant.after_step(cluster.step(2))


@pytest.mark.parametrize("start", [1, 2])
def test_what_is_in_a_snapshot_before_the_log_is_on_disk(start: int) -> None:
    cluster, invariant = acknowledging(1)
    cluster.truncate_fully_and_start_at(2, at(start))
    if start == 2:
        invariant.after_step(cluster.step(2))
        return
    with violates(invariant):
        invariant.after_step(cluster.step(2))
