"""Queries on the database: answers in order, complete, and the same as any SQL query's."""

from __future__ import annotations

from kraftbase.ids import id_to_text
from statemachine.query import metadata_queries
from statemachine.query.descriptions import BrokerListener, ConfigValue, Counts, TopicListing
from statemachine.store.store import MetadataStore
from tests.statemachine.builders import BROKER, TOPIC, an_id, batch, broker, config, partition, topic


def filled(store: MetadataStore) -> MetadataStore:
    records = [
        topic("b", 2),
        partition(2, 1, (2, 1)),
        partition(2, 0, (1, 2)),
        topic("a", 1),
        partition(1, 0, (3,)),
        topic("empty", 3),
        config("b", "segment.ms", "2"),
        config("b", "retention.ms", "1"),
        config("2", "log.retention.ms", "3", BROKER),
        broker(2, epoch=9, rack="r"),
        broker(1, epoch=10, fenced=True),
    ]
    store.apply([batch(0, records)])
    return store


def test_topics_are_listed_by_name_with_their_sizes(store: MetadataStore) -> None:
    assert list(metadata_queries.list_topics(filled(store).reader)) == [
        TopicListing("a", id_to_text(an_id(1)), 1, 1),
        TopicListing("b", id_to_text(an_id(2)), 2, 2),
        TopicListing("empty", id_to_text(an_id(3)), 0, 0),
    ]


def test_one_topic_is_described_by_name_or_id_and_all_of_them_alike(store: MetadataStore) -> None:
    reader = filled(store).reader
    described = metadata_queries.describe_topic(reader, name="b")
    assert described is not None
    assert described == metadata_queries.describe_topic(reader, topic_id=id_to_text(an_id(2)))
    assert [(part.partition_id, part.leader, part.replicas) for part in described.partitions] == [
        (0, 1, (1, 2)),
        (1, 2, (2, 1)),
    ]
    assert described.configs == (ConfigValue("retention.ms", "1"), ConfigValue("segment.ms", "2"))
    everything = list(metadata_queries.describe_all_topics(reader))
    assert [found.name for found in everything] == ["a", "b", "empty"]
    assert everything == [metadata_queries.describe_topic(reader, name=found.name) for found in everything]
    assert metadata_queries.describe_topic(reader, name="missing") is None


def test_brokers_are_listed_by_id_with_everything(store: MetadataStore) -> None:
    first, second = metadata_queries.list_brokers(filled(store).reader)
    assert (first.broker_id, first.broker_epoch, first.fenced, first.rack) == (1, 10, True, None)
    assert (second.broker_id, second.broker_epoch, second.fenced, second.rack) == (2, 9, False, "r")
    assert second.listeners == (BrokerListener("PLAINTEXT", "localhost", 9094),)
    assert second.log_dirs == (id_to_text(an_id(902)),)
    assert second.incarnation_id == id_to_text(an_id(502))


def test_configs_are_those_of_one_resource(store: MetadataStore) -> None:
    reader = filled(store).reader
    assert metadata_queries.describe_configs(reader, BROKER, "2") == [ConfigValue("log.retention.ms", "3")]
    assert metadata_queries.describe_configs(reader, TOPIC, "2") == []


def test_counts_and_digest_say_how_far_a_node_is(store: MetadataStore) -> None:
    assert metadata_queries.counts(store.reader) == Counts(0, 0, 0, 0, 0)
    reader = filled(store).reader
    assert metadata_queries.counts(reader) == Counts(11, topics=3, partitions=3, brokers=2, configs=3)
    assert metadata_queries.applied_end_offset(reader) == 11
    assert metadata_queries.digest(reader) == store.applied.digest
