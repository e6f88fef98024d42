"""A small cluster with some of everything, healthy and not, for tests of SQL.

Topic `orders` has three partitions on brokers 1 to 3; broker 3 is fenced, and out of sync in partition 0. Partition 1
is offline. Partition 2 is being moved from broker 2 to broker 3. Topic `logs` has one replica. Topic 3 is deleted, with
remote data that is not.
"""

from __future__ import annotations

from typing import Final

from kraftpb.v1.metadata_pb2 import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterControllerRecord,
)
from tests.statemachine.builders import BROKER, an_id, broker, config, remove_topic, topic
from tests.statemachine.remote_logs import DELETE_STARTED, MARKED, added, copied, deleting, segment, updated


def _partition(
    number: int,
    partition_id: int,
    replicas: list[int],
    isr: list[int],
    leader: int,
    *,
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
) -> MetadataRecord:
    return MetadataRecord(
        partition=PartitionRecord(
            topic_id=an_id(number),
            partition_id=partition_id,
            replicas=replicas,
            isr=isr,
            leader=leader,
            leader_epoch=4,
            adding_replicas=adding,
            removing_replicas=removing,
            directories=[an_id(900 + replica) for replica in replicas],
        )
    )


SAMPLE: Final[list[MetadataRecord]] = [
    MetadataRecord(feature_level=FeatureLevelRecord(name="eligible.leader.replicas.version", level=1)),
    MetadataRecord(register_controller=RegisterControllerRecord(controller_id=100, incarnation_id=an_id(600))),
    broker(1, epoch=10, rack="east"),
    broker(2, epoch=11, rack="east"),
    broker(3, epoch=12, rack="west", fenced=True),
    broker(4, epoch=13),
    topic("orders", 1),
    _partition(1, 0, [1, 2, 3], [1, 2], 1),
    _partition(1, 1, [3, 2], [3], -1),
    _partition(1, 2, [2, 1, 3], [2, 1], 1, adding=(3,), removing=(2,)),
    topic("logs", 2),
    _partition(2, 0, [9], [9], 9),
    topic("deleted", 3),
    _partition(3, 0, [1], [1], 1),
    config("", "min.insync.replicas", "2", BROKER),
    config("1", "log.retention.ms", "3", BROKER),
    config("2", "log.retention.ms", "4", BROKER),
    config("logs", "min.insync.replicas", "1"),
    config("orders", "retention.ms", "-1"),
    MetadataRecord(
        client_quota=ClientQuotaRecord(
            entity=[QuotaEntity(entity_type="user", entity_name="alice")], key="producer_byte_rate", value=1024
        )
    ),
    MetadataRecord(producer_ids=ProducerIdsRecord(broker_id=1, broker_epoch=10, next_producer_id=1000)),
    *(
        MetadataRecord(
            access_control_entry=AccessControlEntryRecord(
                id=an_id(700 + number),
                resource_type=2,
                resource_name=name,
                pattern_type=pattern_type,
                principal=principal,
                host="*",
                operation=4,
                permission_type=3,
            )
        )
        for number, (pattern_type, name, principal) in enumerate(
            [(3, "orders", "User:alice"), (4, "ord", "User:bob"), (4, "rders", "User:eve")]
        )
    ),
    *copied(segment(1, 0, 9)),
    *copied(segment(2, 10, 29, {0: 10, 4: 20})),
    added(segment(3, 30, 39, {4: 30})),
    *copied(segment(4, 0, 9, topic=3)),
    updated(4, DELETE_STARTED, topic=3),
    remove_topic(3),
    deleting(MARKED, topic=3),
]
