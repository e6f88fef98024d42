"""What a node calls flushed would survive a power cut."""

from __future__ import annotations

from kraftlog.sim.quorum.invariants.flushed_is_durable import FlushedIsDurable
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, at, batches, violates


def test_what_is_flushed_is_there_and_what_is_not_need_not_be() -> None:
    cluster = Cluster()
    invariant = FlushedIsDurable(cluster)
    invariant.after_step(cluster.step(1))
    cluster.store(1, *batches(1, 1))
    cluster.append(1, *batches(1, 1, 2)[2:])
    invariant.after_step(cluster.step(1))


def test_a_disk_that_holds_less_is_wrong() -> None:
    cluster = Cluster()
    invariant = FlushedIsDurable(cluster)
    cluster.store(1, *batches(1, 1))
    with violates(invariant):
        invariant.after_step(cluster.disk_holds(1, *batches(1)))


def test_a_disk_that_holds_another_epoch_is_wrong() -> None:
    cluster = Cluster()
    invariant = FlushedIsDurable(cluster)
    cluster.store(1, *batches(1, 1))
    with violates(invariant):
        invariant.after_step(cluster.disk_holds(1, *batches(1, 2)))


def test_a_disk_that_lost_data_is_left_out() -> None:
    cluster = Cluster()
    cluster.store(1, *batches(1, 1))
    FlushedIsDurable(cluster).after_step(cluster.lose(1))


def test_a_disk_that_holds_a_later_epoch_of_the_memory_is_wrong() -> None:
    cluster = Cluster()
    invariant = FlushedIsDurable(cluster)
    cluster.store(1, *batches(1, 1))
    cluster.append(1, *batches(1, 1, 2)[2:])
    with violates(invariant):
        invariant.after_step(cluster.disk_holds(1, *batches(1, 2)))


def test_a_log_that_began_anew_is_flushed_up_to_its_start() -> None:
    cluster = Cluster()
    invariant = FlushedIsDurable(cluster)
    cluster.store(1, *batches(1, 1))
    invariant.after_step(cluster.truncate_fully_and_start_at(1, at(5)))


def test_a_start_that_is_not_on_the_disk_is_not() -> None:
    cluster = Cluster()
    invariant = FlushedIsDurable(cluster)
    cluster.store(1, *batches(1, 1))
    step = cluster.truncate_fully_and_start_at(1, at(5))
    cluster.nodes[1].durable_log.start = at(2)
    with violates(invariant):
        invariant.after_step(step)
