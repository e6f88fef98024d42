"""Each check finds what it is there for. The rules of `oracle` and `linearizability` are tested with the simulator."""

from __future__ import annotations

import asyncio

import pytest

from kraftbase.types import Offset
from kraftlog.chaos.availability import Window
from kraftlog.chaos.checks import answers_agree, linearizable, nothing_lost, windows_served
from kraftlog.chaos.committed import CommittedLog
from kraftlog.sim.quorum.registers.history import History, Kind
from kraftlog.sim.quorum.registers.linearizability import CheckResult
from kraftlog.sim.quorum.registers.oracle import CommittedWrite


@pytest.fixture
def history() -> History:
    """Two writes and a read of the second one, one after the other."""
    history = History(writes_tell_found=False)
    for number, offset in ((1, 5), (2, 7)):
        write = history.begin(client_id=1, kind=Kind.WRITE, key="a", value=str(number), invoked_at=10 * number)
        history.acknowledge(write, 10 * number + 5, offset=offset)
    read(history, "2", 30)
    return history


def read(history: History, found: str, invoked_at: int) -> None:
    operation = history.begin(client_id=2, kind=Kind.READ, key="a", invoked_at=invoked_at)
    history.acknowledge(operation, invoked_at + 5, offset=9, found=found)


def log_of(*writes: CommittedWrite) -> CommittedLog:
    async def make() -> CommittedLog:
        log = CommittedLog()
        log.writes = list(writes)
        log.end_offset = Offset(10)
        return log

    return asyncio.run(make())


FIRST, SECOND = CommittedWrite(5, "a", "1"), CommittedWrite(7, "a", "2")


def test_a_history_without_fault(history: History) -> None:
    log = log_of(FIRST, SECOND)
    assert nothing_lost(history.operations, log) == []
    assert answers_agree(history, log) == []
    assert linearizable(history) == ({CheckResult.LINEARIZABLE: 1}, [])


@pytest.mark.parametrize("there", [[FIRST], [FIRST, CommittedWrite(6, "a", "2")], [FIRST, CommittedWrite(7, "b", "2")]])
def test_33_a_write_that_is_not_where_it_was_acknowledged_is_lost(
    history: History, there: list[CommittedWrite]
) -> None:
    log = log_of(*there)
    (story,) = nothing_lost(history.operations, log)
    assert "operation 2 of client 1" in story
    assert answers_agree(history, log)


def test_34_a_read_that_returns_an_old_value_is_found_with_the_log_and_without(history: History) -> None:
    read(history, "1", 40)
    (story,) = answers_agree(history, log_of(FIRST, SECOND))
    assert "operation 4 of client 2" in story
    results, (without_log,) = linearizable(history)
    assert results == {CheckResult.NOT_LINEARIZABLE: 1}
    assert without_log.startswith("the operations on a have no order")


def test_a_window_that_was_not_served_is_told_by_its_time() -> None:
    assert windows_served([Window(100.0, 10)], 90.0) == []
    (story,) = windows_served([Window(100.0, 9), Window(101.0, 10)], 90.0)
    assert "only 9 writes" in story
    assert "from 10.0 s" in story
