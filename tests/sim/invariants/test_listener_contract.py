"""Listeners are told what they were promised, in order."""

from __future__ import annotations

import pytest

from raft.core.types import Batch, Offset
from sim.invariants.listener_contract import ListenerContract
from sim.observation import AppliedState, Delivery, Step
from tests.raft.core.builders import leader_and_epoch
from tests.raft.storage.builders import data_batch
from tests.sim.invariants.builders import Cluster, batches, violates

LOG = batches(1, 1, 2, 2)


def listening() -> tuple[Cluster, ListenerContract]:
    cluster = Cluster()
    cluster.commit(*LOG)
    return cluster, ListenerContract(cluster)


def led(cluster: Cluster, leader_id: int | None, epoch: int, start: int | None = None) -> Step:
    """The listener of node 1 hears of a leader."""
    told = Delivery(
        leader=leader_and_epoch(leader_id, epoch), epoch_start_offset=None if start is None else Offset(start)
    )
    return cluster.step(1, deliveries=[told])


def test_batches_in_order_then_that_it_leads_is_fine() -> None:
    cluster, invariant = listening()
    invariant.after_step(led(cluster, 2, 1))
    invariant.after_step(cluster.apply(1, *LOG[:2]))
    invariant.after_step(led(cluster, None, 2))
    invariant.after_step(cluster.apply(1, *LOG[2:]))
    invariant.after_step(led(cluster, 1, 2, start=3))


def restart(cluster: Cluster, applied: int) -> Step:
    """Node 1 starts again, with so much applied."""
    step = cluster.start(1)
    cluster.nodes[1].applied = AppliedState(Offset(applied), f"at {applied}")
    return step


@pytest.mark.parametrize("wrong", [LOG[1:], LOG[3:]], ids=["again", "a gap"])
def test_a_batch_again_or_a_gap_is_wrong(wrong: list[object]) -> None:
    cluster, invariant = listening()
    invariant.after_step(cluster.apply(1, *LOG[:2]))
    with violates(invariant):
        invariant.after_step(cluster.apply(1, *wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize("has_lost_data", [False, True])
@pytest.mark.parametrize("batch", [data_batch(4, 2), data_batch(3, 3)], ids=["nothing", "another"])
def test_what_is_not_committed_is_wrong(batch: Batch, has_lost_data: bool) -> None:
    cluster, invariant = listening()
    cluster.nodes[1].has_lost_data = has_lost_data
    invariant.after_step(cluster.apply(1, *LOG[: batch.base_offset]))
    if has_lost_data and batch.base_offset == 4:  # nobody else knows it, and its disk cannot be asked
        invariant.after_step(cluster.apply(1, batch))
        return
    with violates(invariant):
        invariant.after_step(cluster.apply(1, batch))


def test_epochs_must_not_go_back() -> None:
    cluster, invariant = listening()
    invariant.after_step(led(cluster, 2, 2))
    with violates(invariant):
        invariant.after_step(led(cluster, 3, 1))


def test_it_must_not_hear_that_it_leads_before_it_has_read_up_to_there() -> None:
    cluster, invariant = listening()
    invariant.after_step(cluster.apply(1, *LOG[:2]))
    with violates(invariant):
        invariant.after_step(led(cluster, 1, 2, start=2))


def test_neither_if_it_was_given_nothing_yet() -> None:
    cluster, invariant = listening()
    invariant.after_step(restart(cluster, 2))
    with violates(invariant):
        invariant.after_step(led(cluster, 1, 2, start=2))


def test_that_another_leads_is_heard_at_any_time() -> None:
    cluster, invariant = listening()
    invariant.after_step(led(cluster, 2, 2))


def test_a_new_process_has_a_new_listener_that_begins_where_its_state_machine_stands() -> None:
    cluster, invariant = listening()
    invariant.after_step(cluster.apply(1, *LOG))
    invariant.after_step(led(cluster, 2, 2))
    invariant.after_step(restart(cluster, 1))
    invariant.after_step(led(cluster, 2, 1))
    invariant.after_step(cluster.apply(1, *LOG[1:]))
    invariant.after_step(restart(cluster, 1))
    with violates(invariant):
        invariant.after_step(cluster.apply(1, *LOG))
