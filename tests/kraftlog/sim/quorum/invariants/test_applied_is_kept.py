"""What a state machine has applied is never cut from its log."""

from __future__ import annotations

import pytest

from kraftbase.types import Epoch, Offset
from kraftlog.sim.quorum.invariants.applied_is_kept import AppliedIsKept
from kraftlog.sim.quorum.observation.node_view import AppliedState
from raft.core.actions import Action, TruncateFullyAndStartAt, TruncateLog
from raft.core.types import OffsetAndEpoch
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, batches, violates


def applied_two() -> tuple[Cluster, AppliedIsKept]:
    """Node 1 holds three records, two of which are committed and applied."""
    cluster = Cluster()
    cluster.commit(*batches(1, 1))
    cluster.store(1, *batches(1, 1, 1))
    cluster.nodes[1].applied = AppliedState(Offset(2), "digest")
    return cluster, AppliedIsKept(cluster)


def cuts_at(offset: int) -> list[Action]:
    snapshot_id = OffsetAndEpoch(epoch=Epoch(9), offset=Offset(offset))
    return [TruncateLog(Offset(offset)), TruncateFullyAndStartAt(snapshot_id)]


@pytest.mark.parametrize("which", [0, 1])
def test_what_is_applied_must_not_be_cut(which: int) -> None:
    cluster, invariant = applied_two()
    invariant.after_step(cluster.step(1, actions=[cuts_at(2)[which]]))
    with violates(invariant):
        invariant.after_step(cluster.step(1, actions=[cuts_at(1)[which]]))


def test_a_replica_that_recovers_may_cut_what_an_older_copy_has() -> None:
    cluster, invariant = applied_two()
    cluster.become(1, is_recovering=True)
    invariant.after_step(cluster.step(1, actions=cuts_at(1)))


@pytest.mark.parametrize("has_another", [False, True])
def test_a_process_does_not_start_without_it_but_to_recover(has_another: bool) -> None:
    cluster, invariant = applied_two()
    invariant.after_step(cluster.step(1, started=True))
    cluster.cut(1, 1)
    if has_another:
        cluster.store(1, *batches(1, 2)[1:])
    cluster.become(1, is_recovering=True)
    invariant.after_step(cluster.step(1, started=True))
    cluster.become(1)
    with violates(invariant):
        invariant.after_step(cluster.step(1, started=True))
