"""The ids that this broker gives to idempotent producers, from blocks that the controller allocates (DB-118).

The next block is requested when the current one has few ids left, so that producers seldom wait. The unused ids of a
broker's blocks are lost when it ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from kraftbase.errors import ApiError, ErrorCode

WAITING_MAX: Final = 10_000
"""Producers that may wait for a block; further ones get an error at once."""

FEW_IDS: Final = 100
"""The next block is requested when fewer ids than this are left."""


class Block(NamedTuple):
    """A block of ids from `start` on."""

    start: int
    size: int


OnTaken = Callable[[int, ApiError | None], None]
"""Called once, with an id, or with -1 and the error."""

RequestBlock = Callable[[], None]
"""Requests a block from the controller; `ProducerIds.allocated` or `ProducerIds.refused` is called once for it.

That call comes within a few seconds, even if no controller can be reached, because producers wait for it.
"""


class ProducerIds:
    """The ids of one broker. Not thread-safe."""

    def __init__(self, request_block: RequestBlock) -> None:
        self._request_block = request_block
        self._next = 0
        self._left = 0
        self._spare: Block | None = None
        self._is_asking = False
        self._waiting: deque[OnTaken] = deque()

    def allocate(self, on_taken: OnTaken) -> None:
        """Call back with an id that no other producer ever gets; at once if there is one."""
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
        """Use the block that the controller allocated. If it is empty, all waiting producers are refused."""
        if block.size <= 0:
            self.refused(
                ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the controller gave no producer ids; try again")
            )
            return
        self._is_asking = False
        self._spare = block
        waiting, self._waiting = self._waiting, deque()
        for on_taken in waiting:
            self.allocate(on_taken)

    def refused(self, error: ApiError) -> None:
        """The controller allocated no block: refuse all waiting producers. The next producer causes a new request."""
        self._is_asking = False
        waiting, self._waiting = self._waiting, deque()
        for on_taken in waiting:
            on_taken(-1, error)
