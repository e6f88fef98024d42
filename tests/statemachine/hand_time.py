"""Time that a test moves by hand, for a controller on a real event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.raft.by_hand import HandRuntime


class HandTime(HandRuntime):
    """Timers fire in `advance` only; `call_soon` calls back in the loop's next turn."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(callback)

    @property
    def timers_set(self) -> int:
        """How many timers are set."""
        return sum(not timer.is_cancelled for timer in self.timers)
