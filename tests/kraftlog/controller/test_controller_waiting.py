"""The controller when answers cannot come: the store cannot be written, or an append failed."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.types import Offset
from tests.statemachine.builders import creatable, create, delete
from tests.statemachine.conftest import Bench, errors
from tests.statemachine.machines import wait_applied
from tests.statemachine.waiting import until


@asynccontextmanager
async def locked(held: Bench, database: Path) -> AsyncIterator[None]:
    """Meanwhile the records that were appended are committed, and a lock keeps them from being applied."""
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        held.log.commit()
        await until(lambda: held.machine.unavailable_reason is not None)
        yield
        other.execute("ROLLBACK")


LARGE = 2_000
"""Partitions of a topic that is not applied on the loop, so that no operation is answered before it is."""


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statemachine.apply.run_writer.UNAVAILABLE_PAUSE_MS", 1)


async def test_while_the_store_cannot_be_written_operations_are_refused_with_the_reason(
    held: Bench, database: Path
) -> None:
    pending = await held.submit(create("before"))
    async with locked(held, database):
        end = held.log.log_end_offset
        refused = await held.submit(create("meanwhile"), delete("missing"))
        assert [(result.error_code, result.end_offset) for result in refused] == [
            (ErrorCode.KAFKA_STORAGE_ERROR, -1),
            (ErrorCode.KAFKA_STORAGE_ERROR, -1),
        ]
        assert all("locked" in result.error_message for result in refused)
        assert held.log.next_append_offset == end
        assert [errors(result) for result in pending] == [[]]  # it is committed, whatever happens to this node
        with pytest.raises(ApiError, match="cannot apply what it has acknowledged"):
            await wait_applied(held.machine, Offset(0), 0)
    await wait_applied(held.machine, end, 20_000)
    held.log.auto_commit = True
    await held.done(create("after"))


async def test_an_operation_that_is_committed_but_not_applied_in_time_says_so(held: Bench, database: Path) -> None:
    results = await held.submit(create(creatable("late", partitions=LARGE)))
    async with locked(held, database):
        held.controller._pending._for_state_machine[0].deadline_ms = 0.0
        held.controller._pending._set_timer(0.0)
        await until(lambda: bool(results))
        assert results[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert results[0].end_offset == held.log.log_end_offset
        assert "it is committed, but not applied here yet" in results[0].error_message
        assert "locked" in results[0].error_message


async def test_what_is_committed_is_answered_when_the_state_machine_has_it_in_hand(held: Bench) -> None:
    results = await held.submit(create("a"))
    append, pending = held.controller.last_append, held.controller._pending
    assert append is not None
    pending.append_settled(append, None)
    assert not pending.in_hand(Offset(append.end_offset - 1))
    assert results == []
    assert pending.in_hand(append.end_offset)
    assert [errors(result) for result in results] == [[]]
    assert not pending.in_hand(append.end_offset)
    held.log._uncommitted.clear()  # the log does not settle it again


async def test_an_answer_that_rests_on_an_append_that_failed_comes_at_once(held: Bench) -> None:
    results = await held.submit(create("a"))
    failed = held.controller.last_append
    assert failed is not None
    held.controller._pending.append_settled(failed, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "as the test says"))
    assert [result.error_code for result in results] == [ErrorCode.NOT_CONTROLLER]
    assert [(result.error_code, result.end_offset) for result in await held.submit(delete("missing"))] == [
        (ErrorCode.NOT_CONTROLLER, -1)
    ]
