"""Passes events to the checkers: every step of a broker, every fetch of a follower, every answer, the files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, Protocol, cast

from kraftbase.files.files import join
from kraftbase.partition import TopicPartition
from kraftlog.kafka.messages.fetch import FetchRequest, FetchResponse
from kraftlog.kafka.notation import Message
from kraftlog.replicas.partitions.partition import Partition
from kraftlog.sim.broker_log.checkers.batches import Batch
from kraftlog.sim.broker_log.checkers.durable import is_durable
from kraftlog.sim.broker_log.checkers.rules import SOUND
from kraftlog.sim.broker_log.checkers.transactions import StableView, check_last_stable
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.engine.virtual.crash import Crash
from kraftlog.sim.replication.broker import FETCH, Broker
from kraftlog.sim.replication.checkers.inventories import differences
from kraftlog.sim.replication.checkers.partition import PartitionChecker
from kraftlog.sim.replication.checkers.promises import PartitionPromises
from kraftlog.sim.replication.checkers.replica_files import ReplicaFiles
from kraftlog.sim.replication.checkers.rules import MEMBERS
from kraftlog.sim.replication.checkers.views import NO_LEADER, LeaderView, PartitionState, ReplicaView
from kraftlog.sim.replication.fetches import Asked, FetchesAtLeader, failed
from kraftlog.sim.replication.machine import Machine
from kraftlog.sim.replication.metadata import CommittedTopics, Key, Topic
from kraftlog.sim.replication.parameters import FULL, ReplicationParameters
from kraftlog.storage.formats.names import directory_name
from kraftlog.storage.partition_log import PartitionLog
from kraftlog.telemetry.observer import Decision, LeadershipBegun, LogStartedOver, LogTruncated

ANY_EPOCH: Final = -1


class KnownOlderDisks(Protocol):
    """The disks that are older copies."""

    def is_leaving(self, broker_id: int) -> bool:
        """Whether a broker's disk was replaced by an older copy while it may still be in ISRs."""
        ...


class KnownDamage(Protocol):
    """The logs whose files were damaged."""

    def latest_start(self, broker_id: int, partition: TopicPartition, topic_id: bytes) -> int:
        """Return the highest offset at which the rest of a replica's log may begin; 0 if no file of it was deleted."""
        ...


class Watched(Protocol):
    """The part of the world that the checkers see."""

    parameters: ReplicationParameters
    marks: Marks
    metadata: CommittedTopics
    machines: dict[int, Machine]

    def is_damaged(self, broker_id: int, partition: TopicPartition) -> bool:
        """Whether a replica's log lacks records, or lacked some: its damage is no bug."""
        ...

    @property
    def damaged_files(self) -> KnownDamage:
        """The logs whose files were damaged."""
        ...

    @property
    def older_disks(self) -> KnownOlderDisks:
        """The disks that are older copies."""
        ...

    def note(self, text: str) -> None:
        """Write a line into the trace."""
        ...

    def topic_of(self, key: Key) -> Topic | None:
        """Return the topic of a partition; None if it was deleted."""
        ...


class Checker:
    """The checkers of all partitions, and the state that they need."""

    def __init__(self, world: Watched) -> None:
        self._world = world
        self._marks = world.marks
        self.partitions: dict[Key, PartitionChecker] = {}
        """The checkers of all existing partitions."""
        self._fetches: dict[int, FetchesAtLeader] = {}
        self._seen: dict[int, dict[Key, tuple[ReplicaView, LeaderView | None]]] = {}
        """By broker: the replicas of its process as they were after its last step."""
        self._brokers: dict[int, tuple[int, dict[int, int], dict[int, int]]] = {}
        self._files: defaultdict[int, ReplicaFiles] = defaultdict(ReplicaFiles)
        self._past_checks = 0

    @property
    def checks(self) -> int:
        """How many checks were made."""
        return self._past_checks + sum(_checks(checker) for checker in self.partitions.values())

    # --- the controller -----------------------------------------------------------------------------------------------

    def partition_changed(self, topic: Topic, index: int, state: PartitionState | None, *, is_unclean: bool) -> None:
        """Handle a partition that the controller has created, changed or (`state` is None) deleted."""
        key = (topic.topic_id, index)
        checker = self.partitions.get(key)
        if state is None:
            if checker is not None:
                self._past_checks += _checks(checker)
                del self.partitions[key]
            return
        self._world.note(
            f"{topic.name}-{index}: leader {state.leader} in epoch {state.leader_epoch}, partition epoch"
            f" {state.partition_epoch}, ISR {state.isr}, replicas {state.replicas}, eligible {state.eligible_leaders}"
            f"{', unclean' if is_unclean else ''}"
        )
        if checker is None:
            promises = PartitionPromises(f"{topic.name}-{index}", topic.parameters.flush_before_ack)
            checker = self.partitions[key] = PartitionChecker(promises, self._world.parameters.lag_max_ms, state)
        self._mark(checker.state, state, is_unclean=is_unclean)
        checker.promises.is_in_sync([broker_id for broker_id in state.isr if broker_id not in checker.state.isr])
        checker.committed(state, is_unclean=is_unclean)
        if is_unclean and state.leader in state.damaged:
            partition = TopicPartition(topic.name, index)
            start = self._world.damaged_files.latest_start(state.leader, partition, topic.topic_id)
            checker.promises.damaged_leader(state.leader_epoch, start)
        checker.check_members()

    def _mark(self, before: PartitionState, after: PartitionState, *, is_unclean: bool) -> None:
        if len(after.isr) < len(before.isr):
            self._marks.hit("an ISR shrank")
        if any(broker_id not in before.isr for broker_id in after.isr):
            self._marks.hit("an ISR grew")
        if after.leader not in (before.leader, NO_LEADER):
            self._marks.hit("an unclean leader was elected" if is_unclean else "a leader was elected")
        if after.leader == NO_LEADER != before.leader:
            self._marks.hit("a partition lost its leader")
        if after.eligible_leaders and not before.eligible_leaders:
            self._marks.hit("a replica out of the ISR is eligible")
        if any(broker_id not in after.replicas for broker_id in before.replicas):
            self._marks.hit("a replica was removed")

    # --- brokers ------------------------------------------------------------------------------------------------------

    def broker_started(self, machine: Machine) -> None:
        """Check a broker that has opened its logs: only logs that a fault has damaged may be damaged."""
        self._fetches[machine.broker_id] = FetchesAtLeader()
        self._seen[machine.broker_id] = {}
        self._brokers.pop(machine.broker_id, None)
        if machine.broker is not None:
            self._check_damage(machine, machine.broker)
            self._check_what_is_decided(machine, machine.broker)

    def _check_damage(self, machine: Machine, broker: Broker) -> None:
        for directory in broker.logs.directories:
            for partition, reason in directory.damaged.items():
                if not self._world.is_damaged(machine.broker_id, partition):
                    raise Violation(f"{SOUND}: broker {machine.broker_id}: {reason}")

    def _check_what_is_decided(self, machine: Machine, broker: Broker) -> None:
        for directory in broker.logs.directories:
            for partition, log in directory.logs.items():
                if not self._world.is_damaged(machine.broker_id, partition):
                    batches, _ = ReplicaFiles().read(machine.files, log.directory)
                    name = f"{partition.topic}-{partition.partition_id} of broker {machine.broker_id}"
                    _check_last_stable(name, batches, log)

    def broker_ended(self, machine: Machine, crash: Crash) -> None:
        """Forget the memory of a broker whose process ended. After a loss of power, promises may be void."""
        self._seen.pop(machine.broker_id, None)
        for key, checker in self.partitions.items():
            checker.gone(machine.broker_id)
            topic = self._world.topic_of(key)
            if crash is not Crash.KILLED and topic is not None and machine.broker_id in checker.state.replicas:
                count = min(topic.lowest_min_isr, len(checker.state.replicas))
                if not self._world.parameters.has_eligible_leaders:
                    count = 1
                if checker.promises.lost_power(machine.broker_id, count, checker.state.leader_epoch):
                    self._marks.hit("what was acknowledged may be lost with the power")

    def broker_stepped(self, machine: Machine) -> None:
        """Check every replica of the broker that has changed, and every one that leads."""
        broker, seen = machine.broker, self._seen.get(machine.broker_id)
        if broker is None or seen is None or not broker.is_serving:
            return
        self._check_damage(machine, broker)
        broker.leaderships.checker().leads({
            (led.topic_id, led.index): led.leading.leader_epoch for led in broker.partitions if led.leading is not None
        })  # fmt: skip
        for partition in broker.partitions:
            checker = self.partitions.get((partition.topic_id, partition.index))
            if checker is not None:
                self._look_at(machine, broker, partition, checker, seen)
        for decision in broker.decisions.take():
            self._decided(machine, broker, decision, seen)
        if len(seen) > len(broker.partitions):
            for key in [key for key in seen if broker.partitions.with_id(*key) is None]:
                self._gone(machine, key, seen)

    def _gone(self, machine: Machine, key: Key, seen: dict[Key, tuple[ReplicaView, LeaderView | None]]) -> None:
        if seen.pop(key, None) is not None and key in self.partitions:
            self.partitions[key].gone(machine.broker_id)

    def _look_at(
        self, machine: Machine, broker: Broker, partition: Partition, checker: PartitionChecker,
        seen: dict[Key, tuple[ReplicaView, LeaderView | None]],
    ) -> None:  # fmt: skip
        key, log, leading = (partition.topic_id, partition.index), partition.log, partition.leading
        if log is None:
            self._gone(machine, key, seen)
            return
        view = ReplicaView(
            machine.broker_id, machine.life, partition.leader_epoch, log.log_start_offset, log.log_end_offset,
            log.recovery_point, log.high_watermark, log.epochs.latest,
        )  # fmt: skip
        before = seen.get(key)
        leader: LeaderView | None = None
        if leading is not None:
            leader = self._leader_view(machine, broker, partition)
        elif before is not None and before[1] is None and before[0] == view:
            return
        seen[key] = (view, leader)
        process = machine.process
        checker.seen(view, leader, process.now_ms(), machine.clock.now_ms(process.hung_until_us))

    def _decided(
        self,
        machine: Machine,
        broker: Broker,
        decision: Decision,
        seen: dict[Key, tuple[ReplicaView, LeaderView | None]],
    ) -> None:
        match decision:
            case LeadershipBegun(name):
                self._marks.hit("a broker began to lead")
                partition = broker.partitions.named(*name)
                key = None if partition is None else (partition.topic_id, partition.index)
                if partition is not None and key in seen and key in self.partitions:
                    self._check_file(machine, broker, partition, self.partitions[key], *seen[key])
            case LogTruncated(name, epoch, start, end, high_watermark) | LogStartedOver(
                name, epoch, start, end, high_watermark
            ) if end < start:
                self._marks.hit("a follower cut its log")
                self._world.note(
                    f"broker {machine.broker_id} cuts {name.topic}-{name.partition_id} from {start} to {end}, high"
                    f" watermark {high_watermark}, in epoch {epoch}"
                )

    def _leader_view(self, machine: Machine, broker: Broker, partition: Partition) -> LeaderView | None:
        leading = partition.leading
        if leading is None:
            return None
        eligible, registered = self._brokers_known_to(machine, broker)
        pending = None if leading.pending is None else leading.pending.isr
        return LeaderView(
            leading.partition_epoch, leading.isr, pending, leading.maximal_isr, partition.min_insync_replicas,
            eligible, registered,
        )  # fmt: skip

    def _brokers_known_to(self, machine: Machine, broker: Broker) -> tuple[dict[int, int], dict[int, int]]:
        known = self._brokers.get(machine.broker_id)
        if known is None or known[0] != broker.cluster.version:
            brokers = broker.cluster.brokers.values()
            registered = {broker_state.broker_id: broker_state.broker_epoch for broker_state in brokers}
            eligible = {
                broker_state.broker_id: broker_state.broker_epoch
                for broker_state in brokers
                if not broker_state.fenced and not broker_state.in_controlled_shutdown
            }
            known = self._brokers[machine.broker_id] = (broker.cluster.version, eligible, registered)
        return known[1], known[2]

    # --- fetches of followers -----------------------------------------------------------------------------------------

    def answered(self, machine: Machine, body: Message, response: Message) -> None:
        """Record an answer that leaves a broker and may open a fetch session."""
        if _is_from_follower(body):
            fetches, request = self._fetches[machine.broker_id], cast(FetchRequest, body)
            fetches.answered(request, cast(FetchResponse, response))

    def asked(self, machine: Machine, broker: Broker, body: Message, response: Message | None) -> None:
        """Count a request that a broker has started to handle; `response` is its answer, if it has one already."""
        if not _is_from_follower(body):
            return
        request, answer = cast(FetchRequest, body), cast(FetchResponse | None, response)
        if answer is not None and answer.error_code:
            return
        refused = {} if answer is None else failed(answer)
        state = request.replica_state
        registered = self._brokers_known_to(machine, broker)[1].get(state.replica_id, ANY_EPOCH)
        if state.replica_epoch < registered:
            self._marks.hit("a fetch of an old broker epoch came")
        for key, requested in self._fetches[machine.broker_id].wanted(request).items():
            if key not in refused:
                self._count(machine, broker, key, requested, state.replica_id, state.replica_epoch)

    def _count(
        self, machine: Machine, broker: Broker, key: Key, requested: Asked, replica_id: int, replica_epoch: int
    ) -> None:
        checker, partition = self.partitions.get(key), broker.partitions.with_id(*key)
        if checker is None or partition is None or partition.log is None or machine.broker_id not in checker.led:
            return
        led, leader = checker.led[machine.broker_id], self._leader_view(machine, broker, partition)
        is_stale = requested.leader_epoch not in (ANY_EPOCH, partition.leader_epoch)
        if leader is None or is_stale or led.leader_epoch != partition.leader_epoch:
            return
        if replica_epoch != ANY_EPOCH and replica_epoch < leader.registered.get(replica_id, ANY_EPOCH):
            return
        now_ms = machine.process.now_ms()
        led.follower(replica_id).fetches(requested.offset, partition.log.log_end_offset, now_ms, replica_epoch)
        was = checker.leaders.get(machine.broker_id)
        if was is not None and was.pending is None and replica_id in checker.state_known_to(leader).replicas:
            view = checker.replicas[machine.broker_id]._replace(
                log_end=partition.log.log_end_offset, high_watermark=partition.log.high_watermark
            )
            led.fetched(replica_id, view, leader, now_ms)

    # --- answers to clients -------------------------------------------------------------------------------------------

    def acknowledged(self, machine: Machine, key: Key, base_offset: int, batch: Batch, acks: int) -> None:
        """Check an acknowledgment that a broker sends to a producer."""
        checker, (view, leads) = self.partitions.get(key), self._of(machine, key)
        if checker is None or view is None:
            return
        if leads:
            checker.promises.leads(machine.broker_id, view.leader_epoch)
            if machine.broker is not None:
                machine.broker.leaderships.acknowledges(key, view.leader_epoch)
        if acks != -1:
            return
        if batch.sequence_key is not None and base_offset in checker.promises.promises:
            self._marks.hit("a duplicate was acknowledged")
        checker.promises.acknowledged(base_offset, batch, view.leader_epoch)
        topic = self._world.topic_of(key)
        if (
            topic is None
            or view.leader_epoch != checker.state.leader_epoch
            or checker.state.leader != machine.broker_id
        ):
            return
        for broker_id in checker.state.isr:
            is_damaged = self._world.is_damaged(broker_id, TopicPartition(topic.name, key[1]))
            if not is_damaged and not self._world.older_disks.is_leaving(broker_id):
                self._check_has(topic, key, broker_id, base_offset, batch, checker)

    def _check_has(
        self, topic: Topic, key: Key, broker_id: int, base_offset: int, batch: Batch, checker: PartitionChecker
    ) -> None:
        """Check that a member of the ISR has the batch on disk, as `flush.before.ack` with acks=all promises."""
        if not topic.parameters.flush_before_ack or base_offset < checker.promises.deleted_below:
            return
        machine = self._world.machines[broker_id]
        files = machine.files
        for directory in machine.log_paths:
            path = join(directory, f"{topic.name}-{key[1]}")
            if files.exists(path) and is_durable(files, path, base_offset, batch.content):
                return
        raise Violation(
            f"{MEMBERS}: {checker.name}: the batch at {base_offset} is acknowledged; broker {broker_id} is in the ISR"
            f" {checker.state.isr}, but does not have it on its disk"
        )

    def read(self, machine: Machine, key: Key, batches: Iterable[Batch]) -> None:
        """Check the batches that a broker sends to a consumer."""
        checker, (view, leads) = self.partitions.get(key), self._of(machine, key)
        if checker is not None and view is not None:
            self._marks.hit("a leader gave records" if leads else "a follower gave records")
            # A follower may not have detected yet where its log diverges from that of an unclean leader.
            epoch = view.leader_epoch if leads else min(view.leader_epoch, view.last_epoch)
            checker.promises.read(batches, epoch, is_leader=leads)

    def _of(self, machine: Machine, key: Key) -> tuple[ReplicaView | None, bool]:
        """Return the present state of a replica, and whether it leads."""
        broker = machine.broker
        partition = None if broker is None else broker.partitions.with_id(*key)
        if partition is None or partition.log is None:
            return None, False
        log = partition.log
        view = ReplicaView(
            machine.broker_id, machine.life, partition.leader_epoch, log.log_start_offset, log.log_end_offset,
            log.recovery_point, log.high_watermark, log.epochs.latest,
        )  # fmt: skip
        return view, partition.leading is not None

    # --- files --------------------------------------------------------------------------------------------------------

    def check_files(self, machine: Machine, broker: Broker) -> None:
        """Check the files of every replica of a broker. Raises Violation."""
        seen = self._seen.get(machine.broker_id, {})
        for key, checker in self.partitions.items():
            partition = broker.partitions.with_id(*key)
            if partition is not None and partition.log is not None and key in seen:
                view, leader = seen[key]
                self._check_file(machine, broker, partition, checker, view, leader)

    def _check_file(
        self, machine: Machine, broker: Broker, partition: Partition, checker: PartitionChecker, view: ReplicaView,
        leader: LeaderView | None,
    ) -> None:  # fmt: skip
        directory = broker.logs.directory_of(partition.name)
        if directory is None or directory.offline_reason:
            return
        checker.promises.replica_begins(machine.broker_id, view.log_start, view.leader_epoch)
        path = join(directory.path, str(partition))
        batches, changed = self._files[machine.broker_id].read(machine.files, path)
        if partition.log is not None:
            _check_last_stable(checker.name, batches, partition.log)
        checker.promises.replica_has(machine.broker_id, changed)
        is_leader = leader is not None and (checker.state.leader, checker.state.leader_epoch) == (
            machine.broker_id, view.leader_epoch,
        )  # fmt: skip
        if is_leader:
            checker.promises.leader_has(machine.broker_id, batches, view.leader_epoch, view.log_start)
        if view.last_epoch >= checker.promises.unclean_epoch:
            epoch = min(view.leader_epoch, view.last_epoch)
            checker.promises.confirmed(batches, view.high_watermark, epoch, is_leader=is_leader)

    def unsettled(self) -> list[str]:
        """Return what is not settled in the quiet phase yet: replicas out of sync, and ends that differ."""
        found: list[str] = []
        for key, checker in self.partitions.items():
            state = checker.state
            if {*state.isr} != {*state.replicas} or state.leader == NO_LEADER:
                found.append(f"{checker.name} is led by {state.leader}, the ISR {state.isr} of {state.replicas}")
                continue
            views = [self._seen.get(broker_id, {}).get(key, (None, None))[0] for broker_id in state.replicas]
            leader = checker.replicas.get(state.leader)
            if leader is None or any(
                view is None
                or (view.log_end, view.high_watermark) != (leader.log_end, leader.log_end)
                or view.leader_epoch != state.leader_epoch
                for view in views
            ):
                found.append(f"{checker.name}, led by {state.leader}: {views}")
                continue
            found += self._misplaced(key, checker)
        if FULL not in self._world.parameters.fault_kinds:
            for machine in self._world.machines.values():
                if machine.broker is not None:
                    found += _differences(machine, machine.broker)
        return found

    def _misplaced(self, key: Key, checker: PartitionChecker) -> list[str]:
        """Return the replicas whose log directory the controller does not know."""
        topic, state = self._world.topic_of(key), checker.state
        found: list[str] = []
        for broker_id, assigned in zip(state.replicas, state.directories, strict=False):
            broker = self._world.machines[broker_id].broker
            if broker is not None and topic is not None:
                directory = broker.logs.directory_of(TopicPartition(topic.name, key[1]))
                if directory is not None and directory.directory_id.bytes != assigned:
                    found.append(
                        f"{checker.name} is in {directory.path} of broker {broker_id}, which the controller does not"
                        " know"
                    )
        return found


def _differences(machine: Machine, broker: Broker) -> list[str]:
    """Return the surplus and the missing entries in the inventories of a broker's log directories."""
    found: list[str] = []
    for directory in broker.logs.online:
        noted = [directory_name(partition) for partition in directory.records.partitions]
        here = [directory_name(partition) for partition in (*directory.logs, *directory.damaged)]
        found += differences(f"the inventory of {directory.path} of broker {machine.broker_id}", noted, here)
    return found


def _check_last_stable(name: str, batches: list[Batch], log: PartitionLog) -> None:
    view = StableView(log.log_start_offset, log.high_watermark, log.last_stable_offset)
    check_last_stable(name, batches, view)


def _is_from_follower(body: Message) -> bool:
    return body.KEY == FETCH and cast(FetchRequest, body).replica_state.replica_id >= 0


def _checks(checker: PartitionChecker) -> int:
    return checker.checks + checker.promises.checks + sum(led.checks for led in checker.led.values())
