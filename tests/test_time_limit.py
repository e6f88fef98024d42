"""A test that takes too long ends its process; one that has ended does not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Final

import pytest
from pytest_timeout import Settings

from tests import time_limit
from tests.time_limit import TimeLimits

SETTINGS: Final = Settings(timeout=0.0, method="thread", func_only=False, disable_debugger_detection=False)


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when the time of a test is over."""
    event = threading.Event()
    monkeypatch.setattr(time_limit, "timeout_timer", lambda item, settings: event.set())
    return event


@pytest.fixture
def limits() -> Iterator[TimeLimits]:
    limits = TimeLimits(look_seconds=0.001)
    yield limits
    limits.pytest_unconfigure()


def test_a_test_whose_time_is_over_is_ended(
    limits: TimeLimits, ended: threading.Event, request: pytest.FixtureRequest
) -> None:
    assert limits.pytest_timeout_set_timer(request.node, SETTINGS)
    assert ended.wait(60)


def test_a_test_that_has_ended_has_no_limit_and_the_next_one_has_its_own(
    limits: TimeLimits, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    over: list[Any] = []
    seen = threading.Event()

    def end(item: pytest.Item, settings: Settings) -> None:
        over.append(settings)
        seen.set()

    monkeypatch.setattr(time_limit, "timeout_timer", end)
    assert limits.pytest_timeout_set_timer(request.node, SETTINGS._replace(timeout=3_600.0))
    assert limits.pytest_timeout_cancel_timer(request.node)
    assert limits.pytest_timeout_cancel_timer(request.node) is None
    another = SETTINGS._replace(disable_debugger_detection=True)
    assert limits.pytest_timeout_set_timer(request.node, another)
    assert seen.wait(60)
    assert set(over) == {another}


def test_the_limit_by_a_signal_is_left_to_pytest_timeout(limits: TimeLimits, request: pytest.FixtureRequest) -> None:
    assert limits.pytest_timeout_set_timer(request.node, SETTINGS._replace(method="signal")) is None
    assert limits.pytest_timeout_cancel_timer(request.node) is None
