"""The promises of a broker about one partition: acknowledgments, batches that readers got, and the log start.

A promise is made when a response leaves the broker, whether or not it arrives. For a topic with `flush.before.ack` it
survives the end of the process and a loss of power. For other topics a loss of power may void it, unless `flush.ms` has
passed since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kraftlog.sim.broker_log.checkers.batches import Batch, content_of
from kraftlog.sim.broker_log.checkers.rules import ACKNOWLEDGED, KEPT, OFFSETS, ONCE, READ, START
from kraftlog.sim.engine.violation import Violation

FOR_EVER: Final = 2**62

TOLERANCE_MS: Final = 60_000
"""Retention may trust a clock that is off by less than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRules:
    """The settings of a topic on which promises depend."""

    flush_before_ack: bool
    flush_ms: int
    retention_ms: int
    retention_bytes: int


@dataclass(slots=True)
class Promise:
    """A batch that must be in the log."""

    base_offset: int
    last_offset: int
    content: bytes
    durable_from_us: int
    """From when on it must survive a loss of power."""
    max_timestamp_ms: int
    why: str
    is_deleted: bool = False
    """Whether its deletion was checked. It is checked once: what is kept later does not show why it was deleted."""


@dataclass(slots=True)
class PartitionPromises:
    """The promises about one partition of one topic, from its creation to its deletion."""

    name: str
    rules: TopicRules
    start: int = 0
    """The highest log start in any response."""
    deleted_below: int = 0
    """The highest offset below which DeleteRecords was requested."""
    by_offset: dict[int, Promise] = field(default_factory=dict)
    owners: dict[int, Promise] = field(default_factory=dict)
    """By each of their offsets."""
    sent: set[bytes] = field(default_factory=set)
    first_answers: dict[tuple[int, bytes], int] = field(default_factory=dict)
    checks: int = 0

    # --- making promises ----------------------------------------------------------------------------------------------

    def will_send(self, data: bytes) -> None:
        """Record a batch that a producer is about to send."""
        self.sent.add(content_of(data))

    def acknowledged(self, batch: Batch, base_offset: int, log_start_offset: int, now_us: int) -> None:
        """Check and add the promise that an acknowledgment with `base_offset` makes."""
        key = batch.records_key
        if key is not None:
            first = self.first_answers.setdefault(key, base_offset)
            if first != base_offset and first in self.by_offset and first >= self.start:
                self._violated(
                    ONCE, f"{batch.sequence_key} was acknowledged at {first}, and its records again at {base_offset}"
                )
            self.first_answers[key] = base_offset
        last_offset = base_offset + batch.last_offset - batch.base_offset
        self._promise(base_offset, last_offset, batch, now_us, ACKNOWLEDGED)
        # The start is that of the time of the append: the response has waited for the disk since.
        self.start = max(self.start, log_start_offset)

    def read(
        self, offset: int, batches: Sequence[Batch], high_watermark: int, log_start_offset: int, now_us: int
    ) -> None:
        """Check and promise the batches that a reader got from `offset`."""
        if batches and not batches[0].base_offset <= offset <= batches[0].last_offset and offset in self.owners:
            self._violated(READ, f"{offset} is in the log, but a reader of it got {batches[0].base_offset}")
        for batch in batches:
            if batch.content not in self.sent:
                self._violated(READ, f"a reader got a batch at offset {batch.base_offset} that no producer has sent")
            if batch.last_offset >= high_watermark:
                self._violated(READ, f"a reader got {batch.last_offset}, but the high watermark is {high_watermark}")
            self._promise(batch.base_offset, batch.last_offset, batch, now_us, READ)
        self.started(log_start_offset)

    def started(self, log_start_offset: int) -> None:
        """Check the log start in a response."""
        self.checks += 1
        if 0 <= log_start_offset < self.start:
            self._violated(START, f"it was {self.start}, but is now {log_start_offset}")
        self.start = max(self.start, log_start_offset)

    def _promise(self, base_offset: int, last_offset: int, batch: Batch, now_us: int, why: str) -> None:
        self.checks += 1
        self._check_free(base_offset, last_offset, batch.content)
        known = self.by_offset.get(base_offset)
        durable_from_us = now_us
        if not self.rules.flush_before_ack:
            durable_from_us = min(FOR_EVER, now_us + self.rules.flush_ms * 1_000)
        if known is not None:
            known.durable_from_us = min(known.durable_from_us, durable_from_us)
            return
        promise = Promise(base_offset, last_offset, batch.content, durable_from_us, batch.max_timestamp_ms, why)
        self.by_offset[base_offset] = promise
        self.owners.update(dict.fromkeys(range(base_offset, last_offset + 1), promise))

    def _check_free(self, base_offset: int, last_offset: int, content: bytes) -> None:
        """Check that a promised offset has its batch and no other one, even after the batch was deleted."""
        for offset in range(base_offset, last_offset + 1):
            known = self.owners.get(offset)
            if known is not None and (known.base_offset != base_offset or known.content != content):
                self._violated(OFFSETS, f"{offset} was {known.why} in the batch at {known.base_offset}, now in another")

    # --- losses and checks --------------------------------------------------------------------------------------------

    def flushes_were_hindered(self, since_us: int, now_us: int) -> None:
        """Handle a disk that was full or failed: flushes due by `flush.ms` may be delayed by as long again."""
        for promise in self.by_offset.values():
            if not self.rules.flush_before_ack and promise.durable_from_us > since_us:
                promise.durable_from_us = min(FOR_EVER, now_us + self.rules.flush_ms * 1_000)

    def all_is_durable(self, now_us: int) -> None:
        """Handle a clean shutdown: everything is durable."""
        for promise in self.by_offset.values():
            promise.durable_from_us = min(promise.durable_from_us, now_us)

    def power_lost(self, now_us: int) -> int:
        """Remove the promises that a loss of power may void. Return the number of batches."""
        gone = [offset for offset, promise in self.by_offset.items() if promise.durable_from_us > now_us]
        for offset in gone:
            lost = self.by_offset.pop(offset)
            for each in range(lost.base_offset, lost.last_offset + 1):
                del self.owners[each]
        if gone:
            self.first_answers = {key: at for key, at in self.first_answers.items() if at in self.by_offset}
        return len(gone)

    def found(self, batches: Sequence[Batch], true_ms: int, *, has_lost_power: bool) -> None:
        """Check all batches in the files against the promises. Raises Violation.

        After a loss of power, less may be left than when retention by size deleted a batch, so sizes are not compared.
        """
        self.checks += 1
        stored = {batch.base_offset: batch for batch in batches}
        found: dict[tuple[int, ...] | tuple[int, bytes], int] = {}
        for batch in batches:
            if batch.last_offset < self.start:
                continue
            self._check_free(batch.base_offset, batch.last_offset, batch.content)
            for key in (batch.sequence_key, batch.records_key):
                if key is not None and found.setdefault(key, batch.base_offset) != batch.base_offset:
                    self._violated(ONCE, f"{batch.sequence_key} is at {batch.base_offset}, and is at {found[key]}, too")
        kept_bytes = FOR_EVER if has_lost_power else sum(len(batch.data) for batch in batches)
        for promise in self.by_offset.values():
            batch_there = stored.get(promise.base_offset)
            if promise.last_offset < self.start:
                if batch_there is None and not promise.is_deleted:
                    self._check_may_go(promise, true_ms, kept_bytes)
            elif batch_there is None or batch_there.content != promise.content:
                self._violated(
                    promise.why, f"the batch at {promise.base_offset} is missing; the log starts at {self.start}"
                )

    def _check_may_go(self, promise: Promise, true_ms: int, kept_bytes: int) -> None:
        rules = self.rules
        is_old = rules.retention_ms >= 0 and true_ms - promise.max_timestamp_ms > rules.retention_ms - TOLERANCE_MS
        is_too_much = 0 <= rules.retention_bytes <= kept_bytes
        if promise.last_offset >= self.deleted_below and not is_old and not is_too_much:
            self._violated(
                KEPT,
                f"the batch at {promise.base_offset} was deleted {true_ms - promise.max_timestamp_ms} ms after its"
                f" time; {kept_bytes} bytes are left",
            )
        promise.is_deleted = True

    @property
    def end(self) -> int:
        """The offset behind the last promise."""
        return max((promise.last_offset + 1 for promise in self.by_offset.values()), default=0)

    def _violated(self, title: str, message: str) -> None:
        raise Violation(f"{title}: {self.name}: {message}")
