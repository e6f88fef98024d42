"""The epoch cache agrees with the log."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from kraftbase.types import Epoch, Offset
from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.observation.node_view import NodeView, batches_of
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step

EVERY_STEPS: Final = 24
"""How many steps pass between two checks of a running node's whole log. Starts and truncations are always checked."""


class EpochCache(Invariant):
    """Epochs and offsets strictly increase, and the core's and the log's caches equal a recomputation from the log.

    There are no false positives. The recomputation reads the log, so it happens at starts, after truncations and every
    few steps.
    """

    number = 20
    title = "the epoch cache matches the log"
    source = "Kafka, LeaderEpochFileCache"
    looks_at = frozenset({"started", "is_news"})

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._steps: dict[int, int] = {}
        self._ends: dict[int, int] = {}

    def after_step(self, step: Step) -> None:
        """Recompute the cache when it is due."""
        node = step.node
        if node.log is None or node.replica is None:
            return
        steps = self._steps[node.node_id] = self._steps.get(node.node_id, 0) + 1
        end_offset = node.log.log_end_offset
        is_shorter = end_offset < self._ends.get(node.node_id, 0)
        self._ends[node.node_id] = end_offset
        if step.started or is_shorter or steps % EVERY_STEPS == 0:
            self._check(node)

    def _check(self, node: NodeView) -> None:
        if node.log is None:
            return
        # Flushed batches are on the disk, where they are decoded already. A disk that lost data is not read.
        flushed = Offset(0) if node.has_lost_data else min(node.log.flushed_end_offset, node.durable_log.end_offset)
        start = node.log.start
        held = node.durable_log.batches if node.durable_log.start == start else []
        batches = [batch for batch in held if start.offset <= batch.base_offset and batch.end_offset <= flushed]
        offset = batches[-1].end_offset if batches else start.offset
        unflushed = batches_of(node, offset)
        if unflushed is None:
            return
        batches += unflushed
        found: list[tuple[Epoch, Offset]] = []
        for batch in batches:
            if batch.epoch != (found[-1][0] if found else start.epoch):
                found.append((batch.epoch, batch.base_offset))
        entries = node.log.epochs.entries()
        if node.replica is not None and not node.is_behind:
            known = node.replica.epoch_entries()
            if known != entries or node.replica.log_start != start:
                self.violated(f"node {node.node_id} has the epoch cache {entries}, its core has {known}")
        if entries != found:
            self.violated(f"node {node.node_id} has the epoch cache {entries}, its log yields {found}")
        if any(now >= later for now, later in pairwise(entries)):
            self.violated(f"the epoch cache of node {node.node_id} does not increase: {entries}")
