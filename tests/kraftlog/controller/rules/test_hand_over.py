"""When a leader that can write nothing hands over (CT-29)."""

from __future__ import annotations

from itertools import pairwise

from kraftlog.controller.rules.hand_over import PAUSE_MS, PAUSE_MS_MAX, STUCK_MS, HandOver


def test_ct29_a_leader_that_is_stuck_for_long_hands_over() -> None:
    hand_over = HandOver()
    assert not hand_over.is_due(True, 0)
    assert not hand_over.is_due(True, STUCK_MS - 1)
    assert hand_over.is_due(True, STUCK_MS)


def test_ct29_one_that_writes_in_between_does_not() -> None:
    hand_over = HandOver()
    assert not hand_over.is_due(True, 0)
    assert not hand_over.is_due(False, STUCK_MS - 1)
    assert not hand_over.is_due(True, STUCK_MS)
    assert not hand_over.is_due(True, 2 * STUCK_MS - 1)


def test_ct29_one_that_leads_again_is_given_time_again() -> None:
    hand_over = HandOver()
    assert not hand_over.is_due(True, 0)
    hand_over.begin()
    assert not hand_over.is_due(True, STUCK_MS)


def test_ct29_the_pauses_grow_until_something_is_written() -> None:
    hand_over, times = HandOver(), list[int]()
    for now_ms in range(0, 20 * PAUSE_MS_MAX, 10_000):
        if hand_over.is_due(True, now_ms):
            times.append(now_ms)
    pauses = [after - before for before, after in pairwise(times)]
    assert pauses[:3] == [PAUSE_MS, 2 * PAUSE_MS, 4 * PAUSE_MS]
    assert pauses[-1] == max(pauses) == PAUSE_MS_MAX
    assert not hand_over.is_due(False, times[-1] + 1)
    assert not hand_over.is_due(True, times[-1] + PAUSE_MS_MAX)
    assert hand_over.is_due(True, times[-1] + PAUSE_MS_MAX + STUCK_MS)
    assert hand_over.is_due(True, times[-1] + PAUSE_MS_MAX + STUCK_MS + PAUSE_MS)
