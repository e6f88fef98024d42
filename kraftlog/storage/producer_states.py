"""The state of a partition's producers: the next sequence of each, and the open transactions (KIP-98).

Everything but the times of appends follows from the log's batches, in order. Snapshots have the same state, so that a
startup need not read all batches.
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
"""The number of batches that are remembered of a producer, as many as it may have in flight."""


class Origin(Enum):
    """The origin of an append, which decides the checks."""

    CLIENT = "a client: epochs and sequences are checked"
    COORDINATOR = "a coordinator of groups or transactions: epochs are checked, there are no sequences"
    REPLICATION = "a leader, who has checked all of it"


class EndMarker(NamedTuple):
    """The end marker of a transaction, from a control batch."""

    is_abort: bool
    coordinator_epoch: int


class ProducerBatch(NamedTuple):
    """The sequences and offsets of a producer's batch."""

    last_sequence: int
    last_offset: int
    offset_delta: int

    @property
    def first_sequence(self) -> int:
        """The sequence of the first record."""
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE

    @property
    def first_offset(self) -> int:
        """The offset of the first record."""
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class ProducerState:
    """The state of one producer (DB-70)."""

    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    batches: deque[ProducerBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))
    appended_ms: int = NO_TIMESTAMP
    """The time of the last append of a batch or marker, by this broker's clock. The producer's own timestamps do not
    show it: records may be years old, or have none."""
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    transaction_first_offset: int = UNKNOWN_OFFSET

    def to_entries(self) -> list[ProducerEntry]:
        """Return the entries of a snapshot: one for each batch, oldest first; only the last has the open transaction.

        A stock Kafka uses the last entry of each producer that has not expired. All entries have the same timestamp, so
        that a stock Kafka drops either all of them or none.
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
        """Apply the next entry of a snapshot. An entry without a timestamp counts as appended now.

        A snapshot of Kafka, or of a kraftlog that kept only one batch, has one entry for each producer.
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
        """The number of producers."""
        return len(self._producers)

    @property
    def had_transactions(self) -> bool:
        """Whether a transaction of one of the producers has ended."""
        return any(state.coordinator_epoch != NO_COORDINATOR_EPOCH for state in self._producers.values())

    def state_of(self, producer_id: int) -> ProducerState | None:
        """Return the state of a producer, or None."""
        return self._producers.get(producer_id)

    def duplicate_of(self, header: BatchHeader) -> ProducerBatch | None:
        """Return the remembered batch with the same producer epoch and sequences, or None (DB-71)."""
        state = self._producers.get(header.producer_id)
        if state is None or state.epoch != header.producer_epoch or header.base_sequence < 0:
            return None
        for batch in state.batches:
            if batch.last_sequence == header.last_sequence and batch.first_sequence == header.base_sequence:
                return batch
        return None

    def check(self, header: BatchHeader, origin: Origin, marker: EndMarker | None = None) -> None:
        """Raise ApiError if a batch must not be appended. Call this after `duplicate_of` has returned None.

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
                f"{name} has epoch {state.epoch} here, and the batch has epoch {header.producer_epoch}: a newer"
                " instance has replaced this producer, which must request a new epoch",
            )
        if marker is not None:
            if marker.coordinator_epoch < state.coordinator_epoch:
                raise ApiError(
                    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                    f"a coordinator of epoch {state.coordinator_epoch} has ended a transaction of {name} here, and the"
                    f" marker is of a coordinator of epoch {marker.coordinator_epoch}, which is fenced",
                )
            return
        if origin is Origin.CLIENT:
            self._check_sequence(state, header, name)
        if state.transaction_first_offset >= 0 and not header.is_transactional:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"{name} has a transaction open since offset {state.transaction_first_offset}, and the batch is not"
                " part of it: the producer must end the transaction first",
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
        """Note an appended batch with a producer id; return the aborted transaction that it ends, if it is a marker."""
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
        """Forget the ended transactions whose markers are below the high watermark."""
        if self._ended:
            self._ended = {first: marker for first, marker in self._ended.items() if marker >= high_watermark}

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers without an open transaction and without recent appends; return the number (DB-70)."""
        expired = [
            producer_id
            for producer_id, state in self._producers.items()
            if state.transaction_first_offset < 0 and now_ms - state.appended_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def to_entries(self) -> list[ProducerEntry]:
        """Return the entries of a snapshot of all producers."""
        return [entry for state in self._producers.values() for entry in state.to_entries()]

    def load(self, entries: Iterable[ProducerEntry], now_ms: int) -> None:
        """Replace all states by those of a snapshot, or by none.

        A snapshot lacks ended transactions whose markers were not yet committed; `add_ended` adds those.
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
        """Add the ended transactions of `earlier`: older states to which later batches were applied."""
        self._ended |= earlier._ended
