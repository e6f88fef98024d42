"""What whoever waits at the terminal should know of how a command came to its answer, each once per command.

The parts below the command line say it here, and the command line has it printed. A program that calls them without a
command line hears nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_tell: ContextVar[Callable[[str], None] | None] = ContextVar("_tell", default=None)


@contextmanager
def user_messages_to(tell: Callable[[str], None]) -> Iterator[None]:
    """Have each notice of what runs in the block told with `tell`, once."""
    told: set[str] = set()

    def tell_once(line: str) -> None:
        if line not in told:
            told.add(line)
            tell(line)

    token = _tell.set(tell_once)
    try:
        yield
    finally:
        _tell.reset(token)


def show_to_user(line: str) -> None:
    """Say it, if anybody wants to hear."""
    tell = _tell.get()
    if tell is not None:
        tell(line)
