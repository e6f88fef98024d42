"""How brokers and their partitions change, for tests that go through the controller."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from kraftpb.v1 import admin_pb2
from kraftpb.v1.metadata_pb2 import MetadataBatch, MetadataRecord, PartitionRecord, RegisterBrokerRecord
from raft.listener import CommittedBatch
from statemachine.tables.cluster_tables import BROKERS
from statemachine.tables.topic_tables import PARTITIONS
from tests.statemachine.builders import BROKER, alter, alteration, assigned, create, heartbeat
from tests.statemachine.conftest import Bench
from tests.statemachine.waiting import until


def brokers(bench: Bench) -> dict[int, RegisterBrokerRecord]:
    """The registrations that are committed."""
    return {record.broker_id: record for _, record in BROKERS.find(bench.store.reader)}


def partitions(bench: Bench) -> list[PartitionRecord]:
    """The partitions that are committed."""
    return [record for _, record in PARTITIONS.find(bench.store.reader)]


def beat(
    bench: Bench,
    broker_id: int,
    *,
    shut_down: bool = False,
    fence: bool = False,
    offline: Sequence[bytes] = (),
    space: Sequence[admin_pb2.LogDirSpace] = (),
    metadata_offset: int | None = None,
) -> admin_pb2.Operation:
    """A heartbeat of the latest incarnation, which has applied everything unless `metadata_offset` is given."""
    broker = bench.controller.state.broker(broker_id) or brokers(bench)[broker_id]
    applied = bench.log.next_append_offset if metadata_offset is None else metadata_offset
    return admin_pb2.Operation(
        broker_heartbeat=heartbeat(
            broker_id,
            broker.broker_epoch,
            applied,
            want_shut_down=shut_down,
            want_fence=fence,
            offline_log_dirs=offline,
            log_dir_space=space,
        )
    )


def fence(broker_id: int) -> admin_pb2.Operation:
    """An operator fences a broker."""
    return admin_pb2.Operation(fence_broker=admin_pb2.FenceBrokerRequest(broker_id=broker_id))


def unregister(broker_id: int) -> admin_pb2.Operation:
    return admin_pb2.Operation(unregister_broker=admin_pb2.UnregisterBrokerRequest(broker_id=broker_id))


async def with_topic(bench: Bench, replicas: dict[int, list[int]], *, min_isr: int = 1) -> None:
    """The brokers of a topic, unfenced, and the topic."""
    await bench.with_brokers(*sorted({broker_id for given in replicas.values() for broker_id in given}))
    if min_isr != 1:
        await bench.done(alter(alteration("", "min.insync.replicas", str(min_isr), BROKER)))
    await bench.done(create(assigned("clicks", replicas)))


def appended_records(bench: Bench, *, since: int = 0) -> list[MetadataRecord]:
    """The records that were appended at `since` or later, committed or not."""
    batches = [CommittedBatch(batch) for batch in bench.log.batches if batch.base_offset >= since]
    bodies = [batch.body for batch in batches if not batch.is_control]
    return [record for body in bodies for record in MetadataBatch.FromString(body).records]


async def quiet(bench: Bench) -> None:
    """Wait until no pages are left and everything is committed and applied."""
    await until(
        lambda: not bench.controller.has_pages and bench.store.applied_end_offset == bench.log.next_append_offset
    )


@contextmanager
def pages_held(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Meanwhile no page is appended: all work in pages waits."""
    with monkeypatch.context() as patch:
        patch.setattr("kraftlog.controller.paged_writes.SLICE_MS", 0.0)
        yield
