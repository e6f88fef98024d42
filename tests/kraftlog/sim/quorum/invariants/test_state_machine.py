"""State machines agree, and apply each record once, in order."""

from __future__ import annotations

import pytest

from kraftbase.types import Offset
from kraftlog.sim.quorum.invariants.state_machine import AppliedOnce, StateMachineSafety
from kraftlog.sim.quorum.observation.node_view import AppliedState
from kraftlog.sim.quorum.observation.step import Delivery
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, at, batches, restart, violates

LOG = batches(1, 1, 2, 2)


def test_the_same_digest_everywhere_is_fine_at_whatever_time() -> None:
    cluster = Cluster()
    invariant = StateMachineSafety(cluster)
    for node_id in (1, 2, 9):
        invariant.after_step(cluster.apply(node_id, *LOG[:2], digest="two"))
        invariant.after_step(cluster.apply(node_id, *LOG[2:], digest="four"))


def test_two_digests_of_the_same_records_are_not() -> None:
    cluster = Cluster()
    invariant = StateMachineSafety(cluster)
    invariant.after_step(cluster.apply(1, *LOG, digest="one"))
    with violates(invariant):
        invariant.after_step(cluster.apply(2, *LOG, digest="another"))


def test_one_that_a_fault_made_differ_is_left_out() -> None:
    cluster = Cluster()
    invariant = StateMachineSafety(cluster)
    invariant.after_step(cluster.apply(1, *LOG, digest="one"))
    cluster.nodes[2].has_diverged = True
    invariant.after_step(cluster.apply(2, *LOG, digest="another"))


def test_what_a_database_says_when_it_is_opened_again_counts() -> None:
    cluster = Cluster()
    invariant = StateMachineSafety(cluster)
    invariant.after_step(cluster.apply(1, *LOG, digest="one"))
    step = cluster.start(1)
    cluster.nodes[1].applied = AppliedState(Offset(4), "another")
    with violates(invariant):
        invariant.after_step(step)


def test_records_in_order_each_once_are_fine() -> None:
    cluster = Cluster()
    invariant = AppliedOnce(cluster)
    invariant.after_step(restart(cluster, 0))
    invariant.after_step(cluster.apply(1, *LOG[:2]))
    invariant.after_step(cluster.apply(1, *LOG[2:]))
    invariant.after_step(cluster.step(1))


def test_a_gap_or_a_record_for_the_second_time_is_not() -> None:
    for wrong in (LOG[3:], LOG[1:]):
        cluster = Cluster()
        invariant = AppliedOnce(cluster)
        invariant.after_step(restart(cluster, 0))
        invariant.after_step(cluster.apply(1, *LOG[:2]))
        with violates(invariant):
            invariant.after_step(cluster.apply(1, *wrong))


def test_given_and_applied_must_be_the_same() -> None:
    cluster = Cluster()
    invariant = AppliedOnce(cluster)
    invariant.after_step(restart(cluster, 0))
    step = cluster.apply(1, *LOG[:2])
    cluster.nodes[1].applied = AppliedState(Offset(1), "at 1")
    with violates(invariant):
        invariant.after_step(step)


def test_a_new_process_may_begin_where_an_earlier_commit_stood() -> None:
    cluster = Cluster()
    invariant = AppliedOnce(cluster)
    invariant.after_step(restart(cluster, 0))
    invariant.after_step(cluster.apply(1, *LOG))
    invariant.after_step(cluster.kill(1))
    invariant.after_step(restart(cluster, 2))
    invariant.after_step(cluster.apply(1, *LOG[2:]))


def test_a_new_process_must_not_begin_past_what_was_given() -> None:
    cluster = Cluster()
    invariant = AppliedOnce(cluster)
    invariant.after_step(restart(cluster, 0))
    invariant.after_step(cluster.apply(1, *LOG[:2]))
    invariant.after_step(cluster.kill(1))
    with violates(invariant):
        invariant.after_step(restart(cluster, 3))


def test_a_process_that_was_killed_while_it_applied_may_have_applied_it() -> None:
    cluster = Cluster()
    invariant = AppliedOnce(cluster)
    invariant.after_step(restart(cluster, 0))
    invariant.after_step(cluster.apply(1, *LOG[:2]))
    step = cluster.kill(1)
    step.deliveries = [Delivery(tuple(LOG[2:])), Delivery()]
    invariant.after_step(step)
    invariant.after_step(restart(cluster, 4))


# --- snapshots --------------------------------------------------------------------------------------------------------


def test_a_state_machine_that_loads_a_snapshot_comes_to_what_the_others_came_to() -> None:
    cluster = Cluster()
    invariant = StateMachineSafety(cluster)
    invariant.after_step(cluster.apply(1, *LOG[:2], digest="two"))
    invariant.after_step(cluster.load(2, at(2), digest="two"))
    with violates(invariant):
        invariant.after_step(cluster.load(3, at(2), digest="another"))


def loading() -> tuple[Cluster, AppliedOnce]:
    """Node 1 has applied one record."""
    cluster = Cluster()
    invariant = AppliedOnce(cluster)
    invariant.after_step(restart(cluster, 0))
    invariant.after_step(cluster.apply(1, *LOG[:1]))
    return cluster, invariant


def test_it_goes_on_at_the_end_of_a_snapshot() -> None:
    cluster, invariant = loading()
    invariant.after_step(cluster.load(1, at(3, 2)))
    invariant.after_step(cluster.apply(1, *LOG[3:]))


def test_what_is_in_a_snapshot_must_not_be_applied_again() -> None:
    cluster, invariant = loading()
    invariant.after_step(cluster.load(1, at(3, 2)))
    with violates(invariant):
        invariant.after_step(cluster.apply(1, *LOG[2:]))


def test_it_must_stand_where_the_snapshot_ends() -> None:
    cluster, invariant = loading()
    step = cluster.load(1, at(3, 2))
    cluster.nodes[1].applied = AppliedState(Offset(1), "at 1")
    with violates(invariant):
        invariant.after_step(step)


def test_what_another_listener_is_given_is_not_applied() -> None:
    cluster, invariant = loading()
    invariant.after_step(cluster.load(1, at(3, 2), listener="slow"))
    invariant.after_step(cluster.step(1, deliveries=[Delivery(tuple(LOG[3:]), listener="slow")]))
    invariant.after_step(cluster.apply(1, *LOG[1:]))


@pytest.mark.parametrize("applied", [0, 1, 3, 4])
def test_a_process_that_was_killed_while_it_loaded_has_the_old_state_or_the_new_one(applied: int) -> None:
    cluster, invariant = loading()
    step = cluster.kill(1)
    step.deliveries = [Delivery(tuple(LOG), listener="slow"), Delivery(snapshot_id=at(3, 2))]
    invariant.after_step(step)
    if applied <= 3:
        invariant.after_step(restart(cluster, applied))
        return
    with violates(invariant):
        invariant.after_step(restart(cluster, applied))
