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
"""One input that the processor works on, and one that waits."""

_OBJECTS_BETWEEN_COLLECTIONS: Final = 500_000
"""Few of a run's objects are in cycles. With the default of 700, the collector takes a tenth of a run's time."""


def in_workers(work: Callable[[Input], Output], inputs: Iterable[Input]) -> Generator[Output, None, None]:
    """Yield `work(one)` for each input, in the order of completion. An input is read when a worker is free for it.

    The workers are not forked: in a copy of a process whose other threads are inside gRPC or a Java gateway, a lock may
    spin forever. Patches of this process do not reach the workers: `work` must apply them itself. Raises
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
