"""Work in pages through the controller: which job is next, what is answered, and what happens when it fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Epoch
from kraftlog.controller.controller_config import ControllerConfig
from kraftlog.controller.paged_writes import PAGES_IN_FLIGHT_MAX, REFUSED_PAUSE_MS
from kraftpb.v1 import admin_pb2
from kraftpb.v1.metadata_pb2 import MetadataRecord, PartitionRecord
from raft.core.types import LeaderAndEpoch
from statemachine.words.features import METADATA_VERSION
from tests.kraftlog.controller.lives import (
    appended_records,
    beat,
    brokers,
    fence,
    pages_held,
    partitions,
    quiet,
    with_topic,
)
from tests.statemachine.builders import an_id, topic
from tests.statemachine.conftest import Bench, memory_bench
from tests.statemachine.hand_time import HandTime
from tests.statemachine.waiting import turns, until

INTERVAL_SECONDS = 60


def elect_everywhere(
    kind: admin_pb2.ElectLeadersRequest.ElectionType.ValueType = admin_pb2.ElectLeadersRequest.PREFERRED,
) -> admin_pb2.Operation:
    return admin_pb2.Operation(elect_leaders=admin_pb2.ElectLeadersRequest(election_type=kind))


def downgrade(level: int, *, validate_only: bool = False) -> admin_pb2.Operation:
    given = admin_pb2.FeatureUpdate(
        name=METADATA_VERSION, level=level, upgrade_type=admin_pb2.FeatureUpdate.SAFE_DOWNGRADE
    )
    elr = admin_pb2.FeatureUpdate(
        name="eligible.leader.replicas.version", level=0, upgrade_type=admin_pb2.FeatureUpdate.SAFE_DOWNGRADE
    )
    request = admin_pb2.UpdateFeaturesRequest(updates=[given, elr], validate_only=validate_only)
    return admin_pb2.Operation(update_features=request)


async def with_many_off_preferred(bench: Bench, count: int = 7) -> None:
    """Broker 1 is the first replica of all partitions, and in sync again; broker 2 leads them."""
    await with_topic(bench, {partition_id: [1, 2] for partition_id in range(count)})
    changed = []
    for partition in partitions(bench):
        copy = PartitionRecord()
        copy.CopyFrom(partition)
        copy.leader = 2
        changed.append(MetadataRecord(partition=copy))
    bench.controller.append(changed)
    bench.controller.schedule()
    await quiet(bench)


# --- elections everywhere ---------------------------------------------------------------------------------------------


async def test_ct12_elections_everywhere_are_appended_in_pages_and_answered_together(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraftlog.controller.rules.pages.PAGE_PARTITIONS", 3)
    await with_many_off_preferred(bench)
    batches = len(bench.log.batches)
    result = await bench.done(elect_everywhere())
    assert [answer.partition_id for answer in result.elect_leaders.partitions] == list(range(7))
    assert [partition.leader for partition in partitions(bench)] == [1] * 7
    assert len(bench.log.batches) - batches == 3
    assert result.end_offset == bench.log.next_append_offset


async def test_elections_that_are_needed_nowhere_write_nothing_and_say_so(bench: Bench) -> None:
    await with_topic(bench, {0: [1, 2]})
    result = await bench.done(elect_everywhere())
    assert (list(result.elect_leaders.partitions), result.end_offset) == ([], -1)
    assert result.WhichOneof("result") == "elect_leaders"


async def test_a_page_that_the_log_refuses_is_tried_again_and_answered_once(database: Path) -> None:
    time = HandTime()
    async with memory_bench(database, runtime=time) as bench:
        bench.log.lead()
        await bench.lead()
        await with_many_off_preferred(bench, 2)
        bench.log.refusal = ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too much is pending")
        results = await bench.submit(elect_everywhere())
        assert bench.controller.has_pages
        assert [partition.leader for partition in partitions(bench)] == [2, 2]
        time.advance(REFUSED_PAUSE_MS)
        await bench.answered(results)
        assert [answer.partition_id for answer in results[0].elect_leaders.partitions] == [0, 1]
        assert [partition.leader for partition in partitions(bench)] == [1, 1]


async def test_pages_wait_while_as_many_as_may_be_are_on_their_way(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a leader with much to append would not hear from its followers, and lose its leadership because of it."""
    monkeypatch.setattr("kraftlog.controller.rules.pages.PAGE_PARTITIONS", 1)
    await with_many_off_preferred(bench, PAGES_IN_FLIGHT_MAX + 2)
    bench.log.auto_commit = False
    committed = len(bench.log.batches)
    results = await bench.submit(elect_everywhere())
    await turns(100)
    assert len(bench.log.batches) - committed == PAGES_IN_FLIGHT_MAX
    for pages in (PAGES_IN_FLIGHT_MAX + 1, PAGES_IN_FLIGHT_MAX + 2, PAGES_IN_FLIGHT_MAX + 2):
        bench.log.commit(1)
        await turns(100)
        assert len(bench.log.batches) - committed == pages
    bench.log.commit()
    await bench.answered(results)
    assert [partition.leader for partition in partitions(bench)] == [1] * (PAGES_IN_FLIGHT_MAX + 2)


async def test_another_leadership_has_pages_of_its_own_on_their_way(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraftlog.controller.rules.pages.PAGE_PARTITIONS", 1)
    await with_many_off_preferred(bench, PAGES_IN_FLIGHT_MAX + 2)
    bench.log.auto_commit = False
    await bench.submit(elect_everywhere())
    await turns(100)
    bench.log.auto_commit = True
    bench.log.lose_leadership()
    await until(lambda: not bench.controller.is_active)
    bench.log.lead()
    await bench.lead()
    await bench.done(elect_everywhere())
    assert [partition.leader for partition in partitions(bench)] == [1] * (PAGES_IN_FLIGHT_MAX + 2)


# --- downgrades -------------------------------------------------------------------------------------------------------


async def without_directories(bench: Bench, count: int) -> None:
    """Partitions that are in no directories, and no broker: as of a cluster that was upgraded just now."""
    records = [topic("clicks", 1)]
    records += [
        MetadataRecord(
            partition=PartitionRecord(topic_id=an_id(1), partition_id=number, replicas=[1], isr=[1], leader=1)
        )
        for number in range(count)
    ]
    bench.controller.append(records)
    bench.controller.schedule()
    await quiet(bench)


def in_directory(number: int) -> MetadataRecord:
    return MetadataRecord(
        partition=PartitionRecord(
            topic_id=an_id(1), partition_id=number, replicas=[1], isr=[1], leader=1, directories=[an_id(901)]
        )
    )


async def test_ct61_a_downgrade_looks_at_all_partitions_page_by_page(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statemachine.tables.table.SCANNED_ROWS", 3)
    await without_directories(bench, 10)
    with pages_held(monkeypatch):
        results = await bench.submit(downgrade(16))
        for _ in range(3):
            bench.controller._paged_writes.next_page()
        assert bench.controller.has_pages
        assert results == []
    await bench.answered(results)
    assert [answer.error_code for answer in results[0].update_features.features] == [0, 0]
    assert results[0].end_offset == bench.log.next_append_offset
    assert bench.controller.state.metadata_version == 16


@pytest.mark.parametrize("validate_only", [False, True])
async def test_ct61_a_downgrade_finds_the_one_partition_that_would_lose_its_directory(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, validate_only: bool
) -> None:
    monkeypatch.setattr("statemachine.tables.table.SCANNED_ROWS", 3)
    await without_directories(bench, 10)
    bench.controller.append([in_directory(8)])
    bench.controller.schedule()
    result = await bench.done(downgrade(16, validate_only=validate_only))
    assert [answer.error_code for answer in result.update_features.features] == [
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_UPDATE_VERSION,
    ]
    assert "partitions are in log directories" in result.update_features.features[0].error_message
    assert result.end_offset == -1
    assert bench.controller.state.metadata_version == 30


async def test_ct61_a_partition_that_comes_into_a_directory_behind_the_pages_counts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statemachine.tables.table.SCANNED_ROWS", 3)
    await without_directories(bench, 10)
    with pages_held(monkeypatch):
        results = await bench.submit(downgrade(16))
        for _ in range(2):
            bench.controller._paged_writes.next_page()
        bench.controller.append([in_directory(0)])
    await bench.answered(results)
    assert "partitions are in log directories" in results[0].update_features.features[0].error_message
    assert bench.controller.state.metadata_version == 30


# --- which job is next ------------------------------------------------------------------------------------------------


async def test_partitions_that_stand_still_do_not_wait_for_a_look_at_all_of_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraftlog.controller.rules.pages.PAGE_PARTITIONS", 1)
    await with_many_off_preferred(bench)
    since = bench.log.next_append_offset
    with pages_held(monkeypatch):
        await bench.submit(elect_everywhere())
        bench.controller._paged_writes.next_page()
        await bench.submit(fence(2))
    await quiet(bench)
    changes = [record.partition_change for record in appended_records(bench, since=since)]
    moved = [change.partition_id for change in changes if change.HasField("leader")]
    left = [change.partition_id for change in changes if change.HasField("isr")]
    assert (moved, left) == (list(range(7)), [1, 2, 3, 4, 5, 6, 0])
    assert [partition.leader for partition in partitions(bench)] == [1] * 7


async def test_ct19_a_pass_over_all_partitions_does_not_begin_before_the_last_one_has_ended(database: Path) -> None:
    time = HandTime()
    config = ControllerConfig(
        leader_imbalance_check_interval_seconds=INTERVAL_SECONDS,
        unclean_election_check_interval_ms=INTERVAL_SECONDS * 1_000,
        broker_session_timeout_ms=10**9,
    )
    async with memory_bench(database, config=config, runtime=time) as bench:
        bench.log.lead()
        await bench.lead()
        await with_many_off_preferred(bench, 2)
        with pytest.MonkeyPatch.context() as patch, pages_held(patch):
            for _ in range(3):
                time.advance(INTERVAL_SECONDS * 1_000)
            assert len(bench.controller._paged_writes._background) == 2  # the balance and the unclean elections
        await quiet(bench)
        assert [partition.leader for partition in partitions(bench)] == [1, 1]
        time.advance(INTERVAL_SECONDS * 1_000)
        await quiet(bench)
        assert not bench.controller._periodic_tasks._under_way


async def test_ct19_one_pass_brings_back_all_leaders_page_by_page(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraftlog.controller.rules.pages.PAGE_PARTITIONS", 1)
    monkeypatch.setattr("kraftlog.controller.periodic_tasks.PAGE_PARTITIONS", 1)
    time = HandTime()
    config = ControllerConfig(leader_imbalance_check_interval_seconds=INTERVAL_SECONDS, broker_session_timeout_ms=10**9)
    async with memory_bench(database, config=config, runtime=time) as bench:
        bench.log.lead()
        await bench.lead()
        await with_many_off_preferred(bench, 5)
        bench.log.refusal = ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too much is pending")
        time.advance(INTERVAL_SECONDS * 1_000)
        assert bench.log.refusal is None
        time.advance(REFUSED_PAUSE_MS)
        await quiet(bench)
        assert [partition.leader for partition in partitions(bench)] == [1] * 5


# --- what cannot be applied -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("why", ["passing_reason", "fence"])
async def test_ct18_no_page_is_appended_while_this_node_cannot_apply(
    database: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """New operations are refused then; those in progress would continue to fill memory and disk."""
    monkeypatch.setattr("kraftlog.controller.rules.pages.PAGE_PARTITIONS", 1)
    time = HandTime()
    async with memory_bench(database, runtime=time) as bench:
        bench.log.lead()
        await bench.lead()
        await with_many_off_preferred(bench)
        with monkeypatch.context() as patch:
            with pages_held(patch):
                results = await bench.submit(elect_everywhere())
                bench.controller._paged_writes.next_page()
                await until(lambda: bench.store.applied_end_offset == bench.log.next_append_offset)
            patch.setattr(bench.machine._obstacle, why, "as the test says")
            appended = bench.log.next_append_offset
            for _ in range(3):
                time.advance(REFUSED_PAUSE_MS)
                await turns(20)
            assert (bench.log.next_append_offset, bench.controller.has_pages, results) == (appended, True, [])
        time.advance(REFUSED_PAUSE_MS)
        await bench.answered(results)
        assert [partition.leader for partition in partitions(bench)] == [1] * 7


# --- what fails -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["decision", "append"])
async def test_pages_that_meet_a_bug_are_left_to_another_controller(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    await with_topic(bench, {0: [1, 2]})
    with monkeypatch.context() as patch:
        if where == "decision":
            patch.setattr("kraftlog.controller.broker_control.partitions_without", lambda *given, **named: 1 / 0)
            results = await bench.submit(fence(1))
        else:
            with pages_held(patch):
                results = await bench.submit(fence(1))
                bench.log.refusal = ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, "as the test says")
            await bench.answered(results)
        assert results[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert results[0].end_offset > 0  # the fence itself was handed to the log
        await until(lambda: not bench.controller.is_active)
        assert bench.log.leader_and_epoch.leader_id is None
    bench.log.lead()
    await bench.lead()
    await bench.run(fence(1))  # its record may or may not have been kept
    await quiet(bench)
    assert partitions(bench)[0].leader == 2
    await bench.done(beat(bench, 1))
    assert not brokers(bench)[1].fenced


async def test_ct15_nothing_is_under_way_in_a_controller_that_is_not_active(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_topic(bench, {0: [1, 3], 1: [2, 3]})
    controller = bench.controller
    with pages_held(monkeypatch):
        for broker_id in (1, 2):
            await bench.submit(fence(broker_id))
        bench.log.lose_leadership(keep=True)
        await until(lambda: not controller.is_active)
        assert not controller.has_pages
        # It leads again, and has lost that before the state machine is notified.
        present = bench.log.leader_and_epoch
        controller.leader_changed(LeaderAndEpoch(bench.log.node_key.node_id, Epoch(present.epoch + 1)))
        assert controller.has_pages
        controller.leader_changed(present)
    assert not controller.has_pages
    assert controller._periodic_tasks._timers == {}
    soon: list[object] = []
    monkeypatch.setattr(type(controller._runtime), "call_soon", lambda self, callback: soon.append(callback))
    controller._paged_writes.run()
    assert soon == []
