"""The processes that run simulations, one for each processor."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.pool import Pool


def workers() -> Pool:
    """A pool of new processes.

    They are not forked: a copy of a process whose other threads are inside gRPC or a Java gateway may spin on a lock
    for ever. A new process knows nothing of what its parent has patched, either: what it runs puts that in by itself.
    """
    return multiprocessing.get_context("spawn").Pool(os.cpu_count())
