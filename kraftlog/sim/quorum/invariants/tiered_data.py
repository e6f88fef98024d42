"""Data that is only in remote storage exists there and matches the metadata."""

from __future__ import annotations

from itertools import pairwise

from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.model.keys import Key
from kraftlog.sim.quorum.model.tiering import DELETING, FINISHED, REMOVAL_STARTED
from kraftlog.sim.quorum.observation.step import Step


class TieredData(Invariant):
    """A local log starts within the finished copies of committed records, and each finished segment has its object.

    An object is deleted only after the record about it is committed. Above the last deleted segment, a partition's
    finished segments follow one another without gap or overlap, except segments that lie within another one: the same
    offsets copied twice, or the short segments of a leader inside a long one. While a partition's topic is being
    deleted, its objects may be deleted at once.
    """

    number = 42
    title = "remote data exists as long as it is relied on"
    source = "KIP-405; TS-47, TS-49"
    is_about_brokers = True

    def after_step(self, step: Step) -> None:
        """Check the objects that were added and deleted."""
        world = self.world
        for place in world.remote_storage.removed:
            segment = world.metadata.tiering.segments.get(place)
            if segment is not None and segment.state != DELETING and not self._is_going(place[:2]):
                self.violated(f"the object of {segment} was deleted without a committed record that announces it")
        world.remote_storage.removed.clear()
        for change in world.metadata_changes:
            if change.kind == "segment" and change.after.state == FINISHED:
                self._check_finished(change.key[:2])

    def _check_finished(self, key: Key) -> None:
        if self._is_going(key):
            return
        tiering = self.world.metadata.tiering
        finished = {
            place: segment
            for place, segment in tiering.segments.items()
            if place[:2] == key and segment.state == FINISHED
        }
        missing = [segment for place, segment in finished.items() if place not in self.world.remote_storage.objects]
        if missing:
            self.violated(f"partition {key[1]} of topic {key[0].hex()} has segments without objects: {missing}")
        log_start = tiering.log_starts.get(key, 0)
        ranges = {
            (segment.start_offset, segment.end_offset)
            for segment in finished.values()
            if segment.end_offset >= log_start
        }
        widest = sorted(
            segment for segment in ranges if not any(_is_within(segment, other) for other in ranges - {segment})
        )
        is_whole = not widest or widest[0][0] <= log_start
        if not is_whole or any(later[0] != before[1] + 1 for before, later in pairwise(widest)):
            self.violated(
                f"partition {key[1]} of topic {key[0].hex()} has finished segments with a gap or an overlap; those up"
                f" to {log_start} may be deleted: {sorted(ranges)}"
            )

    def at_end(self) -> None:
        """Check every broker's log start."""
        if self.world.faults_may_lose_quorum:
            return
        for (broker_id, key), start in self.world.remote_storage.local_starts.items():
            copied = self.world.metadata.tiering.copied_ends.get(key)
            if key[0] in self.world.metadata.topics and start > (copied or 0):
                self.violated(
                    f"the log of partition {key[1]} of topic {key[0].hex()} begins at {start} on broker {broker_id},"
                    f" but it is copied only up to {copied}"
                )

    def _is_going(self, key: Key) -> bool:
        removal = self.world.metadata.tiering.removals.get(key)
        is_removed = removal is not None and removal.state >= REMOVAL_STARTED
        return is_removed or key[0] not in self.world.metadata.topics


def _is_within(inner: tuple[int, int], other: tuple[int, int]) -> bool:
    return other[0] <= inner[0] and inner[1] <= other[1]
