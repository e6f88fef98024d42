"""A record of Kafka's and ours that mean the same are shown as the same, whatever ids and epochs the two drew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraftbase.ids import UNASSIGNED_DIRECTORY
from kraftlog.difftest.kafka_records import from_kafka
from kraftlog.difftest.own_records import from_own
from kraftlog.difftest.records import LOST, Names, Record, directory_id, incarnation_id
from kraftlog.kafka import metadata_records as kafka
from kraftlog.kafka.notation import Message
from kraftpb.v1 import metadata_pb2 as own
from kraftpb.v1.metadata_pb2 import MetadataRecord

KAFKAS_TOPIC = b"kafkas topic id."
OUR_TOPIC = b"our id of topic."
DIRECTORY = directory_id(1, 1)

PAIRS: list[tuple[Message, MetadataRecord]] = [
    (
        kafka.PartitionRecord(
            partition_id=2, topic_id=KAFKAS_TOPIC, replicas=(1, 2), isr=(1,), leader=1, leader_epoch=0,
            partition_epoch=0, directories=(DIRECTORY, UNASSIGNED_DIRECTORY),
        ),
        MetadataRecord(
            partition=own.PartitionRecord(
                partition_id=2, topic_id=OUR_TOPIC, replicas=[1, 2], isr=[1], leader=1,
                directories=[DIRECTORY, UNASSIGNED_DIRECTORY],
            )
        ),
    ),
    (
        kafka.PartitionChangeRecord(
            partition_id=2, topic_id=KAFKAS_TOPIC, isr=(), leader=-1, eligible_leader_replicas=(1,), last_known_elr=(),
        ),
        MetadataRecord(
            partition_change=own.PartitionChangeRecord(
                partition_id=2, topic_id=OUR_TOPIC, isr=own.BrokerIds(), leader=-1,
                eligible_leader_replicas=own.BrokerIds(ids=[1]), last_known_elr=own.BrokerIds(),
            )
        ),
    ),
    (
        kafka.PartitionChangeRecord(
            partition_id=2, topic_id=KAFKAS_TOPIC, leader=1, leader_recovery_state=1, replicas=(1, 2),
            adding_replicas=(2,), removing_replicas=(), directories=(DIRECTORY, LOST),
        ),
        MetadataRecord(
            partition_change=own.PartitionChangeRecord(
                partition_id=2, topic_id=OUR_TOPIC, leader=1, leader_recovery_state=1,
                replicas=own.BrokerIds(ids=[1, 2]), adding_replicas=own.BrokerIds(ids=[2]),
                removing_replicas=own.BrokerIds(), directories=own.DirectoryIds(ids=[DIRECTORY, LOST]),
            )
        ),
    ),
    (
        kafka.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=70, fenced=-1),
        MetadataRecord(
            broker_registration_change=own.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=9, fenced=False)
        ),
    ),
    (
        kafka.BrokerRegistrationChangeRecord(
            broker_id=1, broker_epoch=70, fenced=1, in_controlled_shutdown=1, log_dirs=(DIRECTORY,)
        ),
        MetadataRecord(
            broker_registration_change=own.BrokerRegistrationChangeRecord(
                broker_id=1, broker_epoch=9, fenced=True, in_controlled_shutdown=True,
                log_dirs=own.DirectoryIds(ids=[DIRECTORY]),
            )
        ),
    ),
    (
        kafka.UnregisterBrokerRecord(broker_id=1, broker_epoch=70),
        MetadataRecord(unregister_broker=own.UnregisterBrokerRecord(broker_id=1, broker_epoch=9)),
    ),
    (
        kafka.ConfigRecord(resource_type=2, resource_name="t", name="n", value=None),
        MetadataRecord(config=own.ConfigRecord(resource_type=2, resource_name="t", name="n")),
    ),
    (
        kafka.ConfigRecord(resource_type=4, resource_name="", name="n", value=""),
        MetadataRecord(config=own.ConfigRecord(resource_type=4, name="n", value="")),
    ),
    (
        kafka.ClientQuotaRecord(
            entity=(
                kafka.EntityData(entity_type="user", entity_name=None),
                kafka.EntityData(entity_type="client-id", entity_name="c"),
            ),
            key="k",
            value=1.0,
        ),
        MetadataRecord(
            client_quota=own.ClientQuotaRecord(
                entity=[
                    own.QuotaEntity(entity_type="client-id", entity_name="c"),
                    own.QuotaEntity(entity_type="user"),
                ],
                key="k",
                value=1.0,
            )
        ),
    ),
    (
        kafka.ProducerIdsRecord(broker_id=1, broker_epoch=70, next_producer_id=5000),
        MetadataRecord(producer_ids=own.ProducerIdsRecord(broker_id=1, broker_epoch=9, next_producer_id=1000)),
    ),
    (
        kafka.FeatureLevelRecord(name="metadata.version", feature_level=29),
        MetadataRecord(feature_level=own.FeatureLevelRecord(name="metadata.version", level=29)),
    ),
    (
        kafka.AccessControlEntryRecord(
            id=b"kafkas entry id.", resource_type=2, resource_name="t", pattern_type=3, principal="User:a", host="*",
            operation=3, permission_type=3,
        ),
        MetadataRecord(
            access_control_entry=own.AccessControlEntryRecord(
                id=b"our id of entry.", resource_type=2, resource_name="t", pattern_type=3, principal="User:a",
                host="*", operation=3, permission_type=3,
            )
        ),
    ),
    (
        kafka.RemoveAccessControlEntryRecord(id=b"kafkas entry id."),
        MetadataRecord(remove_access_control_entry=own.RemoveAccessControlEntryRecord(id=b"our id of entry.")),
    ),
    (
        kafka.RemoveTopicRecord(topic_id=KAFKAS_TOPIC),
        MetadataRecord(remove_topic=own.RemoveTopicRecord(topic_id=OUR_TOPIC)),
    ),
]  # fmt: skip

BEFORE: list[tuple[Message, MetadataRecord]] = [
    (
        kafka.RegisterBrokerRecord(
            broker_id=1, incarnation_id=incarnation_id(1, 3), broker_epoch=70, log_dirs=(DIRECTORY,), rack=None,
            features=(
                kafka.BrokerFeature(name="group.version", max_supported_version=1),
                kafka.BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=29),
            ),
        ),
        MetadataRecord(
            register_broker=own.RegisterBrokerRecord(
                broker_id=1, incarnation_id=incarnation_id(1, 3), broker_epoch=9, log_dirs=[DIRECTORY], fenced=True,
                features=[own.SupportedFeature(name="metadata.version", min_level=7, max_level=29)],
            )
        ),
    ),
    (
        kafka.TopicRecord(name="t", topic_id=KAFKAS_TOPIC),
        MetadataRecord(topic=own.TopicRecord(name="t", topic_id=OUR_TOPIC)),
    ),
]  # fmt: skip


def converted(pairs: list[tuple[Message, MetadataRecord]]) -> tuple[list[Record | None], list[Record | None]]:
    names: tuple[Names, Names] = (Names(), Names())
    return (
        [from_kafka(theirs, names[0]) for theirs, _ in pairs],
        [from_own(ours, names[1]) for _, ours in pairs],
    )


def test_records_that_mean_the_same_are_equal() -> None:
    theirs, ours = converted([*BEFORE, *PAIRS])
    assert theirs == ours
    assert None not in theirs
    assert len({str(record) for record in theirs}) == len(theirs)


def changed(pair: tuple[Message, MetadataRecord], change: Callable[[Any], None]) -> bool:
    """Whether a change to the kafka record of a pair is seen."""
    change(pair[0])
    theirs, ours = converted([*BEFORE, pair])
    return theirs != ours


@pytest.mark.parametrize(
    ("name", "value"),
    [("isr", None), ("leader", -2), ("eligible_leader_replicas", None), ("last_known_elr", None), ("replicas", ())],
)
def test_absent_and_empty_fields_of_a_change_differ(name: str, value: object) -> None:
    record = kafka.PartitionChangeRecord(
        partition_id=2, topic_id=KAFKAS_TOPIC, isr=(), leader=-1, eligible_leader_replicas=(1,), last_known_elr=(),
    )  # fmt: skip
    assert changed((record, PAIRS[1][1]), lambda found: setattr(found, name, value))


def test_registrations_are_counted_for_each_broker_and_anew_in_each_sequence() -> None:
    names = Names()
    names.learn_registration(1, 10)
    names.learn_registration(2, 11)
    names.learn_registration(1, 15)
    names.learn_registration(1, 15)
    assert [names.registration(1, epoch) for epoch in (10, 15, 16)] == [
        "registration 1", "registration 2", "registration unknown",
    ]  # fmt: skip
    names.begin()
    names.learn_registration(1, 20)
    assert names.registration(1, 20) == "registration 1"


def test_what_says_nothing_about_the_metadata_is_left_out() -> None:
    assert from_kafka(kafka.NoOpRecord(), Names()) is None
    assert from_own(MetadataRecord(no_op=own.NoOpRecord()), Names()) is None
    assert from_own(MetadataRecord(begin_transaction=own.BeginTransactionRecord(name="b")), Names()) is None


def test_a_record_that_the_other_system_does_not_have_is_shown() -> None:
    assert from_kafka(kafka.UserScramCredentialRecord(name="u"), Names()) == Record(
        "UserScramCredentialRecord", "other", {}
    )
