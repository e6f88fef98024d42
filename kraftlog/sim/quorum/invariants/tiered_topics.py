"""A topic's remote data is deleted with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.model.keys import Key
from kraftlog.sim.quorum.model.metadata import Change, DeletedTopic
from kraftlog.sim.quorum.model.tiering import MARKED
from kraftlog.sim.quorum.observation.step import Step


class TopicsTakeTheirRemoteData(Invariant):
    """When a topic that may have remote data is deleted, the same batch or transaction marks all its partitions.

    A topic may have remote data if it is tiered, since a copy that is about to start must be found later, too. So its
    partitions are marked with or without segments. A partition whose remote data is already being deleted is not marked
    again, and partitions of other topics are not marked. An existing partition is marked only together with its topic.
    """

    number = 59
    title = "a topic's remote data is deleted with it"
    source = "KIP-405; TS-52, TS-71"
    looks_at = frozenset({"is_news", "deliveries"})
    is_about_brokers = True

    def after_step(self, step: Step) -> None:
        """Check the changes that took effect together."""
        units: defaultdict[int, list[Change]] = defaultdict(list)
        for change in self.world.metadata_changes:
            units[change.unit].append(change)
        for changes in units.values():
            self._check(changes)

    def _check(self, changes: Sequence[Change]) -> None:
        marked = {
            change.key
            for change in changes
            if change.kind == "removal" and change.before is None and change.after.state == MARKED
        }
        deleted = {change.key: change.before for change in changes if change.kind == "deleted topic"}
        for topic_id, topic in deleted.items():
            found = {key for key in marked if key[0] == topic_id}
            if found != _due(topic, marked):
                self.violated(
                    f"topic {topic_id.hex()} is deleted with {topic}; its partitions {_ids(found)} are marked for the"
                    f" deletion of their remote data, but {_ids(_due(topic, marked))} should be"
                )
        early = {key for key in marked if key[0] not in deleted and key in self.world.metadata.partitions}
        if early:
            self.violated(
                f"partitions {sorted(early)} are marked for the deletion of their remote data, but still exist"
            )


def _due(topic: DeletedTopic, marked: set[Key]) -> set[Key]:
    """The partitions that must be marked with the topic's deletion."""
    if not topic.is_tiered and not topic.with_segments:
        return set()
    return set(topic.partitions - (topic.being_removed - marked))


def _ids(keys: set[Key]) -> list[int]:
    return sorted(partition_id for _, partition_id in keys)
