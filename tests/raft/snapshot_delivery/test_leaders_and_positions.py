"""The effects of a snapshot on a listener's leader notifications and on its position (LI-05, SN-51)."""

from __future__ import annotations

from kraftbase.types import Epoch, NodeId, Offset
from raft.core.types import LeaderAndEpoch
from tests.raft.snapshot_delivery.world import HERE, Loading, Plain, World, register, settled


async def test_li05_a_snapshot_past_the_epochs_start_lets_the_leader_hear_that_it_leads(world: World) -> None:
    us = LeaderAndEpoch(NodeId(1), Epoch(3))
    world.commit(5)
    world.take_snapshot(5)
    world.feed.set_leader(us, HERE, epoch_start_offset=Offset(4))
    listener = Loading()
    listener.holds_readers = True
    register(world, listener)
    await settled()
    assert us not in listener.leaders
    listener.held[0].close()
    await settled()
    assert listener.leaders[-1] == us
    assert listener.given == [("snapshot", 5, 3)]


async def test_li05_a_snapshot_up_to_the_epochs_start_does_not_let_the_leader_hear_that_it_leads(world: World) -> None:
    us = LeaderAndEpoch(NodeId(1), Epoch(3))
    world.commit(5)
    world.take_snapshot(5)
    world.feed.set_leader(us, HERE, epoch_start_offset=Offset(5))
    listener = Loading()
    register(world, listener)
    await settled()
    assert us not in listener.leaders
    world.commit(1)
    await settled()
    assert listener.leaders[-1] == us


async def test_sn51_positions_show_what_every_listener_reads_next(world: World) -> None:
    world.commit(5)
    world.take_snapshot(3)
    new, behind, old = Loading("new"), Loading("behind"), Plain("old")
    for listener in (new, behind):
        listener.holds_readers = True
    register(world, new)
    register(world, behind, 1)
    register(world, old)
    assert world.positions() == [("new", -1), ("behind", 1), ("old", -1)]
    await settled()
    assert world.positions() == [("new", -1), ("behind", 1), ("old", 5)]
    new.held[0].close()
    behind.held[0].close()
    await settled()
    assert world.positions() == [("new", 3), ("behind", 5), ("old", 5)]
    new.held[1].close()
    await settled()
    assert world.positions() == [("new", 5), ("behind", 5), ("old", 5)]
    assert world.delivery.unregister(behind)
    assert world.positions() == [("new", 5), ("old", 5)]
