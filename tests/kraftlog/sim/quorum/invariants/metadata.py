"""A cluster with brokers, whose committed log is what a test says."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from kraftbase.types import Epoch, Offset
from kraftlog.sim.quorum.invariants.metadata_log import MetadataMakesSense
from kraftlog.sim.quorum.observation.step import Step
from kraftlog.sim.quorum.users.broker import Broker
from kraftpb.v1.metadata_pb2 import (
    BrokerIds,
    BrokerRegistrationChangeRecord,
    MetadataBatch,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from raft.storage.batch import encode_batch
from tests.kraftlog.sim.quorum.invariants.builders import Cluster

TOPIC_ID = bytes(15) + b"t"
KEY = (TOPIC_ID, 0)


class MetadataCluster(Cluster):
    """Its brokers are 1, 2 and 3; each says of a partition only what a test puts into its `led`."""

    def __init__(self) -> None:
        super().__init__()
        self.stand_ins = [SimpleNamespace(broker_id=broker_id, led={}) for broker_id in (1, 2, 3)]
        self.brokers = cast(list[Broker], self.stand_ins)
        self.log_keeper = MetadataMakesSense(self)

    def records(self, *records: MetadataRecord) -> Step:
        """Commit these, as one batch; the step in which that becomes known."""
        body = MetadataBatch(records=records).SerializeToString()
        base_offset = self.committed_end_offset
        self.committed.append(encode_batch(Offset(base_offset), Epoch(1), body, len(records), 0))
        step = self.step(1)
        self.log_keeper.after_step(step)
        return step

    def with_brokers(self) -> MetadataCluster:
        """All three are registered and unfenced; there is one topic."""
        for broker_id in (1, 2, 3):
            self.records(register(broker_id, self.committed_end_offset))
            self.records(fenced(broker_id, self.committed_end_offset - 1, is_fenced=False))
        self.records(topic())
        return self


def register(broker_id: int, epoch: int, incarnation: bytes = b"i" * 16, *, is_fenced: bool = True) -> MetadataRecord:
    return MetadataRecord(
        register_broker=RegisterBrokerRecord(
            broker_id=broker_id, broker_epoch=epoch, incarnation_id=incarnation, fenced=is_fenced, log_dirs=[b"d" * 16]
        )
    )


def fenced(broker_id: int, epoch: int, *, is_fenced: bool = True) -> MetadataRecord:
    return MetadataRecord(
        broker_registration_change=BrokerRegistrationChangeRecord(
            broker_id=broker_id, broker_epoch=epoch, fenced=is_fenced
        )
    )


def topic(name: str = "clicks", topic_id: bytes = TOPIC_ID) -> MetadataRecord:
    return MetadataRecord(topic=TopicRecord(name=name, topic_id=topic_id))


def partition(
    replicas: Sequence[int] = (1, 2, 3), isr: Sequence[int] | None = None, leader: int = 1, **fields: Any
) -> MetadataRecord:
    return MetadataRecord(
        partition=PartitionRecord(
            topic_id=TOPIC_ID,
            partition_id=0,
            replicas=replicas,
            isr=replicas if isr is None else isr,
            leader=leader,
            directories=[b"d" * 16 for _ in replicas],
            **fields,
        )
    )


def change(*, leader: int | None = None, **lists: Sequence[int]) -> MetadataRecord:
    """A PartitionChange; the lists are named as in the record."""
    return MetadataRecord(
        partition_change=PartitionChangeRecord(
            topic_id=TOPIC_ID,
            partition_id=0,
            leader=leader,
            **{name: BrokerIds(ids=ids) for name, ids in lists.items()},  # type: ignore[arg-type]
        )
    )
