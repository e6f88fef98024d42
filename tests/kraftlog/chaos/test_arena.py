"""The arena keeps the truth, the counts and the journal, whatever overlaps; the cluster here is a pretence."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from kraftbase.errors import ErrorCode
from kraftbase.types import NodeId
from kraftlog.chaos import nemesis, partitions
from kraftlog.chaos.arena import Arena
from kraftlog.chaos.schedule import OTHER_KINDS, PROCESS_KINDS
from kraftlog.local.cluster import NodeDied

VOTERS = [NodeId(1), NodeId(2), NodeId(3)]
OBSERVER = NodeId(4)


class PretendedCluster:
    def __init__(self, directory: Path) -> None:
        self.node_ids = [*VOTERS, OBSERVER]
        self.voter_ids = VOTERS
        self.directory = SimpleNamespace(data_path=lambda node_id: directory / f"node-{node_id}")
        self.log = directory / "node.log"
        self.running: set[NodeId] = set()
        self.signals: list[tuple[NodeId, signal.Signals]] = []
        self.cannot_start: set[NodeId] = set()
        (directory / "node.log").write_text("its last words\n")

    def log_path(self, node_id: NodeId) -> Path:
        return self.log

    def is_running(self, node_id: NodeId) -> bool:
        return node_id in self.running

    def pid(self, node_id: NodeId) -> int:
        return os.getpid()

    async def start(self, node_ids: list[NodeId]) -> None:
        await asyncio.sleep(0)
        if self.cannot_start & set(node_ids):
            raise NodeDied(ErrorCode.UNKNOWN_SERVER_ERROR, "it cannot")
        self.running |= set(node_ids)

    async def kill(self, node_id: NodeId) -> None:
        self.running.remove(node_id)

    async def stop(self, node_ids: list[NodeId]) -> None:
        self.running -= set(node_ids)

    def send_signal(self, node_id: NodeId, number: signal.Signals) -> None:
        self.signals.append((node_id, number))

    async def wait_for_leader(self, timeout_seconds: float) -> NodeId:
        return NodeId(2)


class PretendedNetwork:
    def __init__(self) -> None:
        self.cuts: set[tuple[NodeId, NodeId]] = set()
        self.slowed: set[NodeId] = set()

    async def cut(self, source: NodeId, target: NodeId) -> None:
        self.cuts.add((source, target))

    async def mend(self, source: NodeId, target: NodeId) -> None:
        self.cuts.discard((source, target))

    async def slow(self, node_id: NodeId) -> None:
        self.slowed.add(node_id)

    async def restore(self, node_id: NodeId) -> None:
        self.slowed.discard(node_id)


class PretendedDisk:
    node_id = NodeId(3)
    is_full = False

    def fill(self) -> None:
        self.is_full = True

    def free(self) -> None:
        self.is_full = False


class Parts(SimpleNamespace):
    arena: Arena
    cluster: PretendedCluster
    network: PretendedNetwork
    disk: PretendedDisk


@pytest.fixture
async def parts(tmp_path: Path) -> Parts:
    cluster, network, disk = PretendedCluster(tmp_path), PretendedNetwork(), PretendedDisk()
    pretended: Any = (cluster, network, [disk])
    arena = Arena(*pretended, tmp_path / "journal.txt")
    await arena.heal()
    return Parts(arena=arena, cluster=cluster, network=network, disk=disk)


def is_well(parts: Parts) -> bool:
    truth = parts.arena.truth
    return (
        truth.running == {*VOTERS, OBSERVER} == parts.cluster.running
        and not (truth.paused or truth.cuts or truth.full)
        and not (parts.network.cuts or parts.network.slowed or parts.disk.is_full)
        and parts.arena.deaths == []
    )


@pytest.mark.parametrize("fault", [kind.fault for kind in (*PROCESS_KINDS, *OTHER_KINDS)], ids=lambda kind: kind.name)
async def test_every_fault_does_something_and_undoes_it(fault: type[nemesis.Nemesis], parts: Parts) -> None:
    assert is_well(parts)
    one = fault(Random(1))
    before = dict(parts.arena.counts)
    await one.start(parts.arena)
    assert (parts.arena.counts == before) is (fault is nemesis.Calm)
    assert is_well(parts) is (fault in (nemesis.Calm, nemesis.RestartStorm))
    await one.stop(parts.arena)
    assert is_well(parts)


@pytest.mark.parametrize("fault", [kind.fault for kind in OTHER_KINDS], ids=lambda kind: kind.name)
async def test_healing_undoes_every_fault(fault: type[nemesis.Nemesis], parts: Parts) -> None:
    await fault(Random(1)).start(parts.arena)
    await nemesis.KillAll(Random(1)).start(parts.arena)
    await parts.arena.heal()
    assert is_well(parts)


async def test_each_sigkill_counts_once(parts: Parts) -> None:
    await asyncio.gather(parts.arena.kill(VOTERS[0]), parts.arena.kill(VOTERS[0]))
    assert parts.arena.counts["kills"] == 1
    await nemesis.RestartStorm(Random(1)).start(parts.arena)
    assert parts.arena.counts["kills"] >= 5


async def test_the_leader_is_found_and_struck(parts: Parts) -> None:
    await nemesis.KillLeader(Random(1)).start(parts.arena)
    assert parts.cluster.running == {NodeId(1), NodeId(3), OBSERVER}
    await partitions.IsolateLeader(Random(1)).start(parts.arena)
    assert all(NodeId(2) in link for link in parts.network.cuts)
    assert len(parts.network.cuts) == 6


async def test_a_paused_node_that_is_killed_is_no_longer_paused(parts: Parts) -> None:
    pause = nemesis.PauseLeader(Random(1))
    await pause.start(parts.arena)
    await parts.arena.kill(NodeId(2))
    await parts.arena.start(NodeId(2))
    assert parts.arena.truth.owes_service
    await pause.stop(parts.arena)
    assert parts.cluster.signals == [(NodeId(2), signal.SIGSTOP)]


async def test_a_pause_strikes_another_node_where_the_chosen_one_was_killed(parts: Parts) -> None:
    await parts.arena.kill(NodeId(2))  # the leader, as the pretended cluster still reports
    await nemesis.PauseLeader(Random(1)).start(parts.arena)
    assert parts.arena.counts["pauses"] == 1
    assert parts.arena.truth.paused < {NodeId(1), NodeId(3), OBSERVER}


async def test_a_node_that_ends_by_itself_is_told_of_and_started_again(parts: Parts) -> None:
    watching = asyncio.create_task(parts.arena.watch())
    parts.cluster.running.discard(VOTERS[0])
    async with asyncio.timeout(100):
        while VOTERS[0] not in parts.cluster.running:
            await asyncio.sleep(0.01)
    watching.cancel()
    (story,) = parts.arena.deaths
    assert "node 1 ended without a fault" in story
    assert "its last words" in story


@pytest.mark.parametrize(("is_full", "is_freed"), [(True, False), (True, True), (False, False)])
async def test_a_node_may_fail_to_start_while_its_disk_is_full_or_has_just_been(
    parts: Parts, is_full: bool, is_freed: bool
) -> None:
    if is_full:
        await parts.arena.fill_disk(PretendedDisk.node_id)
    if is_freed:
        await parts.arena.free_disk(PretendedDisk.node_id)
    await parts.arena.kill(NodeId(3))
    parts.cluster.cannot_start = {NodeId(3)}
    await parts.arena.start(NodeId(3))
    assert NodeId(3) not in parts.arena.truth.running
    assert parts.arena.counts["ended on a full disk"] == is_full
    assert len(parts.arena.deaths) == (not is_full)


async def test_each_start_is_timed_and_that_of_a_node_without_room_is_not(parts: Parts) -> None:
    assert sorted(start.node_id for start in parts.arena.starts) == [*VOTERS, OBSERVER]
    await parts.arena.fill_disk(PretendedDisk.node_id)
    for node_id in (NodeId(3), NodeId(2)):
        await parts.arena.kill(node_id)
        await parts.arena.start(node_id)
    assert [start.node_id for start in parts.arena.starts[4:]] == [NodeId(2)]
    assert all(0 <= start.waited_seconds <= start.seconds for start in parts.arena.starts)


async def test_a_start_does_not_include_the_time_in_which_the_process_was_paused(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, node_id = parts.cluster.start, NodeId(3)

    async def start_and_pause(node_ids: Iterable[NodeId]) -> None:
        await start(node_ids)
        parts.arena.pause(node_id)
        parts.arena._began -= 50  # as long as that
        parts.arena.resume(node_id)

    await parts.arena.kill(node_id)
    monkeypatch.setattr(parts.cluster, "start", start_and_pause)
    began = parts.arena.elapsed_seconds
    await parts.arena.start(node_id)
    assert parts.arena.elapsed_seconds - began >= 50
    assert parts.arena.starts[-1].seconds < 50


async def test_a_reading_has_a_beginning_and_an_end(parts: Parts) -> None:
    with pytest.raises(KeyError), parts.arena.reading(NodeId(2)):
        (reading,) = parts.arena.readings
        assert reading.began <= parts.arena.elapsed_seconds < reading.ended
        raise KeyError
    assert reading.began <= reading.ended <= parts.arena.elapsed_seconds
    assert parts.arena.counts["slow readers"] == 1
