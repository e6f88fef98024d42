"""The processes that run simulations, one for each processor."""

from __future__ import annotations

import gc
import multiprocessing
import os
from multiprocessing.pool import Pool
from typing import Final

_OBJECTS_BETWEEN_COLLECTIONS: Final = 50_000
"""A run makes objects by the million, few of them in cycles: Python's 700 costs it a twentieth of its time."""


def workers() -> Pool:
    """A pool of new processes.

    They are not forked: a copy of a process whose other threads are inside gRPC or a Java gateway may spin on a lock
    for ever. A new process knows nothing of what its parent has patched, either: what it runs puts that in by itself.
    """
    return multiprocessing.get_context("spawn").Pool(os.cpu_count(), initializer=_collect_seldom)


def _collect_seldom() -> None:
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
