"""Brokers, their controller, and the network between them."""

from __future__ import annotations

from random import Random
from typing import Final

from kraftbase.partition import TopicPartition
from kraftlog.kafka.notation import Message
from kraftlog.sim.broker_log.described import describe_replicas
from kraftlog.sim.engine.event_world import EventWorld
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.virtual.crash import Crash
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS
from kraftlog.sim.engine.virtual.network import Network, NetworkConditions
from kraftlog.sim.replication.away_disks import AwayDisks
from kraftlog.sim.replication.bit_rot import BitRot
from kraftlog.sim.replication.broker import Broker
from kraftlog.sim.replication.checker import Checker
from kraftlog.sim.replication.controller import SimulatedController
from kraftlog.sim.replication.controller_nodes import ControllerNodes
from kraftlog.sim.replication.damaged_files import DamagedFiles
from kraftlog.sim.replication.eligible_replicas import EligibleReplicas
from kraftlog.sim.replication.machine import Machine
from kraftlog.sim.replication.metadata import CommittedTopics, Key, Topic
from kraftlog.sim.replication.older_disks import OlderDisks
from kraftlog.sim.replication.parameters import ReplicationParameters
from kraftlog.sim.replication.wire import CONTROLLER, Exchange, Wire
from statemachine.replay.deltas import MetadataDelta

CHECK_US: Final = 1_500 * MICROSECONDS_PER_MS
"""The interval between two checks of the files of all replicas."""
LINK_RETRY_US: Final = 150 * MICROSECONDS_PER_MS
NETWORK_DELAY_US: Final = (150, 1_500)


class World(EventWorld):
    """The replication world (`kraftlog.sim.replication.machine.Environment`)."""

    def __init__(self, parameters: ReplicationParameters, marks: Marks, *, echo: bool = False) -> None:
        super().__init__(Random(f"world of replication {parameters.seed}"), marks, echo=echo)
        self.parameters = parameters
        conditions = NetworkConditions(delay_us=NETWORK_DELAY_US)
        self.network = Network(self.event_queue, self.new_random(), conditions, marks)
        self.wire = Wire(self.event_queue, self.network, has_codec=parameters.has_codec)
        self.controller = SimulatedController(parameters, self.event_queue, self.new_random())
        self.controller.log.on_committed = self._committed
        self.nodes = ControllerNodes(self.controller, marks)
        names = {f"topic{number}": topic for number, topic in enumerate(parameters.topics)}
        self.metadata = CommittedTopics(names)
        self.checker = Checker(self)
        self.machines = {broker_id: Machine(self, broker_id) for broker_id in range(1, parameters.brokers + 1)}
        self.bit_rot = BitRot(self)
        self.older_disks = OlderDisks(self)
        self.away_disks = AwayDisks(self)
        self.eligible_replicas = EligibleReplicas(self)
        self.damaged_files = DamagedFiles(self)
        self.wire.listeners.update(self.machines)
        self.slow_metadata: dict[int, int] = {}
        """By broker: an additional delay of its metadata, in milliseconds."""
        self._delivering: dict[int, int] = dict.fromkeys(self.machines, 0)
        self._random = self.new_random()

    def start(self) -> None:
        """Start all brokers, and schedule the checks of their files."""
        for machine in self.machines.values():
            self.event_queue.after(self._random.randint(0, 50_000), machine.start)
        self.event_queue.after(CHECK_US, self._check)

    @property
    def checks(self) -> int:
        """How many checks were made."""
        return self.checker.checks

    def describe_nodes(self) -> list[str]:
        """Return a line for each broker and each of its replicas."""
        lines: list[str] = []
        for broker_id, machine in self.machines.items():
            if machine.broker is None:
                lines.append(f"broker {broker_id} is down, or starts")
            else:
                lines += [f"broker {broker_id} runs", *describe_replicas(machine.broker.partitions)]
        return lines

    # --- the metadata -------------------------------------------------------------------------------------------------

    def _committed(self, deltas: list[MetadataDelta]) -> None:
        for delta in deltas:
            for topic, index, state, is_unclean in self.metadata.apply(delta):
                is_unclean |= self.older_disks.is_operators_election((topic.topic_id, index), state)
                self.checker.partition_changed(topic, index, state, is_unclean=is_unclean)
        for machine in self.machines.values():
            self._send_metadata(machine)

    def _send_metadata(self, machine: Machine) -> None:
        """Deliver the committed metadata to a broker after a delay."""
        batch_count = len(self.controller.log.batches)
        delay_us = self._random.randint(300, self.parameters.metadata_delay_ms * MICROSECONDS_PER_MS)
        delay_us += self.slow_metadata.get(machine.broker_id, 0) * MICROSECONDS_PER_MS
        arrives_us = max(self._delivering[machine.broker_id], self.event_queue.now_us + delay_us)
        self._delivering[machine.broker_id] = arrives_us
        self.event_queue.after(
            arrives_us - self.event_queue.now_us, lambda: self._deliver_metadata(machine, batch_count)
        )

    def _deliver_metadata(self, machine: Machine, batch_count: int) -> None:
        links = ((CONTROLLER, machine.broker_id), (machine.broker_id, CONTROLLER))
        if machine.applied_batches >= batch_count or not machine.is_up:
            return
        is_cut = any(link in self.network.cut_since_us for link in links)
        if is_cut or self.nodes.is_cut_off(machine.broker_id):
            self.event_queue.after(LINK_RETRY_US, lambda: self._deliver_metadata(machine, batch_count))
            return
        machine.apply_metadata(batch_count)

    def topic_of(self, key: Key) -> Topic | None:
        """Return the topic of a partition; None if it was deleted."""
        name = self.metadata.names.get(key[0])
        return None if name is None else self.metadata.topics.get(name)

    def is_damaged(self, broker_id: int, partition: TopicPartition) -> bool:
        """Whether a replica's log lacks records, or lacked some: its damage is no bug."""
        return self.bit_rot.is_known(broker_id, partition) or self.damaged_files.lacks_records(broker_id, partition)

    def is_partition_damaged(self, partition: TopicPartition) -> bool:
        """Whether a replica of a partition is damaged, or was."""
        return self.bit_rot.has_changed(partition) or self.damaged_files.is_known(partition)

    # --- brokers ------------------------------------------------------------------------------------------------------

    def broker_started(self, machine: Machine) -> None:
        """Check the broker's logs, and send it the metadata that it missed."""
        self.checker.broker_started(machine)
        self.damaged_files.started(machine)
        self._send_metadata(machine)

    def broker_stepped(self, machine: Machine) -> None:
        """Check the broker's replicas."""
        self.checker.broker_stepped(machine)

    def broker_ended(self, machine: Machine, crash: Crash) -> None:
        """Forget the memory of the broker's process."""
        self.checker.broker_ended(machine, crash)

    def serve(self, machine: Machine, broker: Broker, body: Message, version: int, exchange: Exchange) -> None:
        """Handle a request in a step of the broker."""
        process = machine.process
        answers: list[Message] = []

        def reply(response: Message | None, throttle_ms: int = 0) -> None:
            if not process.has_ended and not broker.is_closed and response is not None:
                answers.append(response)
                self.checker.answered(machine, body, response)
                exchange.reply(response, version)

        request = broker.handle(body, version, reply)
        if request is None:
            exchange.broken()
            return

        def client_gone() -> None:
            for gone in request.on_client_done:
                gone()

        exchange.on_client_gone = [lambda: process.run(client_gone)]
        self.checker.asked(machine, broker, body, answers[0] if answers else None)

    def _check(self) -> None:
        self.check_now()
        self.event_queue.after(CHECK_US, self._check)

    def check_now(self) -> None:
        """Check the files of all replicas, between two steps of their brokers. Raises Violation."""
        for machine in self.machines.values():
            if machine.broker is not None and not machine.process.has_ended:
                self.checker.check_files(machine, machine.broker)

    def heal(self) -> None:
        """End all faults."""
        self.network.heal()
        self.network.conditions = NetworkConditions(delay_us=NETWORK_DELAY_US)
        self.slow_metadata.clear()
        self.nodes.heal()
        for machine in self.machines.values():
            machine.files.space_limit = None
            machine.clock.wall_offset_ms = 0
            machine.kills_at_start = machine.asks_at_start = machine.kills_at_end = False
            machine.mend_slow_disk()
            self.away_disks.bring_back(machine)
