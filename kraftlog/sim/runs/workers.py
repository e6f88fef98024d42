"""The processes that run simulations, one for each processor."""

from __future__ import annotations

import gc
import multiprocessing
import os
from multiprocessing.pool import Pool
from typing import Final

_OBJECTS_BETWEEN_COLLECTIONS: Final = 500_000
"""A run makes objects by the million, few of them in cycles: with Python's 700 it spends a tenth of its time on them."""


def workers() -> Pool:
    """A pool of new processes.

    They are not forked: a copy of a process whose other threads are inside gRPC or a Java gateway may spin on a lock
    for ever. A new process knows nothing of what its parent has patched, either: what it runs puts that in by itself.
    """
    return multiprocessing.get_context("spawn").Pool(os.cpu_count(), initializer=_collect_seldom)


def _collect_seldom() -> None:
    gc.freeze()  # what was imported stays
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
