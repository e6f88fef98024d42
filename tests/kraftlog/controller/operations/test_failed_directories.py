"""Log directories that fail, and how heartbeats report them through the controller (KIP-858, CT-27, CT-35)."""

from __future__ import annotations

import pytest

from kraftpb.v1 import admin_pb2
from kraftpb.v1.metadata_pb2 import MetadataRecord, RegisterBrokerRecord
from tests.kraftlog.controller.lives import beat, brokers, fence, pages_held, partitions, quiet
from tests.statemachine.builders import an_id, assigned, create, register
from tests.statemachine.conftest import Bench

FIRST, SECOND = an_id(901), an_id(951)


@pytest.fixture
def directories() -> list[int]:
    """Those of broker 1, as `register` takes them."""
    return [901, 951]


async def with_two_directories(bench: Bench, directories: list[int], *, fails: bytes) -> None:
    """Broker 1 leads a partition, which is in the directory that `fails`; broker 2 follows."""
    await bench.done(register(1, log_dirs=directories))
    await bench.done(beat(bench, 1))
    await bench.with_brokers(2)
    await bench.done(create(assigned("clicks", {0: [1, 2]})))
    (partition,) = partitions(bench)
    assignment = admin_pb2.DirectoryAssignment(topic_id=partition.topic_id, partition_id=0, directory_id=fails)
    request = admin_pb2.AssignReplicasToDirsRequest(
        broker_id=1, broker_epoch=brokers(bench)[1].broker_epoch, assignments=[assignment]
    )
    await bench.done(admin_pb2.Operation(assign_replicas_to_dirs=request))
    assert partitions(bench)[0].leader == 1


async def test_a_failed_directory_leaves_the_registration_and_its_replicas_lead_nothing(
    bench: Bench, directories: list[int]
) -> None:
    await with_two_directories(bench, directories, fails=SECOND)
    await bench.done(beat(bench, 1, offline=[SECOND]))
    await quiet(bench)
    assert list(brokers(bench)[1].log_dirs) == [FIRST]
    assert (partitions(bench)[0].leader, list(partitions(bench)[0].isr)) == (2, [2])
    await bench.done(fence(2))
    assert partitions(bench)[0].leader == -1  # and not broker 1, though it was in sync once


async def test_a_failed_directory_that_is_named_again_takes_no_work(
    bench: Bench, directories: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_two_directories(bench, directories, fails=SECOND)
    await bench.done(beat(bench, 1, offline=[SECOND]))
    await quiet(bench)
    end_offset = bench.log.next_append_offset
    with pages_held(monkeypatch):
        await bench.submit(beat(bench, 1, offline=[SECOND]))
        assert not bench.controller.has_pages
    assert bench.log.next_append_offset == end_offset


async def test_a_broker_all_of_whose_directories_have_failed_is_fenced_and_stays_so(
    bench: Bench, directories: list[int]
) -> None:
    await with_two_directories(bench, directories, fails=SECOND)
    for _ in range(3):
        await bench.done(beat(bench, 1, offline=[FIRST, SECOND]))
        await quiet(bench)
        assert brokers(bench)[1].fenced
    assert partitions(bench)[0].leader == 2


async def test_a_directory_that_is_registered_again_fails_again(bench: Bench, directories: list[int]) -> None:
    """The same incarnation may register once more, with a directory that this controller knows as failed."""
    await with_two_directories(bench, directories, fails=SECOND)
    await bench.done(beat(bench, 1, offline=[SECOND]))
    await quiet(bench)
    await bench.done(register(1, log_dirs=directories))
    assert list(brokers(bench)[1].log_dirs) == [FIRST, SECOND]
    await bench.done(beat(bench, 1, offline=[SECOND]))
    await quiet(bench)
    assert list(brokers(bench)[1].log_dirs) == [FIRST]


async def test_a_broker_that_has_never_said_which_directories_it_has_is_not_fenced_for_one(bench: Bench) -> None:
    """It registered before metadata.version 17: which of its replicas are in the failed one is not known."""
    await bench.with_brokers(2)
    old = RegisterBrokerRecord()
    old.CopyFrom(brokers(bench)[2])
    del old.log_dirs[:]
    bench.controller.append([MetadataRecord(register_broker=old)])
    bench.controller.schedule()
    await quiet(bench)
    answer = (await bench.done(beat(bench, 2, offline=[FIRST]))).broker_heartbeat
    await quiet(bench)
    assert not answer.is_fenced
    assert not brokers(bench)[2].fenced
