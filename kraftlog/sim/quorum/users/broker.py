"""Brokers that register, send heartbeats, lead partitions, stop and return.

A broker learns the metadata from the answers that it gets, up to the offset that the answering node had applied: it is
never ahead of the controller, and mostly behind. It proposes new ISRs for the partitions that it leads, with the epochs
that it knows. It keeps each proposal until it learns of a later partition epoch, because its request may still be in
flight. Its ISR together with its proposals must never lack a replica that the controller counts in (invariant 40).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from random import Random
from typing import Final

from kraftbase.errors import ErrorCode
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS
from kraftlog.sim.quorum.cluster.cluster import Cluster
from kraftlog.sim.quorum.model.keys import Key
from kraftlog.sim.quorum.model.metadata import MetadataModel, Partition
from kraftlog.sim.quorum.node.process import Process
from kraftlog.sim.quorum.observation.broker_view import Led
from kraftlog.sim.quorum.observation.call import Call
from kraftlog.sim.quorum.users.broker_sockets import CLOSED_US_MAX, BrokerListener, Streams
from kraftlog.sim.quorum.users.isr_proposals import propose_isr
from kraftlog.sim.quorum.users.rpc import RpcClient
from kraftlog.sim.quorum.users.tiering import Tiering
from kraftpb.v1.admin_pb2 import (
    AlterPartitionRequest,
    AlterPartitionResult,
    BrokerHeartbeatRequest,
    Operation,
    RegisterBrokerRequest,
)
from kraftpb.v1.metadata_pb2 import BrokerEndpoint, SupportedFeature
from statemachine.words.features import SUPPORTED

FIRST_BROKER_ID: Final = 201
"""The first broker's place in the network and its id; the others follow."""

RETRY_MS: Final = 300
"""The retry interval of a broker that has not reached the state that it wants."""

RECONNECT_US: Final = (CLOSED_US_MAX, 50 * MICROSECONDS_PER_MS)
"""The time that a broker takes to connect again, at least and at most."""

REFUSED_US_MAX: Final = 70 * MICROSECONDS_PER_MS
"""The longest time for which a listener refuses connections after a reset."""

_REGISTER_ANEW: Final = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)


class BrokerState(Enum):
    """The state of a broker's process."""

    DOWN = auto()
    UP = auto()
    HANGING = auto()
    """The process does nothing, and continues later without noticing the pause."""
    LEAVING = auto()
    """The process is in a controlled shutdown."""


class Broker:
    """One broker."""

    def __init__(self, cluster: Cluster, broker_id: int, random: Random) -> None:
        parameters = cluster.parameters.brokers
        if parameters is None:
            raise ValueError("this run has no brokers")
        self._cluster = cluster
        self._parameters = parameters
        self._random = random
        self._rpc = RpcClient(cluster, broker_id, random, may_repeat=True)
        self.broker_id = broker_id
        self.state = BrokerState.DOWN
        self.epoch: int | None = None
        """The broker epoch of its registration; None if it knows of none."""
        self.led: dict[Key, Led] = {}
        """The partitions that it leads, as far as it knows."""
        self.metadata = MetadataModel()
        """The metadata that it knows."""
        self._applied_batches = 0
        self._tiering = Tiering(self, cluster.remote_storage, random)
        self._log_dir = random.randbytes(16)
        self._incarnation = b""
        self.host = f"broker-{broker_id}"
        others = Random(f"sockets {random.getrandbits(32)}")
        self._streams = Streams(cluster, broker_id, others)
        self.listener = BrokerListener(cluster, broker_id, others, lambda: self.state is not BrokerState.DOWN)
        self._clean_epoch: int | None = None
        """The broker epoch of its last clean shutdown, if it had one."""
        self._is_fenced = True
        self._number = 0
        """Counts incarnations and their ends. Events that an earlier incarnation scheduled are void."""
        self._is_quiescing = False

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start a new incarnation."""
        self.state = BrokerState.UP
        self._begin_incarnation()
        self.metadata, self._applied_batches = MetadataModel(), 0
        self._after(self._random.randrange(50, 2_000), self._tick)
        self._plan_outage()
        self._plan_alteration()

    def _begin_incarnation(self) -> None:
        self._incarnation = self._random.randbytes(16)
        self._number += 1
        self.epoch, self._is_fenced = None, True
        self.led.clear()

    def quiesce(self) -> None:
        """End faults and new work: the broker stays up, restarts, or stays down for good."""
        self._is_quiescing = True
        if self.state is BrokerState.HANGING:
            self.state = BrokerState.UP
            self._after(RETRY_MS, self._tick)
        elif self.state is BrokerState.LEAVING or (self.state is BrokerState.DOWN and self._random.random() < 0.4):
            self.start()
        elif self.state is BrokerState.UP and self._random.random() < 0.2:
            self.state = BrokerState.DOWN
            self._streams.end()

    @property
    def running_incarnation(self) -> bytes | None:
        """The incarnation id of its process, even if the process hangs; None if no process runs."""
        return None if self.state is BrokerState.DOWN else self._incarnation

    @property
    def is_up(self) -> bool:
        """Whether its process is up: it has not ended, does not hang, and is not in a controlled shutdown."""
        return self.state is BrokerState.UP

    def _after(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Run `action` after a delay, unless the incarnation has ended by then."""
        number = self._number

        def act() -> None:
            if number == self._number:
                action()

        self._cluster.event_queue.after(int(delay_ms * MICROSECONDS_PER_MS), act)

    def _plan_outage(self) -> None:
        if not self._is_quiescing:
            self._after(self._random.expovariate(1 / self._parameters.outage_interval_ms), self._fail)

    def _fail(self) -> None:
        if self._is_quiescing:
            return
        random, marks = self._random, self._cluster.marks
        session_ms = self._parameters.session_timeout_ms
        duration_ms = random.choice([0.1, 0.5, 1.2, 3.0, 12.0]) * session_ms
        match random.randrange(6):
            case 0:
                marks.hit("a broker vanished")
                self._end(random.choice([duration_ms, random.randrange(10, 400)]))
            case 4:
                self._lose_connections()
                self._plan_outage()
            case 5:
                # Nodes find that a listener out of reach always refuses. So such a broker hangs, and nodes end its
                # streams within its session.
                if self.listener.is_out_of_reach:
                    marks.hit("a broker out of reach hung")
                    self._hang(0.9 * session_ms, random.random() * 0.3 * session_ms)
                else:
                    marks.hit("a broker's listener refused connections")
                    self.listener.refuse(int(duration_ms * MICROSECONDS_PER_MS))
                    self._plan_outage()
            case 1:
                marks.hit("a broker hung")
                self._hang(duration_ms, duration_ms / 2 if random.random() < 0.5 else None)
            case 2:
                marks.hit("a broker was cut off")
                if random.random() < 0.5 and not self.listener.is_refused:
                    self._streams.break_all()
                self._cut_off(duration_ms)
                self._plan_outage()
            case _:
                marks.hit("a broker began to shut down")
                self.state = BrokerState.LEAVING
                self._after(20 * session_ms, lambda: self._end(0))

    def _hang(self, duration_ms: float, given_up_after_ms: float | None) -> None:
        """Let the process do nothing for `duration_ms`. Nodes may end its streams during that time."""
        self.state = BrokerState.HANGING
        self._number += 1
        if given_up_after_ms is not None:
            delay_us = int(given_up_after_ms * MICROSECONDS_PER_MS)
            self._cluster.event_queue.after(delay_us, partial(self._given_up, self._streams))
        self._after(duration_ms, self._resume)

    def _end(self, downtime_ms: float) -> None:
        """End the process and schedule the start of another."""
        self.state = BrokerState.DOWN
        self._streams.end()
        self._streams = Streams(self._cluster, self.broker_id, self._random)
        self._number += 1
        self.epoch = None
        self.led.clear()
        self._after(downtime_ms, self._restart)

    def _restart(self) -> None:
        if not self._is_quiescing:
            self.start()

    def _resume(self) -> None:
        if self.state is BrokerState.HANGING:
            self._cluster.marks.hit("a broker continued after a hang")
            self.state = BrokerState.UP
            self._plan_outage()
            self._plan_alteration()
            self._tick()

    def _cut_off(self, duration_ms: float) -> None:
        nodes = list(self._cluster.machines)
        to_nodes = [(self.broker_id, node_id) for node_id in nodes]
        from_nodes = [(node_id, self.broker_id) for node_id in nodes]
        cut = self._random.choice([to_nodes, from_nodes, to_nodes + from_nodes])
        self._cluster.network.cut_links(cut)
        self._cluster.event_queue.after(
            int(duration_ms * MICROSECONDS_PER_MS), lambda: self._cluster.network.heal_links(cut)
        )

    # Consider a middlebox that is restarted: it resets the connections to nodes, and refuses new ones to the broker's
    # listener. The broker notices as soon as the nodes do, and connects again.
    def _lose_connections(self) -> None:
        broken, epoch, random = self._streams.break_all(), self.epoch, self._random
        if not broken or epoch is None:
            return
        self._cluster.marks.hit("a broker's connections were reset")
        self.listener.refuse(random.choice([random.randrange(REFUSED_US_MAX), 1_000 * MICROSECONDS_PER_MS]))
        for process in broken:
            process.after(random.randrange(*RECONNECT_US), "heartbeat again", self._connect_again(process, epoch))

    def _given_up(self, streams: Streams) -> None:
        """End the streams, as nodes do to a broker that does not answer their pings.

        With a listener that refuses connections at the same time, nodes could not distinguish the broker from a dead
        one.
        """
        if streams is self._streams and not self.listener.is_refused:
            streams.break_all()

    def _connect_again(self, process: Process, epoch: int) -> Callable[[], None]:
        heartbeat = BrokerHeartbeatRequest(
            broker_id=self.broker_id, broker_epoch=epoch, current_metadata_offset=self.metadata.end_offset
        )

        def arrive() -> None:
            self._streams.carry(process, heartbeat)
            process.controller_host.handle(Operation(broker_heartbeat=heartbeat), lambda result, end_offset: None)

        return arrive

    # --- registration and heartbeats ----------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self.state not in (BrokerState.UP, BrokerState.LEAVING):
            return
        if self.epoch is None:
            self._register()
        else:
            self._send_heartbeat(self.epoch)
        is_waiting = self.epoch is None or self._is_fenced or self.state is BrokerState.LEAVING
        interval_ms = self._parameters.heartbeat_interval_ms
        self._after(
            (min(RETRY_MS, interval_ms) if is_waiting else interval_ms) * self._random.uniform(0.9, 1.1), self._tick
        )

    def _register(self) -> None:
        request = RegisterBrokerRequest(
            broker_id=self.broker_id,
            cluster_id=self._cluster.cluster_id,
            incarnation_id=self._incarnation,
            listeners=[BrokerEndpoint(name="PLAINTEXT", host=self.host, port=9092)],
            rack=f"rack-{self.broker_id % 2}",
            log_dirs=[self._log_dir],
            features=[
                SupportedFeature(name=feature.name, min_level=feature.min_level, max_level=feature.max_level)
                for feature in SUPPORTED
            ],
            previous_broker_epoch=self._clean_epoch,
        )

        def answered(call: Call) -> None:
            if call.is_acknowledged and call.result is not None and self.epoch is None:
                self.epoch = call.result.register_broker.broker_epoch
                self._clean_epoch = None

        self.request(Operation(register_broker=request), answered)

    def _send_heartbeat(self, epoch: int) -> None:
        request = BrokerHeartbeatRequest(
            broker_id=self.broker_id,
            broker_epoch=epoch,
            current_metadata_offset=self.metadata.end_offset,
            want_shut_down=self.state is BrokerState.LEAVING,
            want_fence=not self._is_quiescing and self._random.random() < 0.005,
        )

        def answered(call: Call) -> None:
            if self.epoch == epoch:
                self._heartbeat_answered(call)

        streams = self._streams
        self.request(Operation(broker_heartbeat=request), answered, lambda process: streams.carry(process, request))

    def _heartbeat_answered(self, call: Call) -> None:
        if call.result is None:
            return
        if call.result.error_code in _REGISTER_ANEW:
            self._cluster.marks.hit("a broker registered again")
            is_leaving = self.state is BrokerState.LEAVING
            self._begin_incarnation()
            self.state = BrokerState.UP
            self._after(RETRY_MS, self._tick)
            self._plan_alteration()
            if not is_leaving or not self._is_quiescing:
                self._plan_outage()
        elif call.is_acknowledged:
            self._is_fenced = call.result.broker_heartbeat.is_fenced
            if call.result.broker_heartbeat.should_shut_down and self.state is BrokerState.LEAVING:
                self._cluster.marks.hit("a broker shut down")
                self._clean_epoch = self.epoch
                self._end(self._random.randrange(100, 3 * self._parameters.session_timeout_ms))

    def _timeout_ms(self) -> int:
        return self._random.choice([500, 2_000, 10_000])

    def request(
        self,
        operation: Operation,
        on_answer: Callable[[Call], None],
        on_arrival: Callable[[Process], None] = lambda process: None,
    ) -> None:
        """Send an operation to the controller. The answer is ignored if the incarnation has ended by then."""
        number = self._number

        def answered(call: Call, applied_end_offset: int) -> None:
            self._learn_metadata(number, applied_end_offset)
            if number == self._number:
                on_answer(call)

        self._rpc.call(operation, self._timeout_ms(), answered, on_arrival)

    def mark(self, name: str) -> None:
        """Hit a coverage mark."""
        self._cluster.marks.hit(name)

    # --- metadata -----------------------------------------------------------------------------------------------------

    def _learn_metadata(self, number: int, end_offset: int) -> None:
        """Apply the metadata up to `end_offset`, for most answers."""
        if (
            number != self._number
            or self.state is BrokerState.DOWN
            or (self._random.random() < 0.2 and not self._is_quiescing)
        ):
            return
        log = self._cluster.metadata_log
        while self._applied_batches < len(log) and log[self._applied_batches].end_offset <= end_offset:
            for change in self.metadata.apply(log[self._applied_batches]):
                if change.kind == "partition":
                    self._note_partition(change.key, change.after)
            self._applied_batches += 1
        self.led = {key: led for key, led in self.led.items() if key in self.metadata.partitions}

    def _note_partition(self, key: Key, partition: Partition) -> None:
        led = self.led.get(key)
        if partition.leader != self.broker_id or not self._is_registered():
            self.led.pop(key, None)
        elif led is None or led.leader_epoch != partition.leader_epoch:
            self.led[key] = Led(partition.leader_epoch, partition.partition_epoch, frozenset(partition.isr))
        else:
            led.learn(partition.partition_epoch, frozenset(partition.isr))

    def _is_registered(self) -> bool:
        """Whether the registration that the broker knows of is that of its present incarnation."""
        known = self.metadata.brokers.get(self.broker_id)
        return known is not None and known.incarnation_id == self._incarnation

    # --- the ISRs of its partitions -----------------------------------------------------------------------------------

    def _plan_alteration(self) -> None:
        if not self._is_quiescing:
            self._after(self._random.expovariate(1 / self._parameters.alter_interval_ms), self._alter)

    def _alter(self) -> None:
        self._plan_alteration()
        if self._is_quiescing or self.epoch is None or self.state is BrokerState.HANGING:
            return
        if self._random.random() < 0.4:
            self._tiering.act()
        elif self.led:
            self._ask_for_new_isrs(self.epoch)

    def _ask_for_new_isrs(self, epoch: int) -> None:
        keys = self._random.sample(sorted(self.led), min(len(self.led), self._random.choice([1, 1, 3])))
        altered = [propose_isr(self.broker_id, epoch, self.metadata, key, self.led[key], self._random) for key in keys]
        request = AlterPartitionRequest(broker_id=self.broker_id, broker_epoch=epoch, partitions=altered)

        def answered(call: Call) -> None:
            if call.is_acknowledged and call.result is not None:
                for result in call.result.alter_partition.partitions:
                    self._altered(result)

        self.request(Operation(alter_partition=request), answered)

    def _altered(self, result: AlterPartitionResult) -> None:
        led = self.led.get((result.topic_id, result.partition_id))
        self._cluster.marks.hit(f"a partition was altered: {ErrorCode(result.error_code).name}")
        if led is not None and result.error_code == ErrorCode.NONE and result.leader_epoch == led.leader_epoch:
            led.learn(result.partition_epoch, frozenset(result.isr))
