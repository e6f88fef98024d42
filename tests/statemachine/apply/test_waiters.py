"""Waiters for offsets: called back when theirs is reached, however many others come and are cancelled."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftbase.errors import ApiError, ErrorCode
from kraftbase.runtime import AsyncioRuntime, awaited
from kraftbase.types import Offset
from statemachine.apply.waiters import GONE_MIN, OffsetWaiters
from statemachine.store.store import MetadataStore
from tests.statemachine.counted import Comparisons
from tests.statemachine.machines import machine_on, wait_applied

MANY = 1_000
COMPARISONS_EACH = 200
"""Several for each of the few steps in a heap. To search all waiters once for each is a thousand."""

LONG = 20.0


async def wait(waiters: OffsetWaiters, end_offset: int, timeout_ms: float = LONG * 1000) -> None:
    await awaited(partial(waiters.wait, Offset(end_offset), timeout_ms))


async def test_who_gives_up_does_not_look_through_all_who_wait(store: MetadataStore) -> None:
    machine, comparisons = machine_on(store), Comparisons()
    waits = (wait_applied(machine, Offset(comparisons.number(MANY - number)), 0) for number in range(MANY))
    outcomes = await asyncio.gather(*waits, return_exceptions=True)
    assert {isinstance(one, ApiError) and one.code for one in outcomes} == {ErrorCode.REQUEST_TIMED_OUT}
    assert 0 < comparisons.count <= MANY * COMPARISONS_EACH
    await awaited(machine.begin_shutdown)


async def test_those_who_gave_up_do_not_pile_up_behind_one_who_waits() -> None:
    waiters = OffsetWaiters(AsyncioRuntime())
    first = asyncio.create_task(wait(waiters, 1))
    for _ in range(3 * GONE_MIN):
        with pytest.raises(TimeoutError):
            await wait(waiters, 2, 0)
    assert len(waiters) == 1
    assert len(waiters._places) <= GONE_MIN + 2
    waiters.reach(Offset(1))
    await first
    assert len(waiters) == 0


async def test_one_whose_task_was_cancelled_and_who_has_not_noticed_is_passed_over() -> None:
    waiters = OffsetWaiters(AsyncioRuntime())
    for end in (lambda: waiters.reach(Offset(1)), lambda: waiters.fail(ValueError("it is over"))):
        waiting = [asyncio.create_task(wait(waiters, 1)) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        end()
        cancelled, other = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(cancelled, asyncio.CancelledError)
        assert other is None or str(other) == "it is over"
        assert len(waiters) == 0


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.integers(1, 9)),
        st.tuples(st.just("give up"), st.integers(0, 9)),
        st.tuples(st.just("reach"), st.integers(0, 9)),
    ),
    max_size=30,
)


@given(STEPS)
def test_all_are_woken_whose_offset_is_reached_and_no_others(steps: list[tuple[str, int]]) -> None:
    asyncio.run(execute(steps))


async def execute(steps: list[tuple[str, int]]) -> None:
    waiters, waiting = OffsetWaiters(AsyncioRuntime()), list[tuple[int, asyncio.Task[None]]]()
    for step, number in steps:
        if step == "come":
            waiting.append((number, asyncio.create_task(wait(waiters, number))))
        elif step == "give up" and waiting:
            _, task = waiting.pop(number % len(waiting))
            task.cancel()
            await asyncio.wait([task])
        elif step == "reach":
            waiters.reach(Offset(number))
            woken = [task for offset, task in waiting if offset <= number]
            await asyncio.wait_for(asyncio.gather(*woken), LONG)
            waiting = [(offset, task) for offset, task in waiting if offset > number]
        await asyncio.sleep(0)
        assert len(waiters) == len(waiting)
        assert not any(task.done() for _, task in waiting)
    waiters.fail(ValueError("it is over"))
    outcomes = await asyncio.gather(*(task for _, task in waiting), return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["it is over"] * len(waiting)
    assert len(waiters) == 0
