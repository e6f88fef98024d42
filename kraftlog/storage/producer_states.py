"""What a partition's log knows of its producers: which sequence comes next, and which transactions are open (KIP-98).

All of it but the times of appends follows from the log's batches, in order. Snapshots have it, so that a start need not
read all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.sentinels import NO_COORDINATOR_EPOCH, NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, UNKNOWN_OFFSET
from kraftlog.storage.formats.batch_header import MAX_SEQUENCE, BatchHeader
from kraftlog.storage.formats.indexes import AbortedTransaction
from kraftlog.storage.formats.producer_snapshot import ProducerEntry

BATCHES_KEPT: Final = 5
"""How many batches of a producer are known, as many as it may have in flight."""


class Origin(Enum):
    """Who appends, and so what is checked."""

    CLIENT = "a client: epochs and sequences are checked"
    COORDINATOR = "a coordinator of groups or transactions: epochs are checked, there are no sequences"
    REPLICATION = "a leader, who has checked all of it"


class EndMarker(NamedTuple):
    """What a control batch says of the end of its producer's transaction."""

    is_abort: bool
    coordinator_epoch: int


class ProducerBatch(NamedTuple):
    """A batch of a producer."""

    last_sequence: int
    last_offset: int
    offset_delta: int

    @property
    def first_sequence(self) -> int:
        """The sequence of its first record."""
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE

    @property
    def first_offset(self) -> int:
        """The offset of its first record."""
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class ProducerState:
    """One producer (DB-70)."""

    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    batches: deque[ProducerBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))
    appended_ms: int = NO_TIMESTAMP
    """When its last batch or marker was appended, by this broker's clock. The producer's own timestamps say nothing of
    that: records may be years old, or have none."""
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    transaction_first_offset: int = UNKNOWN_OFFSET

    def to_entries(self) -> list[ProducerEntry]:
        """As a snapshot has it: an entry for each batch, the oldest first, the open transaction in the last one only.

        A stock Kafka keeps the last entry of a producer that has not expired. All of them have the same timestamp, so
        that it drops all of them or none.
        """
        batches = list(self.batches) or [ProducerBatch(NO_SEQUENCE, UNKNOWN_OFFSET, 0)]
        return [
            ProducerEntry(
                self.producer_id, self.epoch, batch.last_sequence, batch.last_offset, batch.offset_delta,
                self.appended_ms, self.coordinator_epoch,
                self.transaction_first_offset if batch is batches[-1] else UNKNOWN_OFFSET,
            )
            for batch in batches
        ]  # fmt: skip

    def take_entry(self, entry: ProducerEntry, now_ms: int) -> None:
        """Take over the next entry of a snapshot. An entry without a timestamp counts as appended now.

        A snapshot of Kafka, or of a version that kept one batch only, has one entry for each producer.
        """
        if self.epoch != entry.epoch:
            self.batches.clear()
            self.epoch = entry.epoch
        self.appended_ms = entry.timestamp_ms if entry.timestamp_ms >= 0 else now_ms
        self.coordinator_epoch = entry.coordinator_epoch
        self.transaction_first_offset = entry.transaction_first_offset
        if entry.last_offset >= 0:
            self.batches.append(ProducerBatch(entry.last_sequence, entry.last_offset, entry.offset_delta))


class ProducerStates:
    """The producers of one partition."""

    def __init__(self) -> None:
        self._producers: dict[int, ProducerState] = {}
        # Both by first offset, ascending: transactions begin in the order of offsets.
        self._open: dict[int, int] = {}  # to the producer
        self._ended: dict[int, int] = {}  # to the offset of the marker, until the high watermark is past it

    def __len__(self) -> int:
        """How many producers there are."""
        return len(self._producers)

    @property
    def had_transactions(self) -> bool:
        """Whether a transaction of one of the producers has ended."""
        return any(state.coordinator_epoch != NO_COORDINATOR_EPOCH for state in self._producers.values())

    def state_of(self, producer_id: int) -> ProducerState | None:
        """What is known of a producer."""
        return self._producers.get(producer_id)

    def duplicate_of(self, header: BatchHeader) -> ProducerBatch | None:
        """The batch that is in the log already, if this one is the same: it has its epoch and sequences (DB-71)."""
        state = self._producers.get(header.producer_id)
        if state is None or state.epoch != header.producer_epoch or header.base_sequence < 0:
            return None
        for batch in state.batches:
            if batch.last_sequence == header.last_sequence and batch.first_sequence == header.base_sequence:
                return batch
        return None

    def check(self, header: BatchHeader, origin: Origin, marker: EndMarker | None = None) -> None:
        """Raise ApiError if a batch must not be appended: `duplicate_of` has shown that it is none of the last ones.

        INVALID_PRODUCER_EPOCH for a lower epoch, OUT_OF_ORDER_SEQUENCE_NUMBER for a gap, INVALID_TXN_STATE for a batch
        outside the transaction that its producer has open, TRANSACTION_COORDINATOR_FENCED for a marker of a coordinator
        that was replaced (DB-71, DB-74).
        """
        state = self._producers.get(header.producer_id)
        if state is None:
            return
        name = f"producer {header.producer_id}"
        if header.producer_epoch < state.epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"{name} has epoch {state.epoch} here, and the batch has epoch {header.producer_epoch}: another"
                " producer has taken its place; this one must ask for a new epoch",
            )
        if marker is not None:
            if marker.coordinator_epoch < state.coordinator_epoch:
                raise ApiError(
                    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                    f"a coordinator of epoch {state.coordinator_epoch} has ended a transaction of {name} here, and this"
                    f" one has epoch {marker.coordinator_epoch}: it must not go on",
                )
            return
        if origin is Origin.CLIENT:
            self._check_sequence(state, header, name)
        if state.transaction_first_offset >= 0 and not header.is_transactional:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"{name} has a transaction open since offset {state.transaction_first_offset}, and the batch is not"
                " of it: the producer must end the transaction first",
            )

    def _check_sequence(self, state: ProducerState, header: BatchHeader, name: str) -> None:
        if header.producer_epoch != state.epoch:
            expected = 0
            if state.epoch == NO_PRODUCER_EPOCH:
                return
        elif state.batches:
            expected = (state.batches[-1].last_sequence + 1) & MAX_SEQUENCE
        else:
            expected = 0  # its epoch is known from a marker only
        if header.base_sequence != expected:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"{name} sends sequence {header.base_sequence} in epoch {header.producer_epoch}; next is {expected}"
                f" (the last batch known has epoch {state.epoch}). A batch before it is missing",
            )

    def append(self, header: BatchHeader, marker: EndMarker | None, now_ms: int) -> AbortedTransaction | None:
        """Note that a batch with a producer id is in the log; returns what is to be entered in the index of aborts."""
        state = self._producers.get(header.producer_id)
        if state is None:
            state = self._producers[header.producer_id] = ProducerState(header.producer_id)
        if state.epoch != header.producer_epoch:
            state.batches.clear()
            state.epoch = header.producer_epoch
        state.appended_ms = now_ms
        if marker is not None:
            return self._end(state, header, marker)
        if header.is_control:
            return None
        state.batches.append(ProducerBatch(header.last_sequence, header.last_offset, header.last_offset_delta))
        if header.is_transactional and state.transaction_first_offset < 0:
            state.transaction_first_offset = header.base_offset
            self._open[header.base_offset] = header.producer_id
        return None

    def _end(self, state: ProducerState, header: BatchHeader, marker: EndMarker) -> AbortedTransaction | None:
        state.coordinator_epoch = marker.coordinator_epoch
        first_offset, state.transaction_first_offset = state.transaction_first_offset, UNKNOWN_OFFSET
        if first_offset < 0:
            return None  # a transaction without a record here
        del self._open[first_offset]
        self._ended[first_offset] = header.base_offset
        if not marker.is_abort:
            return None
        last_stable_offset = min(self._open, default=header.base_offset + 1)
        return AbortedTransaction(header.producer_id, first_offset, header.base_offset, last_stable_offset)

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of a transaction that is open, or whose marker is not below the high watermark (DB-72)."""
        return min((*self._open, *self._ended), default=None)

    def pass_high_watermark(self, high_watermark: int) -> None:
        """Everything below is committed: transactions whose markers are there are stable."""
        if self._ended:
            self._ended = {first: marker for first, marker in self._ended.items() if marker >= high_watermark}

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers without an open transaction whose last append is so long ago; returns how many (DB-70)."""
        expired = [
            producer_id
            for producer_id, state in self._producers.items()
            if state.transaction_first_offset < 0 and now_ms - state.appended_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def to_entries(self) -> list[ProducerEntry]:
        """What a snapshot has."""
        return [entry for state in self._producers.values() for entry in state.to_entries()]

    def load(self, entries: Iterable[ProducerEntry], now_ms: int) -> None:
        """Take the place of what is known: from a snapshot, or from nothing.

        A snapshot does not have the transactions that have ended, and whose markers were not committed then: they are
        for `add_ended`.
        """
        self._producers = {}
        for entry in entries:
            state = self._producers.get(entry.producer_id)
            if state is None:
                state = self._producers[entry.producer_id] = ProducerState(entry.producer_id)
            state.take_entry(entry, now_ms)
        found = sorted((state.transaction_first_offset, state.producer_id) for state in self._producers.values())
        self._open = {first_offset: producer_id for first_offset, producer_id in found if first_offset >= 0}
        self._ended = {}

    def add_ended(self, earlier: ProducerStates) -> None:
        """Add the transactions that `earlier`, the states of an earlier offset brought up to here, knows as ended."""
        self._ended |= earlier._ended
