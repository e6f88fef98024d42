"""Without snapshots a log begins at 0."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sim.invariants.log_start import LogStart
from tests.sim.invariants.builders import Cluster, batches, violates


def test_a_log_from_its_beginning_is_fine() -> None:
    cluster = Cluster()
    LogStart(cluster).after_step(cluster.store(1, *batches(1, 1)))


def test_a_disk_that_begins_later_is_not() -> None:
    cluster = Cluster()
    invariant = LogStart(cluster)
    with violates(invariant):
        invariant.after_step(cluster.disk_holds(1, *batches(1, 1)[1:]))


def test_a_memory_that_begins_later_is_not() -> None:
    cluster = Cluster()
    invariant = LogStart(cluster)
    log: Any = SimpleNamespace(log_start_offset=1)
    cluster.nodes[1].log = log
    with violates(invariant):
        invariant.after_step(cluster.step(1))
