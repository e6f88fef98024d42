"""Two logs that agree at an offset agree below it."""

from __future__ import annotations

from typing import NamedTuple

from kraftbase.types import Epoch
from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.durable_log import DurableLog
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step
from raft.core.types import Batch


class _Entry(NamedTuple):
    batch: Batch
    before: Epoch | None
    """The epoch of the batch before it; 0 for the first batch, None if the epoch is no longer known."""


class LogMatching(Invariant):
    """Two logs with the same epoch at an offset are the same up to there: batch borders, bytes and previous batches.

    Disks are checked: every batch is compared with the first one seen at each of its offsets in its epoch, and so is
    the epoch of the batch before it. By induction the rest is equal, too. There are no false positives.
    """

    number = 3
    title = "logs match"
    source = "Raft, 5.3; Kafka's simulation test, openraft"
    looks_at = frozenset({"disk_changed"})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._seen: dict[tuple[int, Epoch], _Entry] = {}

    def after_step(self, step: Step) -> None:
        """Compare the new batches on the disk."""
        log = step.node.durable_log
        for index in range(log.first_changed, len(log.batches)):
            batch = log.batches[index]
            before = log.batches[index - 1].epoch if index else self._epoch_before_first(log)
            for offset in range(batch.base_offset, batch.end_offset):
                seen = self._seen.setdefault((offset, batch.epoch), _Entry(batch, before))
                is_same_before = seen.before == before or seen.before is None or before is None
                if seen.batch != batch or not is_same_before:
                    self.violated(
                        f"the disk of node {step.node.node_id} holds another batch at offset {offset} of epoch"
                        f" {batch.epoch} than was seen there before, or another epoch before it"
                    )

    def _epoch_before_first(self, log: DurableLog) -> Epoch | None:
        """Return the epoch before the first batch; None if that batch was removed and its epoch was not recorded."""
        base_offset = log.batches[0].base_offset
        if base_offset == log.start.offset:
            return log.start.epoch
        return None
