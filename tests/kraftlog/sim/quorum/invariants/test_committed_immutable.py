"""What is committed stays, and the world's committed log is filled."""

from __future__ import annotations

import pytest

from kraftlog.sim.quorum.invariants.committed_immutable import CommittedImmutable
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, at, batches, violates
from tests.raft.storage.builders import data_batch


def test_the_committed_log_is_what_the_first_node_to_know_it_says() -> None:
    cluster = Cluster()
    invariant = CommittedImmutable(cluster)
    log = batches(1, 1, 2)
    for node_id in (1, 2):
        cluster.append(node_id, *log)
    for node_id, high_watermark in [(1, -1), (1, 2), (2, 1), (2, 3), (1, 3)]:
        cluster.become(node_id, high_watermark=high_watermark)
        invariant.after_step(cluster.step(node_id))
    assert cluster.committed == log
    assert cluster.committed_end_offset == 3


@pytest.mark.parametrize("other", [data_batch(1, epoch=2), data_batch(1, epoch=1, size=21)])
def test_another_epoch_or_other_bytes_at_a_committed_offset_are_wrong(other: object) -> None:
    cluster = Cluster()
    invariant = CommittedImmutable(cluster)
    cluster.append(1, *batches(1, 1))
    cluster.become(1, high_watermark=2)
    invariant.after_step(cluster.step(1))
    cluster.append(2, data_batch(0, 1), other)  # type: ignore[arg-type]
    cluster.become(2, high_watermark=1)
    invariant.after_step(cluster.step(2))
    cluster.become(2, high_watermark=2)
    with violates(invariant):
        invariant.after_step(cluster.step(2))


def test_a_new_process_is_compared_from_the_beginning() -> None:
    cluster = Cluster()
    invariant = CommittedImmutable(cluster)
    cluster.store(1, *batches(1, 1))
    cluster.become(1, high_watermark=2)
    invariant.after_step(cluster.step(1))
    invariant.after_step(cluster.start(1))
    cluster.cut(1, 0)
    cluster.store(1, *batches(2, 2))
    cluster.become(1, high_watermark=2)
    with violates(invariant):
        invariant.after_step(cluster.step(1))


def test_a_high_watermark_above_the_log_is_wrong() -> None:
    cluster = Cluster()
    invariant = CommittedImmutable(cluster)
    cluster.append(1, *batches(1))
    cluster.become(1, high_watermark=2)
    with violates(invariant):
        invariant.after_step(cluster.step(1))


def test_a_node_whose_log_is_behind_its_replica_is_judged_later() -> None:
    cluster = Cluster()
    invariant = CommittedImmutable(cluster)
    cluster.become(1, high_watermark=1)
    cluster.nodes[1].is_behind = True
    invariant.after_step(cluster.step(1))
    cluster.nodes[1].is_behind = False
    cluster.append(1, *batches(1))
    invariant.after_step(cluster.step(1))
    assert cluster.committed == batches(1)


def test_what_damage_hides_is_compared_once_it_can_be_read() -> None:
    cluster = Cluster()
    invariant = CommittedImmutable(cluster)
    log = batches(*[1] * 8)
    cluster.commit(data_batch(0, 2), *log[1:])
    cluster.store(1, *log)
    cluster.make_unreadable(1)
    cluster.become(1, high_watermark=8)
    invariant.after_step(cluster.step(1))
    cluster.files[1].failing_reads.clear()
    with violates(invariant):
        invariant.after_step(cluster.step(1))


def test_what_was_delivered_is_known_though_damage_hides_what_is_before_it() -> None:
    cluster = Cluster()
    invariant = CommittedImmutable(cluster)
    log = batches(*[1] * 8)
    cluster.commit(*log[:6])
    cluster.store(1, *log)
    cluster.make_unreadable(1)
    cluster.become(1, high_watermark=7)
    invariant.after_step(cluster.apply(1, *log[6:7]))
    assert cluster.committed == log[:7]
    invariant.after_step(cluster.apply(1, *log[7:]))  # above its high watermark: not for this invariant to believe
    assert cluster.committed == log[:7]


def test_a_log_that_begins_behind_a_snapshot_is_compared_from_there() -> None:
    cluster = Cluster()
    invariant = CommittedImmutable(cluster)
    log = batches(1, 1, 2)
    cluster.store(1, *log)
    cluster.become(1, high_watermark=3)
    invariant.after_step(cluster.step(1))
    for node_id, last in ((2, log[2]), (3, data_batch(2, epoch=2, size=21))):
        cluster.truncate_fully_and_start_at(node_id, at(2))
        cluster.become(node_id, high_watermark=2)
        invariant.after_step(cluster.step(node_id))
        cluster.store(node_id, last)
        cluster.become(node_id, high_watermark=3)
        if node_id == 2:
            invariant.after_step(cluster.step(node_id))
    with violates(invariant):
        invariant.after_step(cluster.step(3))
