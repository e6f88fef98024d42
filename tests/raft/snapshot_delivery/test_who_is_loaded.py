"""Listeners get exactly the snapshots that the contract in raft.listener promises (SN-60 to SN-63).

Rules that tests here are named after: SN-61, SN-62.
"""

from __future__ import annotations

import pytest

from kraftbase.errors import ApiError, ErrorCode
from snapshot.names import snapshot_name
from tests.raft.snapshot_delivery.world import Loading, Plain, World, numbers, register, settled
from tests.snapshot.builders import DIRECTORY, an_id

# --- which listeners get a snapshot -----------------------------------------------------------------------------------


async def test_sn60_a_new_listener_begins_with_the_newest_snapshot_and_goes_on_where_it_ends(world: World) -> None:
    world.commit(10)
    world.take_snapshot(3)
    world.take_snapshot(6)
    world.start_log_at(3)
    listener = Loading()
    register(world, listener)
    await settled()
    assert listener.given == [("snapshot", 6, 3), ("commit", 6, 10)]
    assert listener.records == numbers(10)


async def test_sn60_a_new_listener_begins_with_a_snapshot_although_the_log_has_everything(world: World) -> None:
    world.commit(4)
    world.take_snapshot(4)
    listener = Loading()
    register(world, listener)
    await settled()
    assert listener.given == [("snapshot", 4, 3)]
    world.commit(1)
    await settled()
    assert listener.given == [("snapshot", 4, 3), ("commit", 4, 5)]


async def test_sn60_a_listener_behind_the_logs_start_loads_the_newest_and_not_the_one_at_the_start(
    world: World,
) -> None:
    world.commit(10)
    listener = Loading()
    listener.holds_readers = True
    register(world, listener, 0)
    await settled()
    world.commit(5)
    world.take_snapshot(11)
    world.take_snapshot(13)
    world.start_log_at(11)
    listener.held[0].close()
    await settled()
    assert listener.given == [("commit", 0, 10), ("snapshot", 13, 3)]
    listener.held[1].close()
    await settled()
    assert listener.given[2:] == [("commit", 13, 15)]
    assert listener.records == numbers(15)


async def test_sn60_a_listener_exactly_at_the_logs_start_is_loaded_nothing(world: World) -> None:
    world.commit(10)
    world.take_snapshot(5)
    world.take_snapshot(8)
    world.start_log_at(5)
    listener = Loading()
    register(world, listener, 5)
    await settled()
    assert listener.given == [("commit", 5, 10)]


async def test_sn60_a_listener_that_remembers_an_offset_below_the_start_is_loaded_the_newest(world: World) -> None:
    world.commit(10)
    world.take_snapshot(5)
    world.take_snapshot(8)
    world.start_log_at(5)
    listener = Loading()
    register(world, listener, 4)
    await settled()
    assert listener.given == [("snapshot", 8, 3), ("commit", 8, 10)]


async def test_sn60_a_listener_with_everything_is_loaded_nothing_until_more_is_committed(world: World) -> None:
    """Its offset is below the start only while records are missing."""
    world.commit(10)
    world.take_snapshot(8)
    world.start_log_at(8)
    listener = Loading()
    register(world, listener, 10)
    await settled()
    assert listener.given == []
    world.commit(1)
    await settled()
    assert listener.given == [("commit", 10, 11)]


async def test_sn61_a_new_listener_without_a_snapshot_begins_with_the_first_record(world: World) -> None:
    world.commit(3)
    listener = Loading()
    register(world, listener)
    await settled()
    assert listener.given == [("commit", 0, 3)]


@pytest.mark.parametrize("start_offset", [None, 2])
async def test_sn61_a_listener_below_the_start_without_a_snapshot_waits_until_there_is_one(
    world: World, start_offset: int | None
) -> None:
    world.commit(10)
    world.start_log_at(5)
    listener = Loading()
    register(world, listener, start_offset)
    await settled()
    world.commit(1)
    await settled()
    assert listener.given == []
    assert world.positions() == [("plain", -1 if start_offset is None else start_offset)]
    world.take_snapshot(7)
    await settled()
    assert listener.given == [("snapshot", 7, 3), ("commit", 7, 11)]
    assert not world.faults


async def test_sn62_a_listener_that_keeps_up_is_loaded_nothing_whatever_comes_and_goes(world: World) -> None:
    world.commit(1)
    listener = Loading()
    register(world, listener)
    for number in range(1, 8):
        await settled()
        if number % 2:
            world.take_snapshot(number)
        if number % 3 == 0:
            world.start_log_at(number)
            world.snapshots.delete_surplus(an_id(number))
        world.commit(1)
    await settled()
    assert listener.given == [("commit", number, number + 1) for number in range(8)]


async def test_sn63_a_listener_that_is_registered_again_is_loaded_the_same_snapshot_again(world: World) -> None:
    world.commit(5)
    world.take_snapshot(5)
    listener = Loading()
    for _ in range(2):
        register(world, listener)
        await settled()
        assert world.delivery.unregister(listener)
    assert listener.given == [("snapshot", 5, 3)] * 2


async def test_sn60_an_explicit_offset_is_not_new(world: World) -> None:
    world.commit(5)
    world.take_snapshot(5)
    for start_offset in (0, 2):
        listener = Loading()
        register(world, listener, start_offset)
        await settled()
        assert listener.given == [("commit", start_offset, 5)]


# --- listeners that cannot load ---------------------------------------------------------------------------------------


async def test_a_listener_that_cannot_load_snapshots_begins_with_the_first_record(world: World) -> None:
    world.commit(5)
    world.take_snapshot(5)
    listener = Plain()
    register(world, listener)
    await settled()
    assert listener.given == [("commit", 0, 5)]
    assert not world.faults


async def test_a_new_listener_that_cannot_load_snapshots_begins_where_the_log_starts(world: World) -> None:
    world.commit(6)
    world.take_snapshot(5)
    world.start_log_at(5)
    listener = Plain()
    register(world, listener)
    await settled()
    assert listener.given == [("commit", 5, 6)]
    assert not world.faults


@pytest.mark.parametrize("start_offset", [0, 4])
async def test_a_listener_that_cannot_load_snapshots_fails_when_it_is_behind_the_start(
    world: World, start_offset: int
) -> None:
    world.commit(6)
    world.take_snapshot(5)
    world.start_log_at(5)
    listener, other = Plain(), Loading()
    register(world, listener, start_offset)
    register(world, other)
    await settled()
    ((failed, error),) = world.faults
    assert failed is listener
    assert isinstance(error, ApiError)
    assert error.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert "handle_load_snapshot" in str(error)
    assert listener.given == []
    assert [position.name for position in world.positions()] == ["plain"]
    assert other.given == [("snapshot", 5, 3), ("commit", 5, 6)]
    assert not world.delivery.unregister(listener)


# --- damage -----------------------------------------------------------------------------------------------------------


async def test_sn60_a_damaged_newest_snapshot_is_deleted_and_the_one_before_is_loaded(world: World) -> None:
    world.commit(10)
    world.take_snapshot(3)
    world.damage(world.take_snapshot(6))
    listener = Loading()
    register(world, listener)
    await settled()
    assert listener.given == [("snapshot", 3, 3), ("commit", 3, 10)]
    assert world.damaged == 1
    assert snapshot_name(an_id(6)) not in world.files.list_directory(DIRECTORY)


async def test_sn61_a_new_listener_whose_only_snapshot_is_damaged_begins_with_the_first_record(world: World) -> None:
    world.commit(10)
    world.damage(world.take_snapshot(6))
    listener = Loading()
    register(world, listener)
    await settled()
    assert listener.given == [("commit", 0, 10)]


async def test_sn61_a_new_listener_below_the_start_waits_for_another_if_its_only_snapshot_is_damaged(
    world: World,
) -> None:
    world.commit(10)
    world.damage(world.take_snapshot(6))
    world.start_log_at(6)
    listener = Loading()
    register(world, listener)
    await settled()
    assert (listener.given, world.damaged) == ([], 1)
    world.take_snapshot(7)
    await settled()
    assert listener.given == [("snapshot", 7, 3), ("commit", 7, 10)]


async def test_sn61_a_new_listener_whose_only_snapshot_cannot_be_read_begins_with_the_first_record(
    world: World,
) -> None:
    world.commit(10)
    world.files.failing_reads.add(world.store.path_of(world.take_snapshot(6)))
    listener = Loading()
    register(world, listener)
    await settled()
    assert listener.given == [("commit", 0, 10)]
    assert world.damaged == 0
