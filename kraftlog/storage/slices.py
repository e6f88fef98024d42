"""Large work of a broker on its loop, in slices: between two of them heartbeats and requests have their turn (DB-97).

Work is a generator. It yields None where a slice may end, and a function where something has to become durable before
it goes on. That runs in the disk's thread, and what it raises is raised where it was yielded. Small work is done in one
turn, syncs included: a hop to the thread and back costs more than a fast disk does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final, TypeAlias, TypeVar

from kraftbase.errors import FlushFailed
from kraftbase.runtime import Runtime

SLICE_PARTITIONS: Final = 8
"""How many partitions have their files made, renamed or opened in one turn of the loop: 0.5 ms each, or 4 on a machine
that is busy with other things."""

SLICE_LINES: Final = 128
"""For how many partitions something is encoded or looked at in one turn."""

Steps: TypeAlias = Generator[Callable[[], None] | None, None, None]
T = TypeVar("T")


def slices(found: Sequence[T], count: int) -> Iterator[Sequence[T]]:
    """The same, so many at a time."""
    for start in range(0, len(found), count):
        yield found[start : start + count]


def run_at_once(steps: Steps) -> None:
    """Do all the work in one turn. Raises what it raises."""
    error: BaseException | None = None
    try:
        while True:
            step = next(steps) if error is None else steps.throw(error)
            error = _attempt(step)
    except StopIteration:
        return


class SlicedWork:
    """Does one piece of work after the other. For one thread."""

    def __init__(self, runtime: Runtime, on_failed: Callable[[BaseException], None]) -> None:
        """`on_failed` is called with what work raises after its first turn; nothing more is done then."""
        self._runtime = runtime
        self._on_failed = on_failed
        self._steps: Steps | None = None
        self._is_small = True
        self.slice_count = 0
        """How many turns were needed after the first one of each piece of work."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return self._steps is None

    def start(self, steps: Steps, *, is_small: bool) -> None:
        """Begin, and do the first slice now, or all of it if it is small; nothing else is under way. Raises."""
        self._steps, self._is_small = steps, is_small
        try:
            self._run(None)
        except BaseException:
            self._steps = None
            raise

    def stop(self) -> None:
        """Leave the rest undone."""
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
