"""Listeners receive what they were promised, in order."""

from __future__ import annotations

import pytest

from kraftbase.types import Offset
from kraftlog.sim.quorum.invariants.listener_contract import ListenerContract
from kraftlog.sim.quorum.observation.step import Delivery, Step
from raft.core.types import Batch
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, at, batches, restart, violates
from tests.raft.core.builders import leader_and_epoch
from tests.raft.storage.builders import data_batch

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


# --- snapshots --------------------------------------------------------------------------------------------------------


def test_a_new_listener_may_be_given_a_snapshot_first_and_goes_on_behind_it() -> None:
    cluster, invariant = listening()
    invariant.after_step(cluster.load(1, at(2)))
    invariant.after_step(cluster.apply(1, *LOG[2:]))


@pytest.mark.parametrize("given", [LOG[1:], LOG[3:]], ids=["what is in it", "a gap"])
def test_what_follows_a_snapshot_goes_on_at_its_end(given: list[Batch]) -> None:
    cluster, invariant = listening()
    invariant.after_step(cluster.load(1, at(2)))
    with violates(invariant):
        invariant.after_step(cluster.apply(1, *given))


def behind(log_start: int) -> tuple[Cluster, ListenerContract]:
    """The listener of node 1 has read two records, its log begins there."""
    cluster, invariant = listening()
    cluster.store(1, *LOG)
    invariant.after_step(cluster.apply(1, *LOG[:2]))
    cluster.advance(1, at(log_start, LOG[log_start - 1].epoch))
    return cluster, invariant


def test_who_is_behind_the_logs_start_is_given_a_snapshot() -> None:
    cluster, invariant = behind(3)
    invariant.after_step(cluster.load(1, at(4, 2)))


@pytest.mark.parametrize("log_start", [1, 2])
def test_who_keeps_up_is_not(log_start: int) -> None:
    cluster, invariant = behind(log_start)
    with violates(invariant):
        invariant.after_step(cluster.load(1, at(4, 2)))


def test_a_snapshot_must_not_take_a_listener_back() -> None:
    cluster, invariant = behind(3)
    with violates(invariant):
        invariant.after_step(cluster.load(1, at(1)))


def test_each_listener_of_a_node_is_followed_on_its_own() -> None:
    cluster, invariant = listening()
    invariant.after_step(cluster.apply(1, *LOG))
    invariant.after_step(cluster.load(1, at(2), listener="slow"))
    invariant.after_step(cluster.step(1, deliveries=[Delivery(tuple(LOG[2:]), listener="slow")]))
    with violates(invariant):
        invariant.after_step(cluster.load(1, at(4, 2), listener="slow"))


def test_it_may_hear_that_it_leads_when_a_snapshot_has_taken_it_past_there() -> None:
    cluster, invariant = listening()
    invariant.after_step(cluster.load(1, at(4, 2)))
    invariant.after_step(led(cluster, 1, 2, start=3))


def test_not_when_the_snapshot_ends_before() -> None:
    cluster, invariant = listening()
    invariant.after_step(cluster.load(1, at(2)))
    with violates(invariant):
        invariant.after_step(led(cluster, 1, 2, start=2))
