"""The batches in flight of a producer, numbered as Kafka's idempotent producer does (`TransactionManager`).

Records keep their place until they are acknowledged or refused for good. If the oldest ones get an
OUT_OF_ORDER_SEQUENCE_NUMBER, the records before them are lost. Then everything in flight gets sequence numbers from 0
on in the next epoch and is sent again. Records that are already in the log are then stored twice: a broker must report
no gap where there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kraftlog.kafka.record_batch import encode_batch
from kraftlog.kafka.records import Record
from kraftlog.sim.broker_log.checkers.batches import Batch, whole_batches

IN_FLIGHT_MAX: Final = 5
NO_PRODUCER: Final = -1


@dataclass(slots=True, eq=False)
class Sent:
    """Records without an answer."""

    records: Sequence[Record]
    batch: Batch
    """The batch in which they were last sent."""
    number: int
    """The number of batches before it in its epoch."""
    attempts: int = 0


class InFlight:
    """The batches in flight of one producer and one partition."""

    def __init__(self, producer_id: int) -> None:
        """With `NO_PRODUCER` the producer is not idempotent, and its batches have no numbers."""
        self.sent: list[Sent] = []
        """In order."""
        self._producer_id = producer_id
        self._epoch = 0
        self._next_sequence = 0
        self._next_number = 0

    @property
    def has_room(self) -> bool:
        """Whether another batch may be sent: the oldest one without an answer must then be one of the last few.

        A broker remembers no more of them. Kafka's clients get answers in order, and lose all of a connection with the
        first one; here a single answer can be lost.
        """
        return not self.sent or self._next_number - self.sent[0].number < IN_FLIGHT_MAX

    def add(self, records: Sequence[Record]) -> Sent:
        """Add the next batch."""
        sent = Sent(records, self._numbered(records), self._next_number)
        self._next_number += 1
        self.sent.append(sent)
        return sent

    def _numbered(self, records: Sequence[Record]) -> Batch:
        is_idempotent = self._producer_id != NO_PRODUCER
        data = encode_batch(
            records, base_offset=0, partition_leader_epoch=-1, producer_id=self._producer_id,
            producer_epoch=self._epoch if is_idempotent else -1,
            base_sequence=self._next_sequence if is_idempotent else -1,
        )  # fmt: skip
        self._next_sequence += len(records)
        return whole_batches(data)[0]

    def acknowledged(self, sent: Sent, batch: Batch) -> None:
        """Remove records that are in the log, in `batch`."""
        self.sent.remove(sent)
        if batch.producer_epoch != sent.batch.producer_epoch:
            self._raise_epoch()  # the present numbers have a gap now

    def refused(self, sent: Sent) -> None:
        """Remove records that will never be in the log. They leave a gap before the next ones."""
        self.sent.remove(sent)

    def is_lost(self, sent: Sent) -> bool:
        """Whether an OUT_OF_ORDER_SEQUENCE_NUMBER means a loss: every batch before this one has its answer.

        If so, everything has new numbers when this returns. If not, an earlier batch may be in the log, or still
        arrive.
        """
        if sent is not self.sent[0]:
            return False
        self._raise_epoch()
        return True

    def _raise_epoch(self) -> None:
        if self._producer_id == NO_PRODUCER:
            return
        self._epoch += 1
        self._next_sequence = 0
        self._next_number = len(self.sent)
        for number, sent in enumerate(self.sent):
            sent.batch, sent.number = self._numbered(sent.records), number

    def give_up(self) -> None:
        """Abandon the batches in flight. Whether they are in the log is unknown."""
        self.sent.clear()
        self._raise_epoch()
