"""Attempts, the pauses between them, and what cuts these short."""

from __future__ import annotations

from kraftlog.broker.shell.attempts import Attempts
from tests.raft.by_hand import HandRuntime

RETRY_MS = 200


class Stage:
    """When attempts began, in milliseconds since the start."""

    def __init__(self) -> None:
        self.runtime = HandRuntime()
        self.start_ms = self.runtime.now_ms()
        self.begun: list[float] = []
        self.attempts = Attempts(self.runtime, RETRY_MS, lambda: self.begun.append(self.now_ms))

    @property
    def now_ms(self) -> float:
        return self.runtime.now_ms() - self.start_ms


def test_the_next_one_begins_after_the_pause() -> None:
    stage = Stage()
    stage.attempts.pause(2_000)
    stage.runtime.advance(5_000)
    assert stage.begun == [2_000]


def test_a_pause_that_is_cut_short_once_or_twice_is_over_at_once_and_only_that_one() -> None:
    stage = Stage()
    stage.attempts.pause(2_000)
    stage.runtime.advance(500)
    for _ in range(2):
        stage.attempts.wake()
    assert not stage.begun, "never within the call"
    stage.runtime.advance(0)
    stage.attempts.pause(2_000)
    stage.runtime.advance(1_000)
    assert stage.begun == [500]


def test_what_happens_while_one_is_under_way_cuts_the_pause_after_it_short() -> None:
    stage = Stage()
    stage.attempts.wake()
    stage.attempts.pause(2_000)
    stage.runtime.advance(0)
    stage.attempts.pause(2_000)
    stage.runtime.advance(1_000)
    assert stage.begun == [0]


def test_after_failures_one_is_made_at_once_and_the_next_after_a_while() -> None:
    stage = Stage()
    for _ in range(2):
        stage.attempts.wake()
        stage.attempts.pause_before_retry()
        stage.runtime.advance(0)
    assert stage.begun == [0]
    stage.runtime.advance(RETRY_MS)
    assert stage.begun == [0, RETRY_MS]


def test_none_begins_when_they_are_stopped() -> None:
    for is_woken in (False, True):
        stage = Stage()
        stage.attempts.pause(2_000)
        if is_woken:
            stage.attempts.wake()
        stage.attempts.stop()
        stage.attempts.pause_before_retry()
        stage.attempts.wake()
        stage.runtime.advance(10_000)
        assert not stage.begun
