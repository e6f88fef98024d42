"""The processes that run simulations, one for each processor."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import Final, TypeVar

from kraftlog.process.logs import silence_logging

Input = TypeVar("Input")
Output = TypeVar("Output")

_SUBMITTED_FOR_EACH_PROCESSOR: Final = 2
"""One that is run, and one that is next."""

_OBJECTS_BETWEEN_COLLECTIONS: Final = 500_000
"""Few of a run's objects are in cycles: with the default, 700, it spends a tenth of its time on looking for them."""


def in_workers(work: Callable[[Input], Output], inputs: Iterable[Input]) -> Generator[Output, None, None]:
    """`work(one)` for each input, in the order in which they are done. An input is taken when there is a worker for it.

    The workers are not forked: a copy of a process whose other threads are inside gRPC or a Java gateway may spin on a
    lock for ever. They know nothing of what this process has patched, either: `work` puts that in by itself. Raises
    BrokenProcessPool if a worker was killed.
    """
    processors = os.cpu_count() or 1
    pool = ProcessPoolExecutor(processors, multiprocessing.get_context("spawn"), initializer=_set_up)
    running: set[Future[Output]] = set()
    try:
        for one in inputs:
            running.add(pool.submit(work, one))
            if len(running) >= _SUBMITTED_FOR_EACH_PROCESSOR * processors:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from [future.result() for future in done]
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from [future.result() for future in done]
    finally:
        pool.shutdown(cancel_futures=True)


def _set_up() -> None:
    silence_logging()
    gc.freeze()  # what was imported stays
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
