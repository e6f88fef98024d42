"""A fault: bytes of a log change on disk while its broker is down. At the end an operator puts them back.

At most one replica of a partition is damaged, so that the others can serve. If none of them can, because they are out
of sync when the damage is detected, the partition waits for the operator. Only bytes that a start is certain to read
are changed: flushed batches of the last segment, without their first 16 bytes, which the checksum does not cover.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final, Protocol

from kraftbase.files.files import join, read_whole
from kraftbase.files.memory import MemoryFileSystem
from kraftbase.partition import TopicPartition
from kraftlog.sim.engine.virtual.crash import Crash
from kraftlog.sim.replication.checker import Checker
from kraftlog.sim.replication.machine import Machine
from kraftlog.sim.replication.metadata import Key, Topic
from kraftlog.sim.replication.parameters import ReplicationParameters
from kraftlog.storage.formats.batch_header import read_headers
from kraftlog.storage.formats.checkpoints import decode_offsets
from kraftlog.storage.formats.names import (
    DAMAGED_SUFFIX,
    LOG_SUFFIX,
    RECOVERY_POINTS_NAME,
    directory_name,
    is_stray_directory,
    offset_in_name,
)

_BEHIND_BASE_OFFSET_AND_EPOCH: Final = 16


class BitRotWorld(Protocol):
    """The part of the world that this fault needs."""

    parameters: ReplicationParameters
    checker: Checker
    machines: dict[int, Machine]

    def topic_of(self, key: Key) -> Topic | None:
        """Return the topic of a partition; None if it was deleted."""
        ...

    def is_partition_damaged(self, partition: TopicPartition) -> bool:
        """Whether a replica of a partition is damaged, or was."""
        ...


@dataclass(frozen=True, slots=True)
class CorruptLog:
    """A changed byte of a replica's log."""

    broker_id: int
    path: str
    position: int
    right: int


class BitRot:
    """The changed bytes on all disks."""

    def __init__(self, world: BitRotWorld) -> None:
        self._world = world
        self._logs: dict[TopicPartition, CorruptLog] = {}

    def is_known(self, broker_id: int, partition: TopicPartition) -> bool:
        """Whether a replica's log is corrupted, or was: the damage is no bug."""
        return partition in self._logs and self._logs[partition].broker_id == broker_id

    def has_changed(self, partition: TopicPartition) -> bool:
        """Whether a replica of a partition is corrupted, or was."""
        return partition in self._logs

    def begin(self, machine: Machine, random: Random) -> bool:
        """Kill a broker and change a bit of one of its logs. Return False if no log is suitable."""
        machine.end(Crash.KILLED)
        found = [
            (partition, path, position)
            for partition in self._candidates(machine)
            for path, position in self._places(machine.files, partition, random)
        ]
        if not found:
            return False
        partition, path, position = random.choice(found)
        right = read_whole(machine.files, path)[position]
        machine.files.damage(path, position, bytes([right ^ 1 << random.randrange(8)]))
        self._logs[partition] = CorruptLog(machine.broker_id, path, position, right)
        return True

    def _candidates(self, machine: Machine) -> list[TopicPartition]:
        """Return the partitions that other replicas can serve at present."""
        found = []
        for key, checker in self._world.checker.partitions.items():
            topic, state = self._world.topic_of(key), checker.state
            if topic is None or machine.broker_id not in state.replicas or not {*state.isr} - {machine.broker_id}:
                continue
            partition = TopicPartition(topic.name, key[1])
            if not self._world.is_partition_damaged(partition):
                found.append(partition)
        return found

    def _places(self, files: MemoryFileSystem, partition: TopicPartition, random: Random) -> list[tuple[str, int]]:
        for number in range(self._world.parameters.directories):
            directory = f"logs-{number}"
            path = join(directory, directory_name(partition))
            checkpoint = join(directory, RECOVERY_POINTS_NAME)
            if not files.exists(path) or not files.exists(checkpoint):
                continue
            names = [name for name in files.list_directory(path) if offset_in_name(name, LOG_SUFFIX) is not None]
            flushed = decode_offsets(read_whole(files, checkpoint), checkpoint).get(partition, 0)
            if names:
                path = join(path, max(names))
                return [
                    (path, at + random.randrange(_BEHIND_BASE_OFFSET_AND_EPOCH, header.size_bytes))
                    for at, header in read_headers(bytearray(read_whole(files, path)))
                    if header.last_offset < flushed
                ]
        return []

    def count_copied(self) -> None:
        """Hit the mark of logs that were copied again: their former files are kept next to them."""
        for partition, corrupt in self._logs.items():
            machine = self._world.machines[corrupt.broker_id]
            names = machine.files.list_directory(corrupt.path.split("/")[0])
            if any(is_stray_directory(name, partition) for name in names):
                machine.marks.hit("a damaged log was copied again")

    def put_back(self) -> None:
        """Put each segment back that is still set aside, as an operator, and restart its broker."""
        for corrupt in self._logs.values():
            machine = self._world.machines[corrupt.broker_id]
            if machine.files.exists(corrupt.path + DAMAGED_SUFFIX):
                if machine.is_up:
                    machine.end(Crash.KILLED, 1)
                machine.files.rename(corrupt.path + DAMAGED_SUFFIX, corrupt.path)
                machine.files.fsync_directory(corrupt.path.rpartition("/")[0])
                machine.files.damage(corrupt.path, corrupt.position, bytes([corrupt.right]))
                machine.marks.hit("an operator put a segment back")
