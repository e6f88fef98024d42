"""Partitions, brokers and clusters for tests of elections, in one line each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kraftbase.sentinels import NO_LEADER
from kraftpb.v1.metadata_pb2 import FeatureLevelRecord, MetadataRecord, PartitionRecord
from statemachine.words.features import ELIGIBLE_LEADER_REPLICAS, METADATA_VERSION_LATEST
from tests.statemachine.builders import an_id, broker, config, topic
from tests.statemachine.states import Metadata, metadata

TOPIC = "clicks"
NUMBER = 1
"""Of the topic's id."""


def a_partition(
    replicas: Sequence[int] = (1, 2, 3),
    isr: Sequence[int] | None = None,
    leader: int | None = None,
    *,
    partition_id: int = 0,
    number: int = NUMBER,
    elr: Sequence[int] = (),
    last_known: Sequence[int] = (),
    removing: Sequence[int] = (),
    adding: Sequence[int] = (),
    recovery_state: int = 0,
    directories: Sequence[bytes] | None = None,
) -> PartitionRecord:
    """A partition with leader epoch 5 and partition epoch 7, led by the first of the ISR."""
    in_sync = replicas if isr is None else isr
    first = in_sync[0] if in_sync else NO_LEADER
    return PartitionRecord(
        topic_id=an_id(number),
        partition_id=partition_id,
        replicas=replicas,
        isr=in_sync,
        leader=first if leader is None else leader,
        removing_replicas=removing,
        adding_replicas=adding,
        leader_recovery_state=recovery_state,
        leader_epoch=5,
        partition_epoch=7,
        eligible_leader_replicas=elr,
        last_known_elr=last_known,
        directories=[an_id(900 + replica) for replica in replicas] if directories is None else directories,
    )


def leaving(broker_id: int) -> MetadataRecord:
    """A broker in controlled shutdown."""
    record = broker(broker_id)
    record.register_broker.in_controlled_shutdown = True
    return record


def a_cluster(
    *partitions: PartitionRecord,
    brokers: Iterable[int] = (1, 2, 3, 4),
    fenced: Sequence[int] = (),
    shutting_down: Sequence[int] = (),
    elr: bool = True,
    min_isr: int = 1,
    unclean: bool = False,
    version: int = METADATA_VERSION_LATEST,
) -> Metadata:
    """One topic with these partitions, and brokers of the epoch 0."""
    records = [leaving(b) if b in shutting_down else broker(b, fenced=b in fenced) for b in brokers]
    records += [
        MetadataRecord(feature_level=FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS, level=int(elr))),
        topic(TOPIC, NUMBER),
        config(TOPIC, "min.insync.replicas", str(min_isr)),
        config(TOPIC, "unclean.leader.election.enable", "True" if unclean else "false"),
    ]
    records += [MetadataRecord(partition=partition) for partition in partitions]
    return metadata(*records, version=version)


def the_partition(state: Metadata, partition_id: int = 0) -> PartitionRecord:
    """The partition as it is now."""
    partition = state.partition(an_id(NUMBER), partition_id)
    assert partition is not None
    return partition
