"""Outcomes of coroutines, as the shell's callbacks get them."""

from __future__ import annotations

import asyncio

import pytest

from kraftbase.errors import ApiError, ErrorCode, FlushFailed
from kraftlog.broker.awaited_answers import AwaitedAnswers

REFUSED = ApiError(ErrorCode.NOT_CONTROLLER, "refused")


async def outcome_of(value: object) -> object:
    if isinstance(value, BaseException):
        raise value
    return value


async def outcomes(value: object) -> tuple[list[object], list[BaseException]]:
    """What a callback gets, and what is fatal."""
    answers, fatal = list[object](), list[BaseException]()
    awaited = AwaitedAnswers(fatal.append)
    awaited.begin(outcome_of(value), answers.append)
    assert not answers, "nobody is called back within the call"
    while not answers and not fatal:
        await asyncio.sleep(0)
    return answers, fatal


@pytest.mark.parametrize("answer", [7, REFUSED])
async def test_an_answer_and_a_refusal_are_answers(answer: object) -> None:
    assert await outcomes(answer) == ([answer], [])


@pytest.mark.parametrize("bug", [LookupError("a bug"), FlushFailed("input/output error")])
async def test_anything_else_is_fatal(bug: BaseException) -> None:
    assert await outcomes(bug) == ([], [bug])


async def test_so_is_what_a_callback_raises() -> None:
    bug, fatal = LookupError("a bug"), list[BaseException]()

    def fail(answer: object) -> None:
        raise bug

    AwaitedAnswers(fatal.append).begin(outcome_of(7), fail)
    while not fatal:
        await asyncio.sleep(0)
    assert fatal == [bug]


async def test_nobody_is_called_back_when_it_is_closed() -> None:
    answers, fatal = list[object](), list[BaseException]()
    awaited = AwaitedAnswers(fatal.append)
    awaited.begin(asyncio.Event().wait(), answers.append)
    awaited.begin(outcome_of(7), answers.append)
    await awaited.close()
    await asyncio.sleep(0)
    assert (answers, fatal) == ([], [])
