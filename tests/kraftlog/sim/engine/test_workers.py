"""Runs in processes of their own: as many as there are processors, and none that hangs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing

import pytest
import structlog

from kraftlog.sim.engine.workers import in_workers


def square(number: int) -> int:
    return number * number


def end(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_each_input_is_worked_on_and_none_is_taken_long_before() -> None:
    taken: list[int] = []

    def inputs() -> Iterator[int]:
        for number in range(50):
            taken.append(number)
            yield number

    with closing(in_workers(square, inputs())) as outcomes:
        first = next(outcomes)
        assert len(taken) <= 2 * (os.cpu_count() or 1)
        assert sorted([first, *outcomes]) == [number * number for number in range(50)]


def log_the_worst(number: int) -> int:
    structlog.get_logger().critical("this node's metadata rotted", number=number)
    return number


def test_simulated_nodes_log_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    assert list(in_workers(log_the_worst, [1])) == [1]
    written = capfd.readouterr()
    # A Kafka client that another test has made in this process may complain at any time, from a thread of its own.
    assert [line for line in [*written.out.splitlines(), *written.err.splitlines()] if "|rdkafka#" not in line] == []


def test_a_worker_that_is_killed_ends_the_sweep() -> None:
    with pytest.raises(BrokenProcessPool):
        list(in_workers(end, range(10)))
