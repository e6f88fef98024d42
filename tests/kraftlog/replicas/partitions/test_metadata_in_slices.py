"""Large changes of the metadata are carried out in slices, and what must be durable is so before it counts (DB-97)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

import pytest

from kraftbase.errors import FlushFailed
from kraftbase.partition import TopicPartition
from kraftbase.types import Offset
from kraftlog.replicas.partitions import partitions as partitions_module
from kraftlog.replicas.partitions.partitions import Partitions
from kraftlog.replicas.partitions.pending_changes import Changes, PendingChanges
from kraftlog.storage import log_removal as log_removal_module
from kraftlog.storage.slices import SLICE_LINES, SLICE_PARTITIONS, SlicedWork, Steps, run_at_once
from kraftpb.v1.metadata_pb2 import MetadataRecord, PartitionRecord, RemoveTopicRecord
from statemachine.replay.deltas import Change, MetadataDelta
from tests.kraftlog.broker.broker_world import ME, BrokerWorld, replicas, topic
from tests.kraftlog.storage.builders import StepRuntime
from tests.statemachine.builders import an_id

COUNT = 20 * SLICE_PARTITIONS


def many(number: int = 1, **of: int) -> list[MetadataRecord]:
    return [replicas(number, index, on=(ME, 2), **of) for index in range(COUNT)]  # type: ignore[arg-type]


def removed(number: int = 1) -> MetadataRecord:
    return MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=an_id(number)))


def logs_in(world: BrokerWorld) -> int:
    return len(world.logs.directories[0].logs)


def turn(world: BrokerWorld) -> None:
    """One turn of the loop, or one piece of work in the disk's thread."""
    world.runtime.soon.pop(0)()


def turns(world: BrokerWorld, seen: Callable[[], int]) -> list[int]:
    """How much each turn has changed of something."""
    found = [seen()]
    while world.runtime.soon:
        turn(world)
        found.append(seen())
    return [abs(after - before) for before, after in itertools.pairwise(found)]


def test_db97_many_partitions_are_made_in_slices_when_the_inventory_has_them(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path)
    synced: list[str] = []
    world.files.before_operation = lambda operation, path: (
        synced.append(operation) if operation in ("fdatasync", "fsync", "fsync_directory") else None
    )
    world.commit(topic("clicks"), *many())
    assert logs_in(world) == len(world.partitions) == 0, "nothing is here before the inventory has it durably"
    while not synced:
        assert logs_in(world) == 0
        turn(world)
    made = [logs_in(world), *turns(world, lambda: logs_in(world))]
    assert max(made) == SLICE_PARTITIONS
    assert (sum(made), len(synced)) == (COUNT, 1)
    assert all(partition.leading is not None for partition in world.partitions)


def test_db97_many_partitions_go_in_slices_with_few_syncs(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), *many()])
    world.runtime.run()
    assert logs_in(world) == COUNT
    operations: list[str] = []
    world.files.before_operation = lambda operation, path: operations.append(operation)
    world.commit(removed())
    renamed = turns(world, lambda: operations.count("rename_directory"))
    assert max(renamed) == SLICE_PARTITIONS
    assert (sum(renamed), logs_in(world), len(world.partitions)) == (COUNT, 0, 0)
    assert [operation for operation in operations if "sync" in operation] == ["fdatasync", "fsync_directory"]


def test_db97_leaders_change_in_slices(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), *many()])
    world.runtime.run()

    def led() -> int:
        return sum(partition.leading is not None for partition in world.partitions)

    assert led() == COUNT
    world.commit(*many(leader=2, epoch=1))
    assert led() >= COUNT - SLICE_PARTITIONS
    assert max(turns(world, led)) == SLICE_PARTITIONS
    assert led() == 0


def test_db97_what_is_new_or_gone_is_found_out_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def noting(module: Any, name: str) -> None:
        function = getattr(module, name)

        def noted(*arguments: Any) -> Any:
            asked.append(name)
            return function(*arguments)

        monkeypatch.setattr(module, name, noted)

    noting(partitions_module, "would_be_new")
    noting(partitions_module.Partitions, "_topic_name")
    noting(log_removal_module, "deleted_directory_name")
    world = BrokerWorld(tmp_path, [topic("other", 3)])

    def most_in_a_turn(*records: MetadataRecord) -> Counter[str]:
        asked.clear()
        world.commit(*records)
        found = Counter(asked)
        while world.runtime.soon:
            asked.clear()
            turn(world)
            found |= Counter(asked)
        return found

    assert most_in_a_turn(topic("clicks"), *many())["would_be_new"] == SLICE_LINES < COUNT
    assert most_in_a_turn(removed())["deleted_directory_name"] == SLICE_PARTITIONS
    world.commit(topic("orders", 2))
    assert most_in_a_turn(*many(2))["_topic_name"] == SLICE_LINES


def test_db97_changes_that_come_meanwhile_are_carried_out_afterwards_and_only_the_last_of_each(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path)
    level: list[int] = []
    world.commit(topic("clicks"), *many())
    world.partitions.when_level(lambda: level.append(len(world.partitions)))
    world.commit(removed())
    world.commit(topic("clicks", 2), *many(2))
    world.commit(*many(2, leader=2, epoch=1))
    assert level == []
    world.runtime.run()
    assert level == [COUNT]
    assert {partition.topic_id for partition in world.partitions} == {an_id(2)}
    assert {partition.leader_epoch for partition in world.partitions} == {1}
    directory = world.logs.directories[0]
    assert {str(topic_id.bytes.hex()) for topic_id in directory.records.topic_ids.values()} == {an_id(2).hex()}
    world.partitions.when_level(lambda: level.append(-1))
    assert level == [COUNT, -1], "at once, as nothing is under way"


def test_db97_nobody_waits_for_changes_that_come_later(tmp_path: Path) -> None:
    """Topics may come and go faster than that is carried out: a broker that starts meanwhile is unfenced, too."""
    world = BrokerWorld(tmp_path)
    level: list[str] = []
    world.commit(topic("clicks"), *many())
    world.partitions.when_level(lambda: level.append("under way"))
    world.commit(*many(leader=2, epoch=1))
    world.partitions.when_level(lambda: level.append("waiting"))
    for epoch in range(2, 200):
        if level == ["under way", "waiting"]:
            break
        world.commit(*many(leader=2, epoch=epoch))
        turn(world)
    assert level == ["under way", "waiting"]
    assert world.runtime.soon, "more waits"


def test_db97_who_waits_is_called_back_after_a_whole_state_that_comes_meanwhile(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), *many()])
    level: list[int] = []
    with mock.patch.object(partitions_module, "SCANNED_REPLICAS", SLICE_PARTITIONS):
        world.begin_anew()
        world.partitions.when_level(lambda: level.append(len(world.partitions)))
        world.commit(removed(), topic("orders", 2), replicas(2, 0, on=(ME,)))
        world.begin_anew()
        assert level == []
        world.runtime.run()
    assert level == [1]


def test_db97_a_small_change_is_carried_out_at_once(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path)
    world.commit(topic("clicks"), *many()[:SLICE_PARTITIONS])
    assert logs_in(world) == SLICE_PARTITIONS
    assert not world.runtime.soon


def test_db97_nothing_is_carried_out_after_the_end(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path)
    world.commit(topic("clicks"), *many())
    world.partitions.stop()
    world.runtime.run()
    assert len(world.partitions) == 0


def test_db97_a_snapshot_takes_the_place_of_what_waits(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path)
    world.commit(topic("clicks"), *many())
    world.commit(removed())
    world.commit(topic("orders", 2), *many(2))
    world.begin_anew()
    world.runtime.run()
    assert {partition.name.topic for partition in world.partitions} == {"orders"}
    assert len(world.partitions) == logs_in(world) == COUNT


def test_db97_an_error_of_the_disk_leaves_the_partitions_offline(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path)
    world.files.failing_syncs.add("data/kraftlog-inventory")
    world.commit(topic("clicks"), *many())
    world.runtime.run()
    assert world.logs.directories[0].offline_reason
    assert len(world.partitions) == COUNT
    assert all(partition.log is None for partition in world.partitions)


# --- the parts --------------------------------------------------------------------------------------------------------


def test_what_work_raises_after_its_first_turn_is_reported_and_ends_it() -> None:
    runtime, failed = StepRuntime(), list[BaseException]()
    work = SlicedWork(runtime, failed.append)

    def steps() -> Steps:
        yield None
        raise ValueError("wrong")

    work.start(steps(), is_small=False)
    assert not work.is_idle
    runtime.run()
    assert work.is_idle
    assert [str(error) for error in failed] == ["wrong"]
    with pytest.raises(ValueError, match="wrong"):
        work.start(steps(), is_small=True)
    assert work.is_idle


@pytest.mark.parametrize("is_small", [True, False])
def test_what_the_disk_raises_is_raised_where_it_is_waited_for(is_small: bool) -> None:
    runtime, seen = StepRuntime(), list[str]()

    def fail() -> None:
        raise FlushFailed("no disk")

    def steps() -> Steps:
        try:
            yield fail
        except FlushFailed as error:
            seen.append(str(error))
        yield None
        seen.append("went on")

    SlicedWork(runtime, lambda error: pytest.fail(str(error))).start(steps(), is_small=is_small)
    runtime.run()
    run_at_once(steps())
    assert seen == ["no disk", "went on"] * 2


def record(index: int, *, on: tuple[int, ...] = (ME,), epoch: int = 0) -> PartitionRecord:
    return PartitionRecord(topic_id=an_id(1), partition_id=index, replicas=on, partition_epoch=epoch)


def test_pending_changes_keep_the_last_state_of_each_partition() -> None:
    pending = PendingChanges(ME)
    changes = [
        Change(None, record(0)),
        Change(None, record(1)),
        Change(None, record(2, on=(2,))),
        Change(record(0), record(0, epoch=1)),
        Change(record(1), record(1, on=(2,), epoch=1)),
        Change(record(3), None),
        Change(record(4), None),
        Change(None, record(4, epoch=2)),
    ]
    for change in changes:
        pending.add(MetadataDelta(end_offset=Offset(1), partitions=(change,)))
    taken = pending.take()
    assert not pending
    assert {key[1]: value.partition_epoch for key, value in taken.arriving.items()} == {0: 1, 4: 2}
    assert {key[1]: is_elsewhere for key, is_elsewhere in taken.leaving.items()} == {1: True, 3: False}


# --- a whole state ----------------------------------------------------------------------------------------------------


def test_db97_a_whole_state_is_scanned_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions_module, "SCANNED_REPLICAS", 7)
    scanned: list[int] = []
    assigned = Partitions._assigned

    def noted(self: Partitions, *arguments: Any) -> Any:
        found = assigned(self, *arguments)
        scanned.append(len(found[0]))
        return found

    monkeypatch.setattr(Partitions, "_assigned", noted)
    world = BrokerWorld(tmp_path, [topic("clicks"), *many()])
    while world.runtime.soon:
        before = len(scanned)
        turn(world)
        assert len(scanned) <= before + 1
    assert max(scanned) == 7
    assert (sum(scanned), len(world.partitions), logs_in(world)) == (COUNT, COUNT, COUNT)


def test_db97_what_changes_during_a_scan_is_carried_out_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions_module, "SCANNED_REPLICAS", 7)
    world = BrokerWorld(tmp_path, [topic("clicks"), *many()])
    world.commit(removed())
    world.commit(topic("orders", 2), *many(2))
    world.commit(*many(2, leader=2, epoch=1))
    world.runtime.run()
    assert {(partition.name.topic, partition.leader_epoch) for partition in world.partitions} == {("orders", 1)}
    assert len(world.partitions) == logs_in(world) == COUNT
    world.begin_anew()
    turn(world)
    world.begin_anew()  # in the midst of the scan
    world.runtime.run()
    assert len(world.partitions) == logs_in(world) == COUNT


def test_a_scan_that_finds_an_older_state_does_not_take_the_place_of_a_change() -> None:
    changes = Changes(arriving={(an_id(1), 0): record(0, epoch=2)}, is_whole=True, scanned_to=(an_id(1), 0))
    assert not changes.is_small
    changes.scanned({(an_id(1), 0): record(0, epoch=1), (an_id(1), 1): record(1)}, None)
    assert {key[1]: value.partition_epoch for key, value in changes.arriving.items()} == {0: 2, 1: 0}
    assert changes.is_small


def test_db97_what_the_inventory_has_and_the_metadata_does_not_is_forgotten_in_slices(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, [topic("clicks"), *many()])
    world.runtime.run()
    directory = world.logs.directories[0]
    gone = [TopicPartition("gone", index) for index in range(3 * SLICE_LINES)]
    directory.records.expect(dict.fromkeys(gone, UUID(int=1)))
    forgotten = turns_of(world, lambda: len(directory.records.partitions))
    assert max(forgotten) == SLICE_LINES
    assert sum(forgotten) == len(gone)
    assert len(directory.records.partitions) == COUNT


def turns_of(world: BrokerWorld, seen: Callable[[], int]) -> list[int]:
    """As `turns`, of what a whole state brings about."""
    before = seen()
    world.begin_anew()
    return [before - seen(), *turns(world, seen)]
