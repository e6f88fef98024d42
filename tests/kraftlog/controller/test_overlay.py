"""The overlay holds what is in flight, nothing else: reads look there first, then in the store."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraftbase.types import Offset
from kraftlog.controller.overlay import Overlay
from kraftpb.v1.metadata_pb2 import FeatureLevelRecord, MetadataBatch, MetadataRecord
from raft.storage.batch import encode_batch
from statemachine.metadata.state import MetadataState
from statemachine.store.store import MetadataStore
from statemachine.tables import table
from statemachine.words.resources import ResourceType
from tests.statemachine.builders import (
    BROKER,
    CLUSTER_ID,
    alter,
    alteration,
    an_id,
    batch,
    broker,
    config,
    create,
    delete,
    partition,
    remove_topic,
    topic,
)
from tests.statemachine.conftest import Bench
from tests.statemachine.waiting import until


def committed(store: MetadataStore) -> tuple[Overlay, MetadataState]:
    """An overlay over a topic, its config, and a broker."""
    store.apply([batch(0, [topic("old.one", 1), config("old.one", "retention.ms", "1"), partition(1), broker(1)])])
    overlay = Overlay(store)
    return overlay, MetadataState(overlay)


def test_without_changes_it_says_what_the_store_says(store: MetadataStore) -> None:
    overlay, state = committed(store)
    assert state.topic_id("old.one") == an_id(1)
    assert state.topic_name(an_id(1)) == "old.one"
    assert state.topic_id("missing") is None
    assert state.colliding_topic("old_one") == "old.one"
    assert state.colliding_topic("old.one") is None
    assert state.configs(ResourceType.TOPIC, "old.one") == {"retention.ms": "1"}
    assert state.configs(ResourceType.TOPIC, "missing") == {}
    assert list(state.brokers()) == [1]
    assert state.broker(1) is not None and state.broker(2) is None
    assert len(overlay) == 0


def test_changes_cover_the_store(store: MetadataStore) -> None:
    overlay, state = committed(store)
    records = [
        topic("new_one", 2),
        config("new_one", "segment.ms", "2"),
        config("old.one", "retention.ms", None),
        config("old.one", "segment.ms", "3"),
        config("", "num.partitions", "4", BROKER),
        broker(1, epoch=9, fenced=True),
        broker(2),
    ]
    overlay.replay(records, Offset(11))
    assert state.topic_id("new_one") == an_id(2)
    assert state.topic_name(an_id(2)) == "new_one"
    assert state.colliding_topic("new.one") == "new_one"
    assert state.configs(ResourceType.TOPIC, "new_one") == {"segment.ms": "2"}
    assert state.configs(ResourceType.TOPIC, "old.one") == {"segment.ms": "3"}
    assert state.configs(ResourceType.BROKER, "") == {"num.partitions": "4"}
    assert state.brokers()[1].broker_epoch == 9
    assert [state.is_active(1), state.is_active(2), state.is_active(3)] == [False, True, False]
    overlay.replay([remove_topic(1), remove_topic(2)], Offset(13))
    assert (state.topic_id("old.one"), state.topic_name(an_id(1))) == (None, None)
    assert (state.colliding_topic("old_one"), state.colliding_topic("new.one")) == (None, None)
    assert state.configs(ResourceType.TOPIC, "old.one") == {}


def test_what_is_applied_leaves_and_what_was_set_again_stays(store: MetadataStore) -> None:
    overlay, state = committed(store)
    overlay.replay([topic("a", 2)], Offset(5))
    overlay.replay([remove_topic(2), broker(2)], Offset(7))
    overlay.drain(Offset(5))
    assert state.topic_id("a") is None
    assert len(overlay) > 0
    store.apply([batch(4, [topic("a", 2), remove_topic(2), broker(2)])])
    overlay.drain(Offset(7))
    assert len(overlay) == 0
    assert state.topic_id("a") is None
    assert state.broker(2) is not None


def test_between_the_transaction_and_the_drain_both_say_the_same(store: MetadataStore) -> None:
    overlay, state = committed(store)
    records = [remove_topic(1), topic("old.one", 3), config("old.one", "segment.ms", "2")]
    overlay.replay(records, Offset(7))
    before = state.topic_id("old.one"), state.configs(ResourceType.TOPIC, "old.one")
    store.apply([batch(4, records)])
    assert (state.topic_id("old.one"), state.configs(ResourceType.TOPIC, "old.one")) == before
    overlay.drain(Offset(7))
    assert (state.topic_id("old.one"), state.configs(ResourceType.TOPIC, "old.one")) == before


def test_clearing_drops_everything(store: MetadataStore) -> None:
    overlay, state = committed(store)
    overlay.replay([remove_topic(1), broker(2), config("", "num.partitions", "4", BROKER)], Offset(7))
    overlay.clear()
    assert len(overlay) == 0
    assert state.topic_id("old.one") == an_id(1)
    overlay.replay([broker(2)], Offset(5))  # offsets of a later epoch may be lower


async def test_the_controllers_overlay_is_empty_when_everything_is_committed(bench: Bench) -> None:
    await bench.with_brokers(1)
    for operation in (create("a.b", "c"), alter(alteration("c", "retention.ms", "1")), delete("a.b"), create("a_b")):
        await bench.done(operation)
        assert len(bench.controller._overlay) == 0


REPLICAS = st.lists(st.integers(1, 4), min_size=1, max_size=3, unique=True)
PARTITIONS_OF_TOPICS = st.lists(st.lists(REPLICAS, max_size=5), min_size=1, max_size=5)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PARTITIONS_OF_TOPICS, PARTITIONS_OF_TOPICS, st.sets(st.integers(0, 4)), st.integers(1, 4), st.integers(1, 6))
def test_ct31_the_partitions_of_a_broker_are_found_page_by_page(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stored: list[list[list[int]]],
    uncommitted: list[list[list[int]]],
    removed: set[int],
    limit: int,
    scanned: int,
) -> None:
    """Whether committed, uncommitted or changed since, each is on one page, and none of those that are removed is."""
    monkeypatch.setattr(table, "SCANNED_ROWS", scanned)
    expected: dict[tuple[bytes, int], list[int]] = {}
    with closing(MetadataStore.open(tmp_path / f"{uuid4()}.db", CLUSTER_ID)) as store:
        records = [topic(f"t{number}", number) for number in range(5)]
        records += assigned_partitions(stored, expected)
        store.apply([batch(0, records)])
        overlay = Overlay(store)
        state = MetadataState(overlay)
        changed = assigned_partitions(uncommitted, expected)
        changed += [remove_topic(number) for number in removed]
        overlay.replay([*changed, config("", "num.partitions", "4", BROKER)], Offset(len(records) + len(changed) + 1))
        gone = {an_id(number) for number in removed}
        for broker_id in range(1, 5):
            found: list[tuple[bytes, int]] = []
            page = state.partitions_on(broker_id, None, limit)
            while True:
                assert len(page.found) <= limit
                found += [key for key, _ in page.found]
                if page.end is None:
                    break
                page = state.partitions_on(broker_id, page.end, limit)
            assert len(found) == len(set(found))
            assert set(found) == {
                key for key, replicas in expected.items() if broker_id in replicas and key[0] not in gone
            }


def assigned_partitions(
    topics: list[list[list[int]]], expected: dict[tuple[bytes, int], list[int]]
) -> list[MetadataRecord]:
    """Partitions with these replicas, by topic and partition; noted in `expected`."""
    records = []
    for number, partitions in enumerate(topics):
        for partition_id, replicas in enumerate(partitions):
            records.append(partition(number, partition_id, replicas))
            expected[an_id(number), partition_id] = replicas
    return records


def test_a_topic_that_is_made_again_has_none_of_the_partitions_that_are_stored(store: MetadataStore) -> None:
    """An id is not used twice, but a log may have that: what is stored is removed with the topic."""
    overlay, state = committed(store)
    overlay.replay([remove_topic(1), topic("again", 1)], Offset(6))
    assert state.partition(an_id(1), 0) is None
    store.apply([batch(4, [remove_topic(1), topic("again", 1)])])
    overlay.drain(Offset(6))
    assert state.partition(an_id(1), 0) is None


async def test_what_was_asked_for_before_is_not_believed_when_a_controller_becomes_active(bench: Bench) -> None:
    """Brokers and features are kept while they do not change; while another node leads, they change unnoticed."""
    log = bench.log
    log.lose_leadership()
    await until(lambda: not bench.controller.is_active)
    assert bench.controller.state.brokers() == {}
    body = MetadataBatch(records=[broker(1)]).SerializeToString()
    log.batches.append(encode_batch(log.log_end_offset, log.leader_and_epoch.epoch, body, 1, 1))
    log.feed.advance(log.log_end_offset)
    await until(lambda: bench.machine.applied_end_offset == log.log_end_offset)
    log.lead()
    await bench.lead()
    assert list(bench.controller.state.brokers()) == [1]


def test_a_topic_that_is_removed_takes_what_was_read_of_it(store: MetadataStore) -> None:
    overlay, state = committed(store)
    assert len(state.partitions(an_id(1))) == 1 and state.partition(an_id(1), 0) is not None
    assert state.topic_config("old.one", "retention.ms", "none") == "1"
    overlay.replay([remove_topic(1)], Offset(5))
    assert state.partitions(an_id(1)) == [] and state.partition(an_id(1), 0) is None
    assert state.topic_config("old.one", "retention.ms", "none") == "none"
    store.apply([batch(4, [remove_topic(1)])])
    overlay.drain(Offset(5))
    assert state.partitions(an_id(1)) == [] and state.partition(an_id(1), 0) is None
    assert state.topic_config("old.one", "retention.ms", "none") == "none"


def test_a_row_that_is_removed_leaves_what_was_read(store: MetadataStore) -> None:
    overlay, state = committed(store)
    assert state.configs(ResourceType.TOPIC, "old.one") == {"retention.ms": "1"}
    assert [state.topic_config("old.one", "retention.ms", "none"), list(state.brokers())] == ["1", [1]]
    records = [config("old.one", "retention.ms", None)]
    overlay.replay(records, Offset(5))
    for _ in "before", "after":
        assert state.configs(ResourceType.TOPIC, "old.one") == {}
        assert state.topic_config("old.one", "retention.ms", "none") == "none"
        store.apply([batch(4, records)])
        overlay.drain(Offset(5))


def test_records_of_another_controller_are_seen_whenever_they_are_applied(store: MetadataStore) -> None:
    """Before the first record of this one, in the same transaction as its records, and after its last."""
    overlay, state = committed(store)
    assert state.configs(ResourceType.TOPIC, "old.one") == {"retention.ms": "1"}
    overlay.replay([config("old.one", "segment.ms", "own")], Offset(6))
    seen = [state.configs(ResourceType.TOPIC, "old.one")["retention.ms"]]
    for records in (
        [config("old.one", "retention.ms", "before"), config("old.one", "segment.ms", "own")],
        [config("old.one", "retention.ms", "after")],
    ):
        store.apply([batch(store.applied_end_offset, records)])
        seen.append(state.configs(ResourceType.TOPIC, "old.one")["retention.ms"])
        assert state.topic_config("old.one", "retention.ms", "") == seen[-1]
    assert seen == ["1", "before", "after"]


def test_brokers_and_features_are_looked_up_again_when_they_change(store: MetadataStore) -> None:
    overlay, state = committed(store)
    assert [state.is_active(1), state.features()] == [True, {}]
    overlay.replay(
        [
            broker(1, epoch=5, fenced=True),
            broker(2),
            MetadataRecord(feature_level=FeatureLevelRecord(name="metadata.version", level=20)),
        ],
        Offset(7),
    )
    assert [state.is_active(1), list(state.brokers()), state.metadata_version] == [False, [1, 2], 20]
    overlay.clear()
    assert [state.is_active(1), list(state.brokers()), state.features()] == [True, [1], {}]
