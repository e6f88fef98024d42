"""Work that is done in portions, so that a broker's loop turns in between.

A request whose work is more than one portion goes on in later turns, one portion of one connection in each. What the
same connection asks meanwhile waits behind it, as its requests are handled in their order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from kraftlog.broker.requests import Client
from raft.shell.runtime import Runtime

Work = Iterator[None]
"""Handles one request; yields at the end of each portion but the last."""


class Turns:
    """The work of requests of one kind. For one thread."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: dict[int, deque[Work]] = {}
        """By connection, the work that is not done, in order. The work refers to the request, and so to its client."""
        self._order: deque[int] = deque()
        """The connections with work, the next one first."""
        self.portions = 0
        """How many portions were done in turns of their own."""

    def begin(self, client: Client, work: Work) -> None:
        """Do the first portion now, and the others in later turns. Raises what the first portion raises."""
        waiting = self._waiting.get(id(client))
        if waiting is not None:
            waiting.append(work)
        elif not _is_done(work):
            self._waiting[id(client)] = deque((work,))
            self._add(id(client))

    def _add(self, connection: int) -> None:
        self._order.append(connection)
        if len(self._order) == 1:
            self._runtime.call_after_requests(self._turn)

    def _turn(self) -> None:
        connection = self._order[0]
        waiting = self._waiting[connection]
        is_done = True  # also if it raises: the next one goes on
        self.portions += 1
        try:
            is_done = _is_done(waiting[0])
        finally:
            if is_done:
                waiting.popleft()
            self._order.popleft()
            if waiting:
                self._order.append(connection)
            else:
                del self._waiting[connection]
            if self._order:
                self._runtime.call_after_requests(self._turn)


def _is_done(work: Work) -> bool:
    return next(work, _DONE) is _DONE


_DONE = object()
