"""Transactions of one producer in one partition, appended at its leader as a coordinator would."""

from __future__ import annotations

from functools import partial

from kraftbase.errors import ApiError
from kraftlog.sim.broker_log.checkers.batches import content_of
from kraftlog.sim.broker_log.transactions import Transactions
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS
from kraftlog.sim.replication.broker import Broker
from kraftlog.sim.replication.machine import Machine
from kraftlog.sim.replication.metadata import Key
from kraftlog.sim.replication.world import World
from kraftlog.storage.producer_states import Origin


class TransactionalProducer:
    """Begins a transaction, appends to it and ends it. After any failure it aborts the transaction with a new epoch."""

    def __init__(self, world: World, producer_id: int, topic: str, index: int) -> None:
        self._world = world
        self._random = world.new_random()
        self._transactions = Transactions(producer_id)
        self._name = topic
        self._index = index

    def start(self) -> None:
        """Schedule the next operation."""
        self._world.event_queue.after(self._random.randint(20, 500) * MICROSECONDS_PER_MS, self._act)

    def _act(self) -> None:
        topic = self._world.metadata.topics.get(self._name)
        checker = None if topic is None else self._world.checker.partitions.get((topic.topic_id, self._index))
        if topic is not None and checker is not None and checker.state.leader >= 0 and not self._world.is_quiet:
            machine = self._world.machines[checker.state.leader]
            key = (topic.topic_id, self._index)
            machine.step(partial(self._transact, machine, key, self._transactions.begin()))
        self.start()

    def _transact(self, machine: Machine, key: Key, must_abort: bool, broker: Broker) -> None:
        append = partial(self._append, machine, key, broker)
        self._transactions.proceed(must_abort, self._random, self._world.marks, self._world.true_ms, append)

    def _append(self, machine: Machine, key: Key, broker: Broker, data: bytes, origin: Origin) -> None:
        partition, checker = broker.partitions.with_id(*key), self._world.checker.partitions.get(key)
        directory = None if partition is None else broker.logs.directory_of(partition.name)
        if partition is None or checker is None or directory is None:
            return
        log = partition.leader_log()
        checker.promises.sent.add(content_of(data))
        now_ms = machine.process.wall_clock_ms()
        appended = log.append_as_leader(bytearray(data), partition.leader_epoch, now_ms, origin)
        partition.appended()
        directory.acknowledge(log, appended.end_offset, partial(self._durable, key, broker))

    def _durable(self, key: Key, broker: Broker, error: ApiError | None) -> None:
        partition = broker.partitions.with_id(*key)
        if error is None and partition is not None and not broker.process.has_ended:
            partition.raise_high_watermark()
