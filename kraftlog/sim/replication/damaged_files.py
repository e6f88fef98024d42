"""Files of logs are damaged while a broker is down; an operator puts them back, at the end.

One replica of a partition at most. If another one is in sync it leads meanwhile, and the damaged one is copied anew. If
none is, the partition waits for the operator: no replica that lacks something leads, and none cuts.
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
from kraftlog.sim.replication.court import Court
from kraftlog.sim.replication.judges.partition import PartitionJudge
from kraftlog.sim.replication.machine import Machine
from kraftlog.sim.replication.metadata import Key, Topic
from kraftlog.sim.replication.parameters import ReplicationParameters
from kraftlog.storage.formats.inventory import LogEntry

_RATHER_ALONE: Final = 0.8


class Surroundings(Protocol):
    """The world, as far as damage goes."""

    parameters: ReplicationParameters
    marks: Marks
    court: Court
    machines: dict[int, Machine]

    def topic_of(self, key: Key) -> Topic | None:
        """The topic of a partition."""
        ...

    def note(self, text: str) -> None:
        """Enter something in the trace."""
        ...

    def is_partition_damaged(self, partition: TopicPartition) -> bool:
        """Whether a replica of a partition is damaged, or was."""
        ...


@dataclass(slots=True)
class _Damaged:
    broker_id: int
    damage: FileDamage
    is_over: bool = False
    """Whether the log was as it was when it was opened, or was copied anew."""
    was_put_back: bool = False


class DamagedFiles:
    """On all disks."""

    def __init__(self, world: Surroundings) -> None:
        self._world = world
        self._logs: dict[TopicPartition, _Damaged] = {}
        directories = [f"logs-{number}" for number in range(world.parameters.directories)]
        self._disks = {
            broker_id: FilesToDamage(machine.files, directories) for broker_id, machine in world.machines.items()
        }

    def lacks_records(self, broker_id: int, partition: TopicPartition) -> bool:
        """Whether records of a replica are missing, or were."""
        found = self._logs.get(partition)
        return found is not None and found.damage.is_loss and found.broker_id == broker_id

    def latest_start(self, broker_id: int, partition: TopicPartition, topic_id: bytes) -> int:
        """Where what is left of a replica's log may begin at the latest; 0 if nobody has deleted files of it."""
        found = self._logs.get(partition)
        if found is None or found.is_over or not self.lacks_records(broker_id, partition):
            return 0
        return found.damage.latest_start if found.damage.topic_id.bytes == topic_id else 0

    def is_known(self, partition: TopicPartition) -> bool:
        """Whether a replica of a partition is damaged, or was in such a way that it lacked records."""
        return partition in self._logs

    # --- doing damage -------------------------------------------------------------------------------------------------

    def begin(self, machine: Machine, kind: str, random: Random) -> None:
        """End a broker, and damage a log that it has: rather one that it is alone in sync of, and not empty."""
        judges = self._world.court.judges.values()
        alone = sorted(
            {judge.state.isr[0] for judge in judges if judge.promises.promises and len(judge.state.isr) == 1}
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
        found = [one for one in found if self._judge(one[1], one[2]).promises.promises] or found
        alone = [one for one in found if self._judge(one[1], one[2]).state.isr == (machine.broker_id,)]
        chosen = random.choice(alone if alone and random.random() < _RATHER_ALONE else found)
        damage = disk.damage(kind, *chosen, random)
        if damage is not None:
            self._logs[damage.partition] = _Damaged(machine.broker_id, damage)
            self._world.marks.hit(f"damaged {kind}")
            self._world.note(f"{kind}: {damage.path} of broker {machine.broker_id}")

    def _is_replica(self, broker_id: int, partition: TopicPartition, topic_id: bytes) -> bool:
        judge = self._world.court.judges.get((topic_id, partition.partition_id))
        return judge is not None and broker_id in judge.state.replicas

    def _judge(self, partition: TopicPartition, entry: LogEntry) -> PartitionJudge:
        return self._world.court.judges[entry.topic_id.bytes, partition.partition_id]

    # --- judging ------------------------------------------------------------------------------------------------------

    def started(self, machine: Machine) -> None:
        """A broker's logs are open: one that lacks nothing, or no longer does, is as it was. Raises Violation."""
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

    # --- putting back -------------------------------------------------------------------------------------------------

    def put_back(self) -> None:
        """An operator puts the files back of each log that is still damaged, and restarts its broker."""
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
        """Note that logs were copied anew."""
        for partition, damaged in self._logs.items():
            broker = self._world.machines[damaged.broker_id].broker
            directories = broker.logs.directories if broker is not None else ()
            is_there = any(partition in directory.logs for directory in directories)
            if damaged.damage.is_loss and not damaged.was_put_back and is_there:
                self._world.marks.hit("a log with damaged files was copied anew")
