"""Notices for the user at the terminal about how a command got its answer, each once per command.

The code below the command line adds notices here, and the command line prints them. A program that calls that code
directly gets no notices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_tell: ContextVar[Callable[[str], None] | None] = ContextVar("_tell", default=None)


@contextmanager
def user_messages_to(tell: Callable[[str], None]) -> Iterator[None]:
    """Pass each notice from the code in the block to `tell`, once."""
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
    """Pass the notice on, if `user_messages_to` is in effect."""
    tell = _tell.get()
    if tell is not None:
        tell(line)
