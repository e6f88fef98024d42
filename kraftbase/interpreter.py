"""Python's own settings for a process that starts, and for a long-running server: nodes and brokers."""

from __future__ import annotations

import gc
import sys
from typing import Final

SWITCH_INTERVAL_SECONDS: Final = 0.0005
"""How long the event loop waits for the interpreter while another thread computes, and a thread that has flushed for a
busy loop before it can report so.
"""

OBJECTS_WHILE_STARTING: Final = 50_000
_THRESHOLDS: Final = gc.get_threshold()


OLD_LOOKS_SELDOM: Final = 1_500
"""How many collections of younger objects come before one of old objects; ten by default. With the other thresholds,
one after ten million more objects.
"""


def start_sooner() -> None:
    """Collect garbage seldom: imports create objects that all stay, and scanning them costs a tenth of their time."""
    gc.set_threshold(OBJECTS_WHILE_STARTING)


def take_turns() -> None:
    """Let threads pass the interpreter to each other more often than Python's default, which is every 5 ms."""
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)


def keep_what_is_there() -> None:
    """Exclude from garbage collection all objects that the process has created until now, such as its modules.

    Consider a broker that has just started: scanning its modules takes 16 to 24 ms, in which no client gets an answer,
    and is repeated whenever a quarter as many objects were added. Call this before logs and metadata are opened:
    objects in cycles that exist at the call are never freed.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)  # the process has started: see `start_sooner`


def look_at_old_objects_seldom() -> None:
    """Collect garbage among objects that have lived for a while only once in `OLD_LOOKS_SELDOM` times.

    Consider a request of 100,000 elements: a million objects live until it is answered. Scanning all of them takes a
    second, in which no client gets an answer, and Python does this ten times while they are created. A broker's objects
    for 1,000 partitions take 40 ms. Requests leave no cycles behind.
    """
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, OLD_LOOKS_SELDOM)
