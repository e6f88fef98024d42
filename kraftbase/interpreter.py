"""Python's own settings in a process that starts, and in one that serves others for a long time: nodes and brokers."""

from __future__ import annotations

import gc
import sys
from typing import Final

SWITCH_INTERVAL_SECONDS: Final = 0.0005
"""So long the event loop waits for the interpreter while another thread computes, and a thread that has flushed for a
busy loop before it can say so."""

OBJECTS_WHILE_STARTING: Final = 50_000
_THRESHOLDS: Final = gc.get_threshold()


OLD_LOOKS_SELDOM: Final = 1_500
"""Of the looks at younger objects; ten by default. With the other thresholds, after ten million objects more."""


def start_sooner() -> None:
    """Look for garbage seldom: imports make objects that all stay, and to look at them takes a tenth of their time."""
    gc.set_threshold(OBJECTS_WHILE_STARTING)


def take_turns() -> None:
    """Have threads give the interpreter to each other more often than Python does by default, which is every 5 ms."""
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)


def keep_what_is_there() -> None:
    """Never look again, for cycles that nobody needs, at what a process has made until now: its modules.

    Consider a broker that has just started: to look at its modules takes 16 to 24 ms, in which no client is answered,
    and it would be done again whenever a quarter as much was added. To be called before logs and metadata are opened:
    what is there when it is called, and is in a cycle, is never freed.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)  # the process has started: see `start_sooner`


def look_at_old_objects_seldom() -> None:
    """Look for garbage among objects that have lived for a while only once in `OLD_LOOKS_SELDOM` times.

    Consider a request of 100,000 elements: a million objects live until it is answered. To look at all of them takes a
    second, in which nobody is answered, and Python does that ten times while they are made. What a broker knows of
    1,000 partitions takes 40 ms. Requests leave no cycles behind.
    """
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, OLD_LOOKS_SELDOM)
