"""What a producer has in flight, and how it numbers that: as Kafka's idempotent producer does (`TransactionManager`).

Records keep their place until they are acknowledged or refused for good. When the oldest ones get an
OUT_OF_ORDER_SEQUENCE_NUMBER, what is before them is gone. Then everything in flight gets numbers from 0 on in the next
epoch, and is sent again. What is in the log already is stored twice then: a broker must not see a gap that is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kraftlog.kafka.record_batch import encode_batch
from kraftlog.kafka.records import Record
from kraftlog.sim.broker_log.judges.batches import Batch, whole_batches

IN_FLIGHT_MAX: Final = 5
NO_PRODUCER: Final = -1


@dataclass(slots=True, eq=False)
class Sent:
    """Records that have no answer yet."""

    records: Sequence[Record]
    batch: Batch
    """As they are sent now."""
    number: int
    """How many batches were before it in its epoch."""
    attempts: int = 0


class InFlight:
    """Of one producer and one partition."""

    def __init__(self, producer_id: int) -> None:
        """Without an id the producer is not idempotent, and its batches have no numbers."""
        self.sent: list[Sent] = []
        """In order."""
        self._producer_id = producer_id
        self._epoch = 0
        self._next_sequence = 0
        self._next_number = 0

    @property
    def has_room(self) -> bool:
        """Whether another batch may be sent: the oldest one that has no answer is one of the last few then.

        A broker knows no more of them. Kafka's clients get answers in order, and lose all of a connection with the
        first one; here a single answer can be lost.
        """
        return not self.sent or self._next_number - self.sent[0].number < IN_FLIGHT_MAX

    def add(self, records: Sequence[Record]) -> Sent:
        """The next batch."""
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
        """Records are in the log, in that batch."""
        self.sent.remove(sent)
        if batch.producer_epoch != sent.batch.producer_epoch:
            self._raise_epoch()  # the present numbers have a gap now

    def refused(self, sent: Sent) -> None:
        """Records never come into the log, so there is a gap before the next ones."""
        self.sent.remove(sent)

    def is_lost(self, sent: Sent) -> bool:
        """Whether an OUT_OF_ORDER_SEQUENCE_NUMBER says that something is gone: all before the batch has its answer.

        Then everything has other numbers when this returns. Else what is before it may be in the log, or come yet.
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
        """What is in flight is not sent again; whether it is in the log is not known."""
        self.sent.clear()
        self._raise_epoch()
