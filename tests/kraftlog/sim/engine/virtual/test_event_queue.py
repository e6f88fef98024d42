"""Events happen in the order of their times, ties in the order in which they were scheduled."""

from __future__ import annotations

from functools import partial

from kraftlog.sim.engine.virtual.event_queue import EventQueue


def test_events_happen_in_the_order_of_their_times_and_ties_in_the_order_of_scheduling() -> None:
    queue = EventQueue()
    happened: list[str] = []
    for delay_us, name in ((20, "late"), (10, "first"), (10, "second"), (-5, "now")):
        queue.after(delay_us, partial(happened.append, name))
    while queue.run_next(15):
        pass
    assert (happened, queue.now_us) == (["now", "first", "second"], 15)
    assert queue.run_next(20)
    assert (happened[-1], queue.now_us) == ("late", 20)


def test_a_cancelled_event_does_not_happen() -> None:
    queue = EventQueue()
    happened: list[str] = []
    timer = queue.after(10, lambda: happened.append("cancelled"))
    queue.after(5, timer.cancel)
    assert queue.run_next(100)
    assert not queue.run_next(100)
    assert (happened, queue.now_us) == ([], 100)


def test_an_event_that_is_due_now_waits_for_those_that_were_scheduled_before() -> None:
    queue = EventQueue()
    happened: list[str] = []

    def first() -> None:
        happened.append("first")
        queue.after(0, lambda: happened.append("third"))

    queue.after(10, first)
    queue.after(10, lambda: happened.append("second"))
    while queue.run_next(10):
        pass
    assert happened == ["first", "second", "third"]
