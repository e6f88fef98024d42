"""Transactions of one producer in one partition, written into the log as a coordinator would.

There is no coordinator yet, and Produce refuses records of transactions, so they are appended below the handlers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from kraftbase.errors import ApiError
from kraftlog.kafka.control_records import EndTxnMarker
from kraftlog.kafka.record_batch import CONTROL, encode_batch
from kraftlog.kafka.record_values import ControlType, encode_control_record
from kraftlog.kafka.records import Record
from kraftlog.sim.broker_log.broker import Broker
from kraftlog.sim.broker_log.checkers.batches import whole_batches
from kraftlog.sim.broker_log.metadata import Topic
from kraftlog.sim.broker_log.world import World
from kraftlog.sim.engine.marks import Marks
from kraftlog.sim.engine.virtual.event_queue import MICROSECONDS_PER_MS
from kraftlog.storage.appends import Appended
from kraftlog.storage.producer_states import Origin

TRANSACTIONAL: Final = 0x10
BATCHES_MAX: Final = 3
LEFT_OPEN_RATE: Final = 0.3


class Transactions:
    """The batches of one producer's transactions."""

    def __init__(self, producer_id: int) -> None:
        self._producer_id = producer_id
        self._epoch = 0
        self._sequence = 0
        self._made = 0
        self._must_abort = False

    def begin(self) -> bool:
        """Start or continue a transaction.

        Return whether it must be aborted, in a new epoch, because of an earlier failure.
        """
        must_abort, self._must_abort = self._must_abort, True
        if must_abort:
            self._epoch += 1
            self._sequence = 0
        return must_abort

    def proceed(
        self, must_abort: bool, random: Random, marks: Marks, time_ms: int, append: Callable[[bytes, Origin], None]
    ) -> None:
        """Append batches, and mostly end the transaction. It may also stay open until the next call."""
        try:
            if not must_abort:
                for _ in range(random.randint(1, BATCHES_MAX)):
                    append(self.records(time_ms), Origin.CLIENT)
                if random.random() < LEFT_OPEN_RATE:
                    marks.hit("a transaction stayed open")
                    return
            kind = ControlType.ABORT if must_abort or random.random() < 0.5 else ControlType.COMMIT
            append(self.marker(kind, time_ms), Origin.COORDINATOR)
            marks.hit(f"transaction: {kind.name}")
            self._must_abort = False
        except ApiError as error:
            marks.hit(f"a transaction failed: {error.code.name}")

    def records(self, time_ms: int) -> bytes:
        """Return the next batch."""
        self._made += 1
        record = Record(0, time_ms, None, f"{self._producer_id}:{self._made}".encode())
        data = self._batch(record, TRANSACTIONAL, self._sequence)
        self._sequence += 1
        return data

    def marker(self, kind: ControlType, time_ms: int) -> bytes:
        """Return the marker that ends a transaction, as a coordinator writes it."""
        key, value = encode_control_record(kind, EndTxnMarker(coordinator_epoch=0), 0)
        return self._batch(Record(0, time_ms, key, value), TRANSACTIONAL | CONTROL, -1)

    def _batch(self, record: Record, attributes: int, sequence: int) -> bytes:
        return encode_batch(
            [record], base_offset=0, partition_leader_epoch=-1, attributes=attributes, producer_id=self._producer_id,
            producer_epoch=self._epoch, base_sequence=sequence,
        )  # fmt: skip


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
        self._world.event_queue.after(self._random.randint(50, 900) * MICROSECONDS_PER_MS, self._act)

    def _act(self) -> None:
        topic = self._world.metadata.topics.get(self._name)
        if topic is not None and not self._world.is_quiet:
            self._world.step(partial(self._transact, topic, self._transactions.begin()))
        self.start()

    def _transact(self, topic: Topic, must_abort: bool, broker: Broker) -> None:
        append = partial(self._append, topic, broker)
        self._transactions.proceed(must_abort, self._random, self._world.marks, self._world.true_ms, append)

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
