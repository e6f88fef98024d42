"""A race that this simulator is made for: `min.insync.replicas` is raised, and a leader does not know yet.

The follower is cut off from the leader, so it is removed from the ISR. To the controller it is eligible to lead, as too
few are in sync. The leader, which knows of the old setting only, must not commit alone by then.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraftlog.replicas.replication import isr_changes
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.engine.virtual.crash import Crash
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_SECOND
from kraftlog.sim.replication.administrator import Administrator
from kraftlog.sim.replication.clients import Producer
from kraftlog.sim.replication.definition import REPLICATION
from kraftlog.sim.replication.parameters import TopicParameters
from kraftlog.sim.replication.world import World

TOPIC = TopicParameters(
    flush_before_ack=True, min_insync_replicas=1, replication_factor=2, partitions=1, has_unclean_elections=False
)
PARAMETERS = replace(
    REPLICATION.parameters(1), brokers=3, directories=1, topics=(TOPIC,), lag_max_ms=600, session_timeout_ms=1_000,
    metadata_delay_ms=3, has_eligible_leaders=True, has_slow_disks=False, has_codec=False, fault_kinds=(),
    think_time_ms=50,
)  # fmt: skip


def raise_the_minimum_unseen() -> None:
    """Raises Violation."""
    world = World(PARAMETERS, Marks())
    administrator = Administrator(world)
    world.start()
    administrator.create_all()
    world.run_for(2 * MICROSECONDS_PER_SECOND)
    Producer(world, 0, "topic0", 0, -1, is_idempotent=True).start()
    world.run_for(MICROSECONDS_PER_SECOND)
    topic = world.metadata.topics["topic0"]
    leader, follower = topic.partitions[0].isr
    world.slow_metadata[leader] = 5_000
    administrator.set_min_isr(topic, 2)
    world.run_for(MICROSECONDS_PER_SECOND // 50)
    world.network.cut_links([(follower, leader), (leader, follower)])
    world.run_for(2 * MICROSECONDS_PER_SECOND)
    assert (topic.partitions[0].isr, topic.partitions[0].eligible_leaders) == ((leader,), (follower,))
    world.machines[leader].end(Crash.KILLED, 20_000)
    world.network.heal()
    world.run_for(4 * MICROSECONDS_PER_SECOND)
    assert topic.partitions[0].leader == follower


def test_a_leader_does_not_commit_alone_before_it_knows_how_many_must_be_in_sync() -> None:
    raise_the_minimum_unseen()


def test_it_would_lose_what_it_has_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_changes, "_has_left", lambda leading, result: False)
    with pytest.raises(Violation, match="acks=all are not lost"):
        raise_the_minimum_unseen()
