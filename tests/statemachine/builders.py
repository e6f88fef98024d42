"""Records, batches and operations for tests, in one line each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kraftbase.types import Epoch, Offset
from kraftpb.v1 import admin_pb2
from kraftpb.v1.metadata_pb2 import (
    BrokerEndpoint,
    ConfigRecord,
    MetadataBatch,
    MetadataRecord,
    NoOpRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    SupportedFeature,
    TopicRecord,
)
from raft.listener import CommittedBatch
from raft.storage.batch import encode_batch
from statemachine.words.features import SUPPORTED

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
TOPIC, BROKER = 2, 4


def an_id(number: int) -> bytes:
    """A fixed id that is not reserved."""
    return (1_000 + number).to_bytes(16, "big")


def topic(name: str, number: int) -> MetadataRecord:
    return MetadataRecord(topic=TopicRecord(name=name, topic_id=an_id(number)))


def remove_topic(number: int) -> MetadataRecord:
    return MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=an_id(number)))


def partition(number: int, partition_id: int = 0, replicas: Sequence[int] = (1, 2)) -> MetadataRecord:
    return MetadataRecord(
        partition=PartitionRecord(
            topic_id=an_id(number),
            partition_id=partition_id,
            replicas=replicas,
            isr=replicas,
            leader=replicas[0],
            directories=[an_id(900 + replica) for replica in replicas],
        )
    )


def config(resource_name: str, name: str, value: str | None, resource_type: int = TOPIC) -> MetadataRecord:
    return MetadataRecord(
        config=ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
    )


def feature(name: str, min_level: int, max_level: int) -> SupportedFeature:
    return SupportedFeature(name=name, min_level=min_level, max_level=max_level)


def all_features() -> list[SupportedFeature]:
    """The features that this program supports."""
    return [feature(supported.name, supported.min_level, supported.max_level) for supported in SUPPORTED]


def broker(
    broker_id: int,
    epoch: int = 0,
    fenced: bool = False,
    rack: str | None = None,
    *,
    in_controlled_shutdown: bool = False,
    features: Sequence[SupportedFeature] | None = None,
) -> MetadataRecord:
    return MetadataRecord(
        register_broker=RegisterBrokerRecord(
            broker_id=broker_id,
            broker_epoch=epoch,
            incarnation_id=an_id(500 + broker_id),
            end_points=[BrokerEndpoint(name="PLAINTEXT", host="localhost", port=9092 + broker_id)],
            rack=rack,
            fenced=fenced,
            in_controlled_shutdown=in_controlled_shutdown,
            log_dirs=[an_id(900 + broker_id)],
            features=all_features() if features is None else features,
        )
    )


def no_op() -> MetadataRecord:
    return MetadataRecord(no_op=NoOpRecord())


def batch(
    base_offset: int, records: Sequence[MetadataRecord], epoch: int = 1, *, is_control: bool = False
) -> CommittedBatch:
    """A committed batch; a control batch has one record that no listener sees."""
    body = MetadataBatch(records=records).SerializeToString()
    count = 1 if is_control else len(records)
    return CommittedBatch(encode_batch(Offset(base_offset), Epoch(epoch), body, count, 1, is_control))


def log_of(runs: Iterable[Sequence[MetadataRecord]], epoch: int = 1) -> list[CommittedBatch]:
    """Contiguous batches with these records."""
    batches: list[CommittedBatch] = []
    for records in runs:
        batches.append(batch(batches[-1].end_offset if batches else 0, records, epoch))
    return batches


# --- operations -------------------------------------------------------------------------------------------------------


def creatable(
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    *,
    assignments: Mapping[int, Sequence[int]] | None = None,
    configs: Mapping[str, str | None] | None = None,
) -> admin_pb2.CreatableTopic:
    return admin_pb2.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[
            admin_pb2.PartitionAssignment(partition_id=partition_id, broker_ids=broker_ids)
            for partition_id, broker_ids in (assignments or {}).items()
        ],
        configs=[admin_pb2.ConfigEntry(name=key, value=value) for key, value in (configs or {}).items()],
    )


def assigned(name: str, assignments: Mapping[int, Sequence[int]]) -> admin_pb2.CreatableTopic:
    return creatable(name, -1, -1, assignments=assignments)


def create(*topics: str | admin_pb2.CreatableTopic, validate_only: bool = False) -> admin_pb2.Operation:
    return admin_pb2.Operation(
        create_topics=admin_pb2.CreateTopicsRequest(
            topics=[creatable(given) if isinstance(given, str) else given for given in topics],
            validate_only=validate_only,
        )
    )


def delete(*names: str, ids: Sequence[bytes] = ()) -> admin_pb2.Operation:
    references = [admin_pb2.TopicReference(name=name) for name in names]
    references += [admin_pb2.TopicReference(topic_id=topic_id) for topic_id in ids]
    return admin_pb2.Operation(delete_topics=admin_pb2.DeleteTopicsRequest(topics=references))


def alteration(
    resource_name: str, name: str, value: str | None, resource_type: int = TOPIC
) -> admin_pb2.ConfigAlteration:
    kind = admin_pb2.ConfigAlteration.DELETE if value is None else admin_pb2.ConfigAlteration.SET
    return admin_pb2.ConfigAlteration(
        resource_type=resource_type, resource_name=resource_name, name=name, kind=kind, value=value or ""
    )


def alter(*alterations: admin_pb2.ConfigAlteration, validate_only: bool = False) -> admin_pb2.Operation:
    return admin_pb2.Operation(
        alter_configs=admin_pb2.AlterConfigsRequest(alterations=alterations, validate_only=validate_only)
    )


def registration(
    broker_id: int,
    incarnation: int | None = None,
    log_dirs: Sequence[int] | None = None,
    *,
    features: Sequence[SupportedFeature] | None = None,
    previous_broker_epoch: int | None = None,
) -> admin_pb2.RegisterBrokerRequest:
    return admin_pb2.RegisterBrokerRequest(
        broker_id=broker_id,
        incarnation_id=an_id(500 + broker_id if incarnation is None else incarnation),
        listeners=[BrokerEndpoint(name="PLAINTEXT", host="localhost", port=9092 + broker_id)],
        log_dirs=[an_id(number) for number in ([900 + broker_id] if log_dirs is None else log_dirs)],
        features=all_features() if features is None else features,
        previous_broker_epoch=previous_broker_epoch,
    )


def register(
    broker_id: int, incarnation: int | None = None, log_dirs: Sequence[int] | None = None
) -> admin_pb2.Operation:
    return admin_pb2.Operation(register_broker=registration(broker_id, incarnation, log_dirs))


def heartbeat(
    broker_id: int,
    broker_epoch: int,
    metadata_offset: int,
    *,
    want_fence: bool = False,
    want_shut_down: bool = False,
    offline_log_dirs: Sequence[bytes] = (),
    log_dir_space: Sequence[admin_pb2.LogDirSpace] = (),
) -> admin_pb2.BrokerHeartbeatRequest:
    return admin_pb2.BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        current_metadata_offset=metadata_offset,
        want_fence=want_fence,
        want_shut_down=want_shut_down,
        offline_log_dirs=offline_log_dirs,
        log_dir_space=log_dir_space,
    )


def alive(broker_id: int, broker_epoch: int) -> admin_pb2.Operation:
    """The heartbeat of a broker that has applied its own registration: it is unfenced."""
    return admin_pb2.Operation(broker_heartbeat=heartbeat(broker_id, broker_epoch, broker_epoch + 1))


class WithoutRecords:
    """A batch whose records the state machine does not see, though the log has them."""

    is_control = True

    def __init__(self, seen: CommittedBatch) -> None:
        self._seen = seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._seen, name)
