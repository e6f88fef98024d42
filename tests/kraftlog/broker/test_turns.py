"""Work in portions: one portion in a turn, a connection's requests in order, and others in between."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kraftlog.broker.requests import Client
from kraftlog.broker.turns import Turns
from tests.kraftlog.broker.log.builders import StepRuntime


def work(name: str, portions: int, done: list[str]) -> Iterator[None]:
    for portion in range(portions):
        done.append(f"{name}{portion}")
        if portion < portions - 1:
            yield


def client() -> Client:
    return Client("127.0.0.1", "PLAINTEXT")  # all are equal: connections are told apart by the object


def test_work_of_one_portion_is_done_at_once() -> None:
    runtime, done = StepRuntime(), list[str]()
    turns = Turns(runtime)
    turns.begin(client(), work("a", 1, done))
    assert done == ["a0"]
    assert runtime.soon == []


def test_a_turn_has_one_portion_of_one_connection() -> None:
    runtime, done = StepRuntime(), list[str]()
    turns, first, second = Turns(runtime), client(), client()
    turns.begin(first, work("a", 4, done))
    turns.begin(second, work("b", 2, done))
    turns.begin(client(), work("c", 1, done))
    assert done == ["a0", "b0", "c0"]  # what is short waits for nobody
    found = []
    while runtime.soon:
        assert len(runtime.soon) == 1
        runtime.soon.pop()()
        found.append(done[-1])
    assert found == ["a1", "b1", "a2", "a3"]
    assert turns.portions == 4


def test_what_the_same_connection_asks_meanwhile_waits() -> None:
    runtime, done = StepRuntime(), list[str]()
    turns, one = Turns(runtime), client()
    turns.begin(one, work("a", 2, done))
    turns.begin(one, work("b", 2, done))
    turns.begin(one, work("c", 1, done))
    assert done == ["a0"]
    runtime.run()
    assert done == ["a0", "a1", "b0", "b1", "c0"]
    turns.begin(one, work("d", 1, done))
    assert done[-1] == "d0"


def test_work_that_fails_keeps_nobody_waiting() -> None:
    def failing() -> Iterator[None]:
        yield
        raise ValueError("it does not go on")

    runtime, done = StepRuntime(), list[str]()
    turns, one = Turns(runtime), client()
    turns.begin(one, failing())
    turns.begin(one, work("b", 1, done))
    with pytest.raises(ValueError, match="does not go on"):
        runtime.run()
    runtime.run()
    assert done == ["b0"]
