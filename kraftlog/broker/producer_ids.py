"""The producer ids that this broker gives to idempotent producers, from blocks that the controller allocates (DB-118).

The next block is asked for when few ids are left of the present one, so that nobody waits for it. What a broker has not
used of its blocks when it ends is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from kraftbase.errors import ApiError, ErrorCode

WAITING_MAX: Final = 10_000
"""Producers that wait for a block; further ones are refused at once."""

FEW_IDS: Final = 100
"""With fewer left than this, the next block is asked for."""


class Block(NamedTuple):
    """Ids from `start` on."""

    start: int
    size: int


OnTaken = Callable[[int, ApiError | None], None]
"""Called once: with the id, or -1 and the reason."""

RequestBlock = Callable[[], None]
"""Begins to ask the controller; `ProducerIds.allocated` or `ProducerIds.refused` is called once for it.

That is after a few seconds at most, also if no controller can be reached: producers wait for it.
"""


class ProducerIds:
    """For one thread."""

    def __init__(self, request_block: RequestBlock) -> None:
        self._request_block = request_block
        self._next = 0
        self._left = 0
        self._spare: Block | None = None
        self._is_asking = False
        self._waiting: deque[OnTaken] = deque()

    def take(self, on_taken: OnTaken) -> None:
        """Call back with an id that nobody else ever gets; at once if there is one."""
        if not self._left and self._spare is not None:
            self._next, self._left = self._spare
            self._spare = None
        if self._left:
            taken = self._next
            self._next += 1
            self._left -= 1
            if self._left < FEW_IDS and self._spare is None:
                self._ask()
            on_taken(taken, None)
            return
        if len(self._waiting) >= WAITING_MAX:
            on_taken(-1, ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{WAITING_MAX} producers wait for ids"))
            return
        self._waiting.append(on_taken)
        self._ask()

    def _ask(self) -> None:
        if not self._is_asking:
            self._is_asking = True
            self._request_block()

    def allocated(self, block: Block) -> None:
        """The controller has allocated a block. One without ids refuses who waits: to ask on would go on for ever."""
        if block.size <= 0:
            self.refused(
                ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the controller gave no producer ids: try again")
            )
            return
        self._is_asking = False
        self._spare = block
        waiting, self._waiting = self._waiting, deque()
        for on_taken in waiting:
            self.take(on_taken)

    def refused(self, error: ApiError) -> None:
        """It has not: nobody waits any longer; the next producer makes the broker ask again."""
        self._is_asking = False
        waiting, self._waiting = self._waiting, deque()
        for on_taken in waiting:
            on_taken(-1, error)
