"""Divides large work on a broker's loop into slices, between which heartbeats and requests get their turn (DB-97).

Work is a generator. It yields None where a slice may end, and a function where something must become durable before the
work continues. The function runs in the disk's thread; its exception is raised in the generator. Small work is done in
one turn, syncs included, since a change to the thread and back takes longer than a sync on a fast disk.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final, TypeAlias, TypeVar

from kraftbase.errors import FlushFailed
from kraftbase.runtime import Runtime

SLICE_PARTITIONS: Final = 8
"""The number of partitions whose files are created, renamed or opened in one turn of the loop: 0.5 ms each, or 4 ms on
a busy machine."""

SLICE_LINES: Final = 128
"""The number of partitions for which something is encoded or checked in one turn."""

Steps: TypeAlias = Generator[Callable[[], None] | None, None, None]
T = TypeVar("T")


def slices(found: Sequence[T], count: int) -> Iterator[Sequence[T]]:
    """Divide a sequence into parts of `count` items."""
    for start in range(0, len(found), count):
        yield found[start : start + count]


def run_at_once(steps: Steps) -> None:
    """Do all the work in one turn. Raises its exceptions."""
    error: BaseException | None = None
    try:
        while True:
            step = next(steps) if error is None else steps.throw(error)
            error = _attempt(step)
    except StopIteration:
        return


class SlicedWork:
    """Does one piece of work at a time, in slices. For one thread."""

    def __init__(self, runtime: Runtime, on_failed: Callable[[BaseException], None]) -> None:
        """`on_failed` is called with an exception that ends the work after its first turn."""
        self._runtime = runtime
        self._on_failed = on_failed
        self._steps: Steps | None = None
        self._is_small = True
        self.slice_count = 0
        """The total number of turns, without the first one of each piece of work."""

    @property
    def is_idle(self) -> bool:
        """Whether no work is in progress."""
        return self._steps is None

    def start(self, steps: Steps, *, is_small: bool) -> None:
        """Do the first slice now, or all of the work if it is small. Raises its exceptions.

        No other work may be in progress.
        """
        self._steps, self._is_small = steps, is_small
        try:
            self._run(None)
        except BaseException:
            self._steps = None
            raise

    def stop(self) -> None:
        """Abandon the rest of the work."""
        self._steps = None

    def _next_slice(self, error: BaseException | None = None) -> None:
        if self._steps is None:
            return
        self.slice_count += 1
        try:
            self._run(error)
        except (Exception, FlushFailed) as failure:
            self._steps = None
            self._on_failed(failure)

    def _run(self, error: BaseException | None) -> None:
        steps = self._steps
        while steps is not None:
            try:
                step = next(steps) if error is None else steps.throw(error)
            except StopIteration:
                self._steps = None
                return
            if self._is_small:
                error = _attempt(step)
            elif step is None:
                self._runtime.call_after_requests(self._next_slice)
                return
            else:
                self._runtime.run_on_disk(step, self._next_slice)
                return


def _attempt(step: Callable[[], None] | None) -> BaseException | None:
    try:
        if step is not None:
            step()
    except (Exception, FlushFailed) as error:
        return error
    return None
