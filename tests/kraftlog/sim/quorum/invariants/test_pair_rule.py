"""The bytes on a disk decode to what was written."""

from __future__ import annotations

from dataclasses import replace

from kraftbase.types import Epoch
from kraftlog.sim.quorum.invariants.pair_rule import PairRule
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, batches, violates
from tests.raft.storage.builders import data_batch


def test_what_was_flushed_is_fine_and_so_is_what_a_dead_process_left() -> None:
    cluster = Cluster()
    invariant = PairRule(cluster)
    invariant.after_step(cluster.store(1, *batches(1, 1)))
    cluster.kill(1)
    invariant.after_step(cluster.disk_holds(1, *batches(1, 2)))


def test_a_batch_whose_bytes_say_something_else_is_not() -> None:
    cluster = Cluster()
    invariant = PairRule(cluster)
    with violates(invariant):
        invariant.after_step(cluster.disk_holds(1, replace(data_batch(0), epoch=Epoch(2))))


def test_another_batch_than_in_memory_is_not() -> None:
    cluster = Cluster()
    invariant = PairRule(cluster)
    cluster.store(1, *batches(1, 1))
    with violates(invariant):
        invariant.after_step(cluster.disk_holds(1, data_batch(0), data_batch(1, size=21)))


def test_above_what_is_flushed_the_disk_may_hold_what_was_cut_in_memory() -> None:
    cluster = Cluster()
    invariant = PairRule(cluster)
    cluster.store(1, *batches(1))
    cluster.append(1, *batches(1, 2)[1:])
    invariant.after_step(cluster.disk_holds(1, *batches(1, 1)))
