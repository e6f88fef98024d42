"""The promises about one partition, from its creation to its deletion, and what its replicas must agree on.

A batch is promised when an acks=all producer gets its acknowledgment, and when a consumer gets the batch: both happen
below the high watermark. The leader keeps the promise: it has every promised batch, byte for byte, at its offset. These
events end promises:

- An unclean election. Its leader's log is authoritative from then on. Later promises of leaders of earlier epochs,
  which do not know of the election, are void. If the leader's log is damaged, the log begins at its first remaining
  segment, or without any, at its flushed end: no offset is assigned twice (DB-88). From that epoch on the logs of
  other replicas may begin there, too.
- DeleteRecords, up to the requested offset.
- For a topic without `flush.before.ack`: power lost on as many brokers as `min.insync.replicas` says, before one of
  them
  was in sync again. Then every broker with a batch may have lost it. Without eligible leader replicas one broker is
  enough: the last member of the ISR leads again, whatever it has lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kraftlog.sim.broker_log.checkers.batches import SET_BY_BROKER_BYTES, Batch
from kraftlog.sim.engine.violation import Violation
from kraftlog.sim.replication.checkers.rules import AGREE, KEPT, ONCE, ONE_LEADER, READ

NO_EPOCH: Final = -1


@dataclass(slots=True)
class Promise:
    """A batch that every leader must have, as long as the promise stands."""

    base_offset: int
    last_offset: int
    content: bytes
    leader_epoch: int
    """The epoch of the leader that promised it."""
    why: str

    def is_in(self, batch: Batch) -> bool:
        """Whether a batch is the promised one."""
        return len(batch.data) == len(self.content) + SET_BY_BROKER_BYTES and batch.data.endswith(self.content)


@dataclass(slots=True)
class PartitionPromises:
    """The promises about one partition."""

    name: str
    flush_before_ack: bool
    sent: set[bytes] = field(default_factory=set)
    promises: dict[int, Promise] = field(default_factory=dict)
    """By base offset."""
    deleted_below: int = 0
    """The highest offset below which DeleteRecords was requested."""
    lost_below: dict[int, int] = field(default_factory=dict)
    """By epoch of an unclean leader with a damaged log: the highest offset at which the rest of that log may begin."""
    unclean_epoch: int = NO_EPOCH
    """The epoch of the last unclean election."""
    void_epochs: list[int] = field(default_factory=list)
    """The epochs in which a loss of power may have lost committed records, in order."""
    unconfirmed: bool = False
    """Whether the leader of `unclean_epoch` has not been checked yet."""
    without_power: set[int] = field(default_factory=set)
    """The brokers that have lost power and have not been in the ISR since."""
    acknowledging: dict[int, int] = field(default_factory=dict)
    """By leader epoch: the broker that has acknowledged a batch in it."""
    by_epoch: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """By leader epoch and base offset: the batch that a replica has there."""
    checks: int = 0

    # --- making promises ----------------------------------------------------------------------------------------------

    def leads(self, broker_id: int, leader_epoch: int) -> None:
        """Check a broker that acts as the leader of an epoch: it acknowledges, or answers consumers."""
        self.checks += 1
        first = self.acknowledging.setdefault(leader_epoch, broker_id)
        if first != broker_id:
            raise Violation(f"{ONE_LEADER}: {self.name}: brokers {first} and {broker_id} lead epoch {leader_epoch}")

    def acknowledged(self, base_offset: int, batch: Batch, leader_epoch: int) -> None:
        """Add the promise that an acknowledgment to an acks=all producer makes."""
        last_offset = base_offset + batch.last_offset - batch.base_offset
        self._promise(Promise(base_offset, last_offset, batch.content, leader_epoch, KEPT))

    def read(self, batches: Iterable[Batch], leader_epoch: int, *, is_leader: bool) -> None:
        """Check batches that a consumer got from a broker that knows `leader_epoch`, and promise them."""
        for batch in batches:
            if batch.content not in self.sent:
                raise Violation(
                    f"{READ}: {self.name}: a consumer got a batch at {batch.base_offset} that no producer has sent"
                )
            if not is_leader and leader_epoch <= self.void_epoch:
                continue  # it does not know of the loss of power yet
            self._promise(Promise(batch.base_offset, batch.last_offset, batch.content, leader_epoch, READ))

    def _promise(self, promise: Promise) -> None:
        self.checks += 1
        if promise.leader_epoch < self.unclean_epoch or promise.last_offset < self.deleted_below:
            return  # from a broker that does not know of the unclean leader yet
        known = self.promises.setdefault(promise.base_offset, promise)
        if known.content != promise.content:
            self._broken(known, promise.leader_epoch)
        known.leader_epoch = max(known.leader_epoch, promise.leader_epoch)

    def _broken(self, known: Promise, leader_epoch: int) -> None:
        raise Violation(
            f"{known.why}: {self.name}: offset {known.base_offset} has one batch in epoch {known.leader_epoch}, but"
            f" another one in epoch {leader_epoch}"
        )

    def confirmed(self, batches: Iterable[Batch], high_watermark: int, leader_epoch: int, *, is_leader: bool) -> None:
        """Check the batches below a replica's high watermark. If the replica is the leader, they become promises."""
        self.checks += 1
        if leader_epoch < self.unclean_epoch or (not is_leader and leader_epoch <= self.void_epoch):
            return
        for batch in batches:
            if batch.last_offset >= high_watermark:
                return
            known = self.promises.get(batch.base_offset)
            if known is None and is_leader:
                self._promise(Promise(batch.base_offset, batch.last_offset, batch.content, leader_epoch, AGREE))
            elif known is not None and not known.is_in(batch):
                self._broken(known, leader_epoch)

    @property
    def void_epoch(self) -> int:
        """The last epoch of `void_epochs`; NO_EPOCH if there is none."""
        return self.void_epochs[-1] if self.void_epochs else NO_EPOCH

    # --- ending promises ----------------------------------------------------------------------------------------------

    def elected_uncleanly(self, leader_epoch: int) -> None:
        """Void what the new leader lacks. `leader_has` determines what that is."""
        self.unclean_epoch = leader_epoch
        self.unconfirmed = True

    def damaged_leader(self, leader_epoch: int, start_offset: int) -> None:
        """Let an unclean leader continue with the rest of its log, which begins at `start_offset` or earlier."""
        self.lost_below[leader_epoch] = start_offset

    def deleted(self, offset: int) -> None:
        """End the promises below an offset, whose records may be deleted from now on."""
        self.deleted_below = max(self.deleted_below, offset)
        self.promises = {
            base_offset: promise for base_offset, promise in self.promises.items()
            if promise.last_offset >= self.deleted_below
        }  # fmt: skip

    def lost_power(self, broker_id: int, min_isr: int, leader_epoch: int) -> bool:
        """Handle a broker's loss of power. Return whether it voids existing promises."""
        self.without_power.add(broker_id)
        if self.flush_before_ack or len(self.without_power) < min_isr:
            return False
        self.void_epochs.append(leader_epoch)
        had_any = bool(self.promises)
        self.promises.clear()
        return had_any

    def is_in_sync(self, broker_ids: Iterable[int]) -> None:
        """Record that brokers are in the ISR, so they have everything again."""
        self.without_power.difference_update(broker_ids)

    @property
    def start(self) -> int:
        """The first promised offset."""
        return min(self.promises, default=0)

    @property
    def end(self) -> int:
        """The offset behind the last promise."""
        return max((promise.last_offset + 1 for promise in self.promises.values()), default=0)

    # --- checking replicas --------------------------------------------------------------------------------------------

    def replica_begins(self, broker_id: int, start_offset: int, leader_epoch: int) -> None:
        """Check the log start of a replica whose broker knows `leader_epoch`."""
        self.checks += 1
        lost = [below for epoch, below in self.lost_below.items() if epoch <= leader_epoch]
        start_max = max([self.deleted_below, *lost])
        if start_offset > start_max:
            raise Violation(
                f"{KEPT}: {self.name}: on broker {broker_id} it begins at {start_offset}, but may be deleted,"
                f" or lost by an unclean election, only below {start_max}"
            )

    def leader_has(self, broker_id: int, batches: Sequence[Batch], leader_epoch: int, start_offset: int) -> None:
        """Check all batches of a leader: they include every promised batch."""
        self.checks += 1
        if leader_epoch < self.unclean_epoch:
            return
        stored = {batch.base_offset: batch for batch in batches}
        if self.unconfirmed:
            self.unconfirmed = False
            self.promises = {
                offset: promise for offset, promise in self.promises.items()
                if promise.leader_epoch >= self.unclean_epoch
                or (offset in stored and promise.is_in(stored[offset]))
            }  # fmt: skip
        for promise in self.promises.values():
            there = stored.get(promise.base_offset)
            if promise.leader_epoch > leader_epoch or promise.last_offset < max(self.deleted_below, start_offset):
                continue
            if there is None or not promise.is_in(there):
                end = batches[-1].last_offset + 1 if batches else start_offset
                raise Violation(
                    f"{promise.why}: {self.name}: broker {broker_id} leads epoch {leader_epoch} without the batch at"
                    f" {promise.base_offset}, promised in epoch {promise.leader_epoch}; its log ends at {end}"
                )
        self._check_once(broker_id, batches)

    def replica_has(self, broker_id: int, batches: Sequence[Batch]) -> None:
        """Check all batches of a replica. Only one leader writes in an epoch, so replicas agree within each epoch."""
        self.checks += 1
        epoch = NO_EPOCH
        for batch in batches:
            if batch.leader_epoch < epoch:
                raise Violation(
                    f"{AGREE}: {self.name}: broker {broker_id} has epoch {batch.leader_epoch} at {batch.base_offset},"
                    f" behind epoch {epoch}"
                )
            epoch = batch.leader_epoch
            key = (batch.leader_epoch, batch.base_offset)
            if self.by_epoch.setdefault(key, batch.data) != batch.data:
                raise Violation(
                    f"{AGREE}: {self.name}: broker {broker_id} has another batch at {batch.base_offset} in epoch"
                    f" {batch.leader_epoch} than another replica had"
                )

    def _check_once(self, broker_id: int, batches: Iterable[Batch]) -> None:
        found: dict[tuple[int, ...] | tuple[int, bytes], int] = {}
        for batch in batches:
            for key in (batch.sequence_key, batch.records_key):
                if key is not None and found.setdefault(key, batch.base_offset) != batch.base_offset:
                    raise Violation(
                        f"{ONCE}: {self.name}: broker {broker_id} has {batch.sequence_key} at {batch.base_offset}, and"
                        f" its records at {found[key]}, too"
                    )
