"""The reader of a snapshot blocks only its own listener, and leaves no file open (SN-60, LI-07)."""

from __future__ import annotations

import pytest

from kraftbase.errors import InvariantViolation
from kraftbase.runtime import awaited
from raft.listener import LoadSnapshotReader
from tests.raft.snapshot_delivery.world import Loading, World, register, settled
from tests.snapshot.builders import an_id


async def test_sn60_nothing_is_delivered_until_the_snapshots_reader_is_closed(world: World) -> None:
    world.commit(5)
    world.take_snapshot(3)
    listener = Loading()
    listener.holds_readers = True
    register(world, listener)
    await settled()
    world.commit(1)
    world.take_snapshot(6)
    await settled()
    assert listener.given == [("snapshot", 3, 3)]
    listener.held[0].close()
    listener.held[0].close()  # closing twice changes nothing
    await settled()
    assert listener.given == [("snapshot", 3, 3), ("commit", 3, 6)]


async def test_the_reader_of_a_snapshot_leaves_no_file_open(world: World) -> None:
    world.commit(5)
    world.take_snapshot(3)
    listener = Loading()
    listener.holds_readers = True
    register(world, listener)
    await settled()
    assert world.files.open_snapshots() == [world.store.path_of(an_id(3))]
    listener.held[0].close()
    await settled()
    assert world.files.open_snapshots() == []


async def test_a_reader_that_a_listener_leaves_with_an_error_is_closed_and_the_listener_gets_nothing_more(
    world: World,
) -> None:
    class Failing(Loading):
        async def handle_load_snapshot(self, reader: LoadSnapshotReader) -> None:
            with reader:
                raise RuntimeError("a bug of the application")

    world.commit(5)
    world.take_snapshot(3)
    listener = Failing()
    register(world, listener)
    await settled()
    world.commit(1)
    await settled()
    assert [(failed, str(error)) for failed, error in world.faults] == [(listener, "a bug of the application")]
    assert listener.given == []
    assert world.files.open_snapshots() == []


async def test_a_violated_invariant_while_loading_is_fatal(world: World) -> None:
    class Violating(Loading):
        async def handle_load_snapshot(self, reader: LoadSnapshotReader) -> None:
            raise InvariantViolation("cannot be")

    world.commit(5)
    world.take_snapshot(3)
    register(world, Violating())
    await settled()
    assert [str(error) for error in world.fatal] == ["cannot be"]
    world.fatal.clear()


@pytest.mark.parametrize("how", ["unregistered", "closed"])
@pytest.mark.parametrize("when", ["opening", "reading"])
async def test_a_listener_that_goes_in_the_middle_of_a_load_leaves_no_open_file(
    world: World, how: str, when: str
) -> None:
    world.commit(5)
    world.take_snapshot(3)
    listener = Loading()
    listener.holds_readers = True
    if when == "opening":
        world.runtime.may_go_on.clear()
    register(world, listener)
    await settled()
    assert len(listener.held) == (0 if when == "opening" else 1)
    if how == "unregistered":
        assert world.delivery.unregister(listener)
    else:
        await awaited(world.delivery.close)
    await settled()
    world.runtime.may_go_on.set()
    await settled()
    assert world.files.open_snapshots() == []
    assert len(listener.held) == (0 if when == "opening" else 1)


async def test_li07_a_listener_that_loads_holds_up_nobody(world: World) -> None:
    world.commit(5)
    world.take_snapshot(3)
    slow, quick = Loading("slow"), Loading("quick")
    slow.holds_readers = True
    register(world, slow)
    register(world, quick)
    await settled()
    assert quick.given == [("snapshot", 3, 3), ("commit", 3, 5)]
    assert slow.given == [("snapshot", 3, 3)]
