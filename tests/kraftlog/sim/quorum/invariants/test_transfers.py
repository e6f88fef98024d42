"""A snapshot that is being fetched is assembled from its bytes in order."""

from __future__ import annotations

from kraftbase.types import Epoch
from kraftlog.sim.quorum.invariants.transfers import TransfersGoOn
from kraftlog.sim.quorum.observation.step import Step
from raft.core.actions import Action, AppendSnapshot, DropSnapshot
from raft.core.events import Event, SnapshotRefused
from raft.core.messages import FetchSnapshotRequest
from raft.core.types import OffsetAndEpoch
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, at, send, violates
from tests.raft.core.builders import CLUSTER_ID, key

SNAPSHOT = at(5)


def ask(position: int, snapshot_id: OffsetAndEpoch = SNAPSHOT) -> Action:
    request = FetchSnapshotRequest(
        cluster_id=CLUSTER_ID,
        replica_key=key(1),
        current_leader_epoch=Epoch(1),
        snapshot_id=snapshot_id,
        position=position,
        max_bytes=100,
    )
    return send(request)


def write(byte_count: int, fetch_id: int = 1, snapshot_id: OffsetAndEpoch = SNAPSHOT) -> Action:
    return AppendSnapshot(fetch_id, snapshot_id, bytes(byte_count))


def fetching() -> tuple[Cluster, TransfersGoOn]:
    """Node 1 has written ten bytes."""
    cluster = Cluster()
    invariant = TransfersGoOn(cluster)
    for actions in ([ask(0)], [write(4)], [ask(4)], [write(6)]):
        invariant.after_step(cluster.step(1, actions=actions))
    return cluster, invariant


def doing(cluster: Cluster, *actions: Action, events: tuple[Event, ...] = ()) -> Step:
    return cluster.step(1, actions=list(actions), events=list(events))


def test_it_goes_on_behind_what_it_has_written_or_begins_anew() -> None:
    cluster, invariant = fetching()
    invariant.after_step(doing(cluster, ask(10)))
    invariant.after_step(doing(cluster, ask(10)))
    invariant.after_step(doing(cluster, ask(0)))


def test_another_position_is_wrong() -> None:
    for position in (4, 9, 11):
        cluster, invariant = fetching()
        with violates(invariant):
            invariant.after_step(doing(cluster, ask(position)))


def test_nothing_is_written_of_another_snapshot() -> None:
    cluster, invariant = fetching()
    invariant.after_step(doing(cluster, ask(0, at(7))))
    with violates(invariant):
        invariant.after_step(doing(cluster, ask(10, at(7))))


def test_what_was_given_up_or_refused_begins_at_0() -> None:
    for step_of in (
        lambda cluster: doing(cluster, DropSnapshot(1)),
        lambda cluster: doing(cluster, events=(SnapshotRefused(1),)),
        lambda cluster: cluster.start(1),
    ):
        cluster, invariant = fetching()
        invariant.after_step(step_of(cluster))
        with violates(invariant):
            invariant.after_step(doing(cluster, ask(10)))


def test_a_new_attempt_counts_its_own_bytes() -> None:
    cluster, invariant = fetching()
    invariant.after_step(doing(cluster, write(3, fetch_id=2), ask(3)))
    with violates(invariant):
        invariant.after_step(doing(cluster, ask(13)))
