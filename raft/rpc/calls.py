"""The call that a task answers: its sender, and the memory and time that its answers use.

Bytes that are sent and not read stay in memory, and nothing can end a call whose client does not read: gRPC's own
status queues up behind the unread bytes. So answers of more than 64 KiB reserve their bytes from a budget, and release
them when they are written. `answer_room` returns how large the next answer may be.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from raft.rpc.limits import over_limit
from raft.rpc.read_lane import ReadLane

SMALL_ANSWER_BYTES: Final = 64 * 1024
"""An answer of up to this size reserves nothing from the budget: each call has at most one."""


class AnswerBudget:
    """Bytes of answers that are being sent, in total and by connection. Small answers always fit."""

    def __init__(self, limits: dict[str, int], on_refused: Callable[[str], None]) -> None:
        """`limits` holds, by name, one value for all connections together, and one for each if that is limited."""
        (self._name, self._bytes_max), *of_each = limits.items()
        self._connection_name, self._connection_bytes_max = of_each[0] if of_each else ("", self._bytes_max)
        self._on_refused = on_refused
        self.taken_bytes = 0
        self._by_connection: Counter[str] = Counter()

    def room(self, connection: str, wanted_bytes: int) -> int:
        """The largest answer to `connection` that fits now: `wanted_bytes`, or less."""
        free = min(self._bytes_max - self.taken_bytes, self._connection_bytes_max - self._by_connection[connection])
        return min(wanted_bytes, max(SMALL_ANSWER_BYTES, free))

    def take(self, connection: str, size_bytes: int) -> int:
        """Reserve room for an answer, and return how much to release. Raises ApiError if there is none."""
        if size_bytes <= SMALL_ANSWER_BYTES:
            return 0
        for name, taken, limit in (
            (self._name, self.taken_bytes, self._bytes_max),
            (self._connection_name, self._by_connection[connection], self._connection_bytes_max),
        ):
            if taken + size_bytes > limit:
                self._on_refused(name)
                raise over_limit(name, limit)
        self.taken_bytes += size_bytes
        self._by_connection[connection] += size_bytes
        return size_bytes

    def give_back(self, connection: str, size_bytes: int) -> None:
        """Release the room of an answer that was written, or never will be."""
        self.taken_bytes -= size_bytes
        self._by_connection[connection] -= size_bytes
        if not self._by_connection[connection]:
            del self._by_connection[connection]


class Call:
    """One call, from its first header to its end."""

    def __init__(self, limit: str, task: asyncio.Task[Any] | None, budget: AnswerBudget, lane: ReadLane) -> None:
        self.limit: Final = limit
        """The limit on calls of its kind."""
        self.task: Final = task
        self.connection = ""
        """Known as soon as its handler runs."""
        self.voter_id: int | None = None
        """The voter that its first message names."""
        self.is_counted = False
        """Whether it counts against its limit."""
        self.gives_way = False
        """Whether it must end to make room for other calls."""
        self._budget = budget
        self._lane = lane
        self._held_bytes = 0

    def hold(self, size_bytes: int) -> int:
        """Reserve room for an answer until it is released, or the call ends. Raises ApiError."""
        taken = 0 if self.voter_id is not None else self._budget.take(self.connection, size_bytes)
        self._held_bytes += taken
        return taken

    def give_back(self, size_bytes: int | None = None) -> None:
        """Release the room of an answer that was written; None: the call has ended."""
        size_bytes = self._held_bytes if size_bytes is None else size_bytes
        if size_bytes:
            self._held_bytes -= size_bytes
            self._budget.give_back(self.connection, size_bytes)

    def room(self, wanted_bytes: int) -> int:
        """The largest next answer that fits."""
        return wanted_bytes if self.voter_id is not None else self._budget.room(self.connection, wanted_bytes)

    def charge(self, seconds: float) -> None:
        """Charge the call for this much more of the node's time."""
        self._lane.charge(seconds)


CURRENT_CALL: Final[ContextVar[Call | None]] = ContextVar("kraftlog-call", default=None)


def answer_room(wanted_bytes: int) -> int:
    """The largest next answer of this task's call: `wanted_bytes`, or less if there is no room."""
    call = CURRENT_CALL.get()
    return wanted_bytes if call is None else call.room(wanted_bytes)


def hold_answer(size_bytes: int) -> None:
    """Reserve room for answers of this task's call until the call ends. Raises ApiError if there is none."""
    call = CURRENT_CALL.get()
    if call is not None:
        call.hold(size_bytes)


def charge_call(seconds: float) -> None:
    """Charge this task's call for time in a thread."""
    call = CURRENT_CALL.get()
    if call is not None:
        call.charge(seconds)
