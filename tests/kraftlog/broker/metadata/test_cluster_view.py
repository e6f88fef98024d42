"""A view that has followed every change is the same as one that looks at the whole now."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kraftbase.types import Offset
from kraftlog.broker.metadata.cluster_view import ClusterView
from kraftlog.replicas.partitions.partition import Partition
from kraftpb.v1.metadata_pb2 import BrokerIds, MetadataRecord, PartitionChangeRecord, PartitionRecord
from tests.effort import examples
from tests.kraftlog.broker.broker_world import BrokerWorld, registration, replicas, topic
from tests.kraftlog.storage.builders import CLUSTER_ID
from tests.statemachine.builders import an_id, remove_topic

NAMES = ("clicks", "views", "none")
TOPIC_COUNT = 60


class Story:
    """Records that make sense, one after the other; topics that come and go have few names and always new ids."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self.partitions: dict[str, int] = {}
        self.made = 0

    def next(self, kind: int, name: str, value: int) -> list[MetadataRecord]:
        if kind == 0:
            return [registration(value, fenced=bool(value % 2))]
        if name not in self.ids:
            self.made += 1
            self.ids[name], self.partitions[name] = self.made, 1
            return [topic(name, self.made), replicas(self.made, on=[1, value])]
        number = self.ids[name]
        if kind == 1:
            del self.ids[name]
            return [remove_topic(number)]
        if kind == 2:
            self.partitions[name] += 1
            return [replicas(number, self.partitions[name] - 1, on=[value])]
        change = PartitionChangeRecord(topic_id=an_id(number), leader=value, isr=BrokerIds(ids=[value]))
        return [MetadataRecord(partition_change=change)]


def shown(view: ClusterView) -> object:
    """All that a view says."""
    by_name = [view.topic_named(name) for name in NAMES]
    by_id = [view.topic_with_id(an_id(number)) for number in range(1, TOPIC_COUNT)]
    return (
        [None if one is None else (one.name, one.topic_id, one.partitions) for one in by_name],
        [None if one is None else (one.name, one.topic_id, one.partitions) for one in by_id],
        list(view.topic_names()),
        view.brokers,
    )


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 3), st.sampled_from(NAMES[:2]), st.integers(2, 5)), min_size=1, max_size=4),
        max_size=12,
    )
)
def test_a_view_follows_the_metadata(batches: list[list[tuple[int, str, int]]]) -> None:
    story = Story()
    with tempfile.TemporaryDirectory() as directory:
        world = BrokerWorld(Path(directory))
        for steps in batches:
            world.commit(*(record for kind, name, value in steps for record in story.next(kind, name, value)))
            afresh = ClusterView(CLUSTER_ID)
            afresh.on_snapshot(Offset(world.tables.applied.end_offset), world.tables.connection)
            assert shown(world.cluster) == shown(afresh)
            hosted = {(str(partition), partition.topic_id) for partition in world.partitions}
            assert hosted == {
                (f"{name}-{part.partition_id}", part.topic_id)
                for name in NAMES
                if (view := afresh.topic_named(name)) is not None
                for part in view.partitions
                if 1 in part.replicas
            }
            assert all(partition.record == _record(afresh, partition) for partition in world.partitions)
            assert {name for of in world.logs.online for name in of.logs} == {of.name for of in world.partitions}
        world.tables.connection.close()


def _record(view: ClusterView, partition: Partition) -> PartitionRecord | None:
    found = view.topic_named(partition.name.topic)
    return None if found is None else found.partition(partition.name.partition_id)
