"""A state machine that differs from the quorum's stops, refuses every request, and is rebuilt at the next start."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.runtime import awaited
from kraftbase.types import Epoch, Offset
from kraftlog.admin.server.service import AdminServicer
from kraftpb.v1 import admin_pb2
from raft.core.types import LeaderAndEpoch, StateDigest
from statemachine.store.metadata_tables import StoreUnavailable
from statemachine.store.store import MetadataStore
from tests.statemachine.apply.test_machine import Told, deliver, running
from tests.statemachine.builders import CLUSTER_ID, batch, create, no_op, topic
from tests.statemachine.conftest import Bench
from tests.statemachine.machines import wait_applied
from tests.statemachine.waiting import turns, until

EXPECTED = StateDigest(Offset(1_000), bytes(16))
OWN = StateDigest(Offset(1_000), bytes([7]) * 16)
REASON = "differs from the quorum's at offset 1000; its database is rebuilt from a snapshot and the log"
NO_LEADER = LeaderAndEpoch(None, Epoch(1))


async def test_a_fenced_machine_applies_nothing_more_and_tells_nobody(store: MetadataStore) -> None:
    async with running(store) as machine:
        await deliver(machine, batch(0, [no_op()]))
        told = Told(store)
        machine.subscribe(told)
        machine.fence(EXPECTED, OWN)
        await deliver(machine, batch(1, [topic("a", 1)]))
        assert store.applied_end_offset == machine.applied_end_offset == 1
        assert told.offsets == []


async def test_a_fence_is_raised_once(store: MetadataStore, capsys: pytest.CaptureFixture[str]) -> None:
    async with running(store) as machine:
        machine.fence(EXPECTED, OWN)
        machine.fence(StateDigest(Offset(2_000), bytes(16)), OWN)
        with pytest.raises(ApiError, match="offset 1000"):
            machine.refuse_if_fenced()
    said = capsys.readouterr().out
    assert said.count(REASON) == 1
    assert OWN.digest.hex() in said


async def test_who_waits_when_the_fence_comes_and_who_asks_after_it_is_refused(store: MetadataStore) -> None:
    async with running(store) as machine:
        waiting = asyncio.create_task(wait_applied(machine, Offset(5), 20_000))
        await asyncio.sleep(0)
        machine.fence(EXPECTED, OWN)
        for asked in (waiting, wait_applied(machine, Offset(0), 0)):
            with pytest.raises(ApiError, match=REASON) as refused:
                await asked
            assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


async def test_reads_and_operations_of_a_fenced_node_are_refused(bench: Bench) -> None:
    service = AdminServicer(bench.controller, bench.store, bench.machine)
    assert (await service.ListTopics(admin_pb2.ListTopicsRequest(), None)).error_code == 0  # type: ignore[arg-type]
    bench.machine.fence(EXPECTED, OWN)
    end_offset = bench.log.log_end_offset
    answers = [
        await service.ListTopics(admin_pb2.ListTopicsRequest(), None),  # type: ignore[arg-type]
        await service.DescribeTopics(admin_pb2.DescribeTopicsRequest(), None),  # type: ignore[arg-type]
        await bench.run(create("a")),
    ]
    for answer in answers:
        assert (answer.error_code, REASON in answer.error_message) == (ErrorCode.KAFKA_STORAGE_ERROR, True)  # type: ignore[attr-defined]
    assert bench.log.log_end_offset == end_offset


async def test_a_read_that_waits_for_its_turn_when_the_fence_comes_is_refused(bench: Bench) -> None:
    service = AdminServicer(bench.controller, bench.store, bench.machine)
    goes_on = threading.Event()
    slow = asyncio.create_task(bench.store.query(lambda connection: goes_on.wait(20)))
    read = asyncio.create_task(service.ListTopics(admin_pb2.ListTopicsRequest(), None))  # type: ignore[arg-type]
    await turns()
    bench.machine.fence(EXPECTED, OWN)
    goes_on.set()
    assert await slow
    assert (await read).error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_an_operation_that_is_committed_and_not_applied_is_answered_with_the_reason(held: Bench) -> None:
    operation = create("a")
    operation.timeout_ms = 200
    results = await held.submit(operation)
    held.machine.fence(EXPECTED, OWN)
    held.log.commit()
    await held.answered(results)
    assert results[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "it is committed, but not applied here yet" in results[0].error_message
    assert REASON in results[0].error_message


async def test_the_next_start_sets_the_database_aside(database: Path) -> None:
    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        async with running(store) as machine:
            await deliver(machine, batch(0, [no_op()]))
            machine.fence(EXPECTED, OWN)
    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        assert store.applied_end_offset == 0


async def test_a_database_that_cannot_be_marked_stays_fenced_and_says_what_to_do(
    store: MetadataStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(reason: str) -> None:
        raise StoreUnavailable(f"no room to say that {reason}")

    monkeypatch.setattr(store, "mark_diverged", full)
    async with running(store) as machine:
        machine.fence(EXPECTED, OWN)
    assert "move it away before the node is started again" in capsys.readouterr().out


async def test_a_machine_that_waits_for_room_stops_waiting_when_it_is_fenced(
    store: MetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise StoreUnavailable("no room")

    monkeypatch.setattr(store, "commit", full)
    monkeypatch.setattr("statemachine.apply.run_writer.UNAVAILABLE_PAUSE_MS", 1)
    async with running(store) as machine:
        delivering = asyncio.create_task(deliver(machine, batch(0, [no_op()])))
        await until(lambda: machine.unavailable_reason is not None)
        machine.fence(EXPECTED, OWN)
        await delivering


async def test_state_digests_are_reported_as_they_come_and_the_last_one_after_a_restart(database: Path) -> None:
    async def reports(store: MetadataStore, *base_offsets: int) -> list[StateDigest]:
        reported: list[StateDigest] = []
        async with running(store) as machine:
            machine.set_state_digest_callback(reported.append)
            assert reported == []  # the node does not run yet
            await awaited(partial(machine.handle_leader_change, NO_LEADER))
            for base_offset in base_offsets:
                await deliver(machine, batch(base_offset, [no_op()] * 600))
        return reported

    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        first = await reports(store, 0, 600, 1_200, 1_800)
    with closing(MetadataStore.open(database, CLUSTER_ID)) as store:
        second = await reports(store, 2_400)
    assert [digest.end_offset for digest in first] == [1_200, 2_400]
    assert [digest.end_offset for digest in second] == [2_400, 3_000]
    assert second[0] == first[-1]
