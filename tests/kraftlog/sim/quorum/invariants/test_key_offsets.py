"""A key's last write never goes back."""

from __future__ import annotations

from kraftlog.sim.quorum.invariants.key_offsets import KeyOffsets
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, violates, write_of


def test_later_writes_and_other_keys_are_fine() -> None:
    cluster = Cluster()
    invariant = KeyOffsets(cluster)
    for write in (write_of(0, "a", "b"), write_of(2, "b"), write_of(3, "a", "a")):
        invariant.after_step(cluster.apply(1, write))
        invariant.after_step(cluster.apply(2, write))


def test_an_older_write_is_not() -> None:
    cluster = Cluster()
    invariant = KeyOffsets(cluster)
    invariant.after_step(cluster.apply(1, write_of(3, "a")))
    invariant.after_step(cluster.apply(1, write_of(2, "b")))
    with violates(invariant):
        invariant.after_step(cluster.apply(1, write_of(2, "a")))


def test_the_same_write_twice_is_not() -> None:
    cluster = Cluster()
    invariant = KeyOffsets(cluster)
    invariant.after_step(cluster.apply(1, write_of(3, "a")))
    with violates(invariant):
        invariant.after_step(cluster.apply(1, write_of(3, "a")))


def test_a_new_process_may_be_given_it_again() -> None:
    cluster = Cluster()
    invariant = KeyOffsets(cluster)
    invariant.after_step(cluster.apply(1, write_of(3, "a")))
    cluster.start(1)
    invariant.after_step(cluster.apply(1, write_of(2, "a")))
