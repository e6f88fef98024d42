"""A fault: files of logs are damaged while a broker is down. At the end an operator puts the files back.

At most one replica of a partition is damaged. If another one is in sync, it leads and the damaged one is copied again.
If none is, the partition waits for the operator: no replica that lacks records leads, and no replica truncates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final, Protocol

from kraftbase.partition import TopicPartition
from kraftlog.sim.broker_log.file_damage import FileDamage, FilesToDamage
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.virtual.crash import Crash
from kraftlog.sim.replication.checker import Checker
from kraftlog.sim.replication.checkers.partition import PartitionChecker
from kraftlog.sim.replication.machine import Machine
from kraftlog.sim.replication.metadata import Key, Topic
from kraftlog.sim.replication.parameters import ReplicationParameters
from kraftlog.storage.formats.inventory import LogEntry

_RATHER_ALONE: Final = 0.8


class DamagedFilesWorld(Protocol):
    """The part of the world that this fault needs."""

    parameters: ReplicationParameters
    marks: Marks
    checker: Checker
    machines: dict[int, Machine]

    def topic_of(self, key: Key) -> Topic | None:
        """Return the topic of a partition; None if it was deleted."""
        ...

    def note(self, text: str) -> None:
        """Write a line into the trace."""
        ...

    def is_partition_damaged(self, partition: TopicPartition) -> bool:
        """Whether a replica of a partition is damaged, or was."""
        ...


@dataclass(slots=True)
class _Damaged:
    broker_id: int
    damage: FileDamage
    is_over: bool = False
    """Whether the log was unchanged when it was opened, or was copied again."""
    was_put_back: bool = False


class DamagedFiles:
    """The damaged files on all disks."""

    def __init__(self, world: DamagedFilesWorld) -> None:
        self._world = world
        self._logs: dict[TopicPartition, _Damaged] = {}
        directories = [f"logs-{number}" for number in range(world.parameters.directories)]
        self._disks = {
            broker_id: FilesToDamage(machine.files, directories) for broker_id, machine in world.machines.items()
        }

    def lacks_records(self, broker_id: int, partition: TopicPartition) -> bool:
        """Whether a replica's log lacks records, or lacked some."""
        found = self._logs.get(partition)
        return found is not None and found.damage.is_loss and found.broker_id == broker_id

    def latest_start(self, broker_id: int, partition: TopicPartition, topic_id: bytes) -> int:
        """Return the highest offset at which the rest of a replica's log may begin; 0 if no file of it was deleted."""
        found = self._logs.get(partition)
        if found is None or found.is_over or not self.lacks_records(broker_id, partition):
            return 0
        return found.damage.latest_start if found.damage.topic_id.bytes == topic_id else 0

    def is_known(self, partition: TopicPartition) -> bool:
        """Whether a replica of a partition is damaged, or once lacked records because of damage."""
        return partition in self._logs

    # --- damage -------------------------------------------------------------------------------------------------------

    def begin(self, machine: Machine, kind: str, random: Random) -> None:
        """End a broker and damage one of its logs, preferably a non-empty one with no other in-sync replica."""
        checkers = self._world.checker.partitions.values()
        alone = sorted(
            {checker.state.isr[0] for checker in checkers if checker.promises.promises and len(checker.state.isr) == 1}
        )
        alone = [broker_id for broker_id in alone if self._world.machines[broker_id].is_up]
        if alone and random.random() < _RATHER_ALONE:
            machine = self._world.machines[random.choice(alone)]
        machine.while_down = partial(self._damage, machine, kind, random)
        if random.random() < 0.5:
            machine.shut_down()
        else:
            machine.end(Crash.KILLED)

    def _damage(self, machine: Machine, kind: str, random: Random) -> None:
        disk = self._disks[machine.broker_id]
        found = [
            (directory, partition, entry) for directory, partition, entry in disk.logs()
            if self._is_replica(machine.broker_id, partition, entry.topic_id.bytes)
            and not self._world.is_partition_damaged(partition)
        ]  # fmt: skip
        if not found:
            return
        found = [
            candidate for candidate in found if self._checker_of(candidate[1], candidate[2]).promises.promises
        ] or found
        alone = [
            candidate
            for candidate in found
            if self._checker_of(candidate[1], candidate[2]).state.isr == (machine.broker_id,)
        ]
        chosen = random.choice(alone if alone and random.random() < _RATHER_ALONE else found)
        damage = disk.damage(kind, *chosen, random)
        if damage is not None:
            self._logs[damage.partition] = _Damaged(machine.broker_id, damage)
            self._world.marks.hit(f"damaged {kind}")
            self._world.note(f"{kind}: {damage.path} of broker {machine.broker_id}")

    def _is_replica(self, broker_id: int, partition: TopicPartition, topic_id: bytes) -> bool:
        checker = self._world.checker.partitions.get((topic_id, partition.partition_id))
        return checker is not None and broker_id in checker.state.replicas

    def _checker_of(self, partition: TopicPartition, entry: LogEntry) -> PartitionChecker:
        return self._world.checker.partitions[entry.topic_id.bytes, partition.partition_id]

    # --- checks -------------------------------------------------------------------------------------------------------

    def started(self, machine: Machine) -> None:
        """Check the damaged logs of a broker that has opened its logs. Raises Violation.

        A log that lacks nothing, or whose files are back, must be unchanged.
        """
        self._disks[machine.broker_id].copy_checkpoints()
        for partition, damaged in list(self._logs.items()):
            damage = damaged.damage
            if damaged.broker_id != machine.broker_id or damaged.is_over or machine.broker is None:
                continue
            if damage.is_loss and not damaged.was_put_back:
                continue
            directory = machine.broker.logs.directory_of(partition)
            log = None if directory is None else directory.logs.get(partition)
            if directory is None or directory.offline_reason or log is None:
                continue
            damage.check(machine.files, log)
            machine.marks.hit(f"as it was, after '{damage.kind}'")
            if damage.is_loss:
                damaged.is_over = True
            elif damage.has_its_topic_id(machine.files):
                del self._logs[partition]

    # --- repair -------------------------------------------------------------------------------------------------------

    def put_back(self) -> None:
        """Put the files of each log that is still damaged back, as an operator, and restart its broker."""
        for partition, damaged in self._logs.items():
            machine = self._world.machines[damaged.broker_id]
            if machine.broker is None or not damaged.damage.is_loss or damaged.was_put_back:
                continue
            if any(partition in directory.damaged for directory in machine.broker.logs.directories):
                machine.end(Crash.KILLED, 1)
                damaged.damage.put_back(machine.files)
                damaged.was_put_back = True
                machine.marks.hit("an operator put files back")
                self._world.note(f"the files of {damaged.damage.path} of broker {machine.broker_id} are put back")

    def count_copied(self) -> None:
        """Hit the mark of logs that were copied again."""
        for partition, damaged in self._logs.items():
            broker = self._world.machines[damaged.broker_id].broker
            directories = broker.logs.directories if broker is not None else ()
            is_there = any(partition in directory.logs for directory in directories)
            if damaged.damage.is_loss and not damaged.was_put_back and is_there:
                self._world.marks.hit("a log with damaged files was copied again")
