"""Transactions of one producer in one partition, written into the log as a coordinator has it done.

There is no coordinator yet, and Produce refuses records of transactions: they are appended below the handlers.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from kraftbase.errors import ApiError
from kraftlog.broker.log.appends import Appended
from kraftlog.broker.log.producer_states import Origin
from kraftlog.kafka.control_records import EndTxnMarker
from kraftlog.kafka.record_batch import CONTROL, encode_batch
from kraftlog.kafka.record_values import ControlType, encode_control_record
from kraftlog.kafka.records import Record
from kraftlog.sim.broker_log.broker import Broker
from kraftlog.sim.broker_log.judges.batches import whole_batches
from kraftlog.sim.broker_log.metadata import Topic
from kraftlog.sim.broker_log.world import World
from kraftlog.sim.virtual.event_queue import MICROSECONDS_PER_MS

TRANSACTIONAL: Final = 0x10
BATCHES_MAX: Final = 3


class Transactions:
    """The batches of one producer's transactions."""

    def __init__(self, producer_id: int) -> None:
        self._producer_id = producer_id
        self._epoch = 0
        self._sequence = 0
        self._made = 0

    def begin_epoch(self) -> None:
        """After whatever went wrong."""
        self._epoch += 1
        self._sequence = 0

    def records(self, time_ms: int) -> bytes:
        """The next batch."""
        self._made += 1
        record = Record(0, time_ms, None, f"{self._producer_id}:{self._made}".encode())
        data = self._batch(record, TRANSACTIONAL, self._sequence)
        self._sequence += 1
        return data

    def marker(self, kind: ControlType, time_ms: int) -> bytes:
        """The end of a transaction, as a coordinator writes it."""
        key, value = encode_control_record(kind, EndTxnMarker(coordinator_epoch=0), 0)
        return self._batch(Record(0, time_ms, key, value), TRANSACTIONAL | CONTROL, -1)

    def _batch(self, record: Record, attributes: int, sequence: int) -> bytes:
        return encode_batch(
            [record], base_offset=0, partition_leader_epoch=-1, attributes=attributes, producer_id=self._producer_id,
            producer_epoch=self._epoch, base_sequence=sequence,
        )  # fmt: skip


class TransactionalProducer:
    """Begins a transaction, appends to it, and ends it; after whatever goes wrong it aborts with a new epoch."""

    def __init__(self, world: World, producer_id: int, topic: str, index: int) -> None:
        self._world = world
        self._random = world.new_random()
        self._transactions = Transactions(producer_id)
        self._name = topic
        self._index = index
        self._must_abort = False

    def start(self) -> None:
        """Begin."""
        self._world.event_queue.after(self._random.randint(50, 900) * MICROSECONDS_PER_MS, self._act)

    def _act(self) -> None:
        topic = self._world.metadata.topics.get(self._name)
        if topic is not None and not self._world.is_quiet:
            must_abort, self._must_abort = self._must_abort, True
            if must_abort:
                self._transactions.begin_epoch()
            self._world.step(partial(self._transact, topic, must_abort))
        self.start()

    def _transact(self, topic: Topic, must_abort: bool, broker: Broker) -> None:
        """Go some steps on; what a transaction has open stays so until the next time."""
        try:
            if not must_abort:
                for _ in range(self._random.randint(1, BATCHES_MAX)):
                    self._append(topic, broker, self._transactions.records(self._world.true_ms), Origin.CLIENT)
                if self._random.random() < 0.3:
                    self._world.marks.hit("a transaction was left open")
                    return
            kind = ControlType.ABORT if must_abort or self._random.random() < 0.5 else ControlType.COMMIT
            marker = self._transactions.marker(kind, self._world.true_ms)
            self._append(topic, broker, marker, Origin.COORDINATOR)
            self._world.marks.hit(f"transaction: {kind.name}")
            self._must_abort = False
        except ApiError as error:
            self._world.marks.hit(f"a transaction failed: {error.code.name}")

    def _append(self, topic: Topic, broker: Broker, data: bytes, origin: Origin) -> None:
        promises = self._world.promises_of(topic, self._index)
        partition = broker.partitions.named(self._name, self._index)
        directory = None if partition is None else broker.logs.directory_of(partition.name)
        if promises is None or partition is None or directory is None:
            return
        log = partition.leader_log()
        promises.will_send(data)
        appended = log.append_as_leader(bytearray(data), partition.leader_epoch, broker.process.wall_clock_ms(), origin)
        directory.acknowledge(log, appended.end_offset, partial(self._durable, topic, broker, data, appended))

    def _durable(self, topic: Topic, broker: Broker, data: bytes, appended: Appended, error: ApiError | None) -> None:
        promises = self._world.promises_of(topic, self._index)
        partition = broker.partitions.named(self._name, self._index)
        if error is not None or promises is None or partition is None or broker.process.has_ended:
            return
        partition.raise_high_watermark()
        now_us = self._world.event_queue.now_us
        promises.acknowledged(whole_batches(data)[0], appended.base_offset, appended.log_start_offset, now_us)
