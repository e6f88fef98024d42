"""Nothing grows without a bound."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraftbase.types import Epoch
from kraftlog.sim.quorum.invariants.bounds import Bounds
from raft.core.connections import CONNECTIONS_MAX
from raft.core.events import AppendPrepared
from raft.core.serving import OBSERVERS_MAX
from raft.core.states import ReplicaProgress
from tests.kraftlog.sim.quorum.invariants.builders import Cluster, violates
from tests.raft.core.builders import Harness, endpoint, fetch, key, replica


def leading() -> tuple[Cluster, Bounds, Harness]:
    harness = replica(1).make_leader()
    cluster = Cluster()
    cluster.nodes[1].replica = harness.replica
    return cluster, Bounds(cluster), harness


@pytest.mark.parametrize("excess", [0, 1])
@pytest.mark.parametrize("what", ["observers", "connections", "parked fetches", "pending bytes"])
def test_up_to_its_limit_all_is_fine_and_above_nothing(what: str, excess: int) -> None:
    cluster, invariant, harness = leading()
    environment, connections, leader = harness.environment, harness.output.connections, harness.leading
    match what:
        case "observers":
            for node_id in range(100, 100 + OBSERVERS_MAX + excess):
                leader.observers[key(node_id)] = ReplicaProgress(key(node_id))
        case "connections":
            connections.reset()
            for number in range(CONNECTIONS_MAX + excess):
                connections.sent(endpoint(number), fetch(1, 1), Epoch(1), harness.now_ms)
        case "parked fetches":
            end_offset = harness.replica_state.log.end_offset
            harness.ask(fetch(2, harness.epoch, end_offset, harness.epoch))
            for node_id in (2, 3):
                harness.ask(fetch(node_id, harness.epoch, end_offset, harness.epoch, high_watermark=end_offset))
            assert len(leader.purgatory) == 2
            environment.config = replace(environment.config, parked_fetches_max=2 - excess)
        case "pending bytes":
            harness.step(AppendPrepared(1, Epoch(harness.epoch), b"x" * 10, 1))
            environment.config = replace(environment.config, pending_append_bytes_max=10 - excess)
    if excess == 0:
        invariant.after_step(cluster.step(1))
        return
    with violates(invariant):
        invariant.after_step(cluster.step(1))
