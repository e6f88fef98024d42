"""What the listeners of brokers reply to a connection of this node, for the controller (CT-65).

The addresses are claims of whoever registered. `kraftlog.controller.rules.broker_evidence` bounds how often this is
asked; here is a bound on what is open: names that are looked up slowly must not hold up the threads of the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from kraftbase.endpoint import Endpoint, Reply
from raft.rpc.closed_ports import reply_of

LOOKS_MAX: Final = 16
"""How many connections are tried at a time; of a further one the reply is unknown."""


class ListenerProbe:
    """For one event loop. Close it."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def connect(self, endpoints: tuple[Endpoint, ...], on_replies: Callable[[Mapping[Endpoint, Reply]], None]) -> None:
        """Connect to each of the endpoints, and call back later with their replies."""
        task = asyncio.get_running_loop().create_task(self._look(endpoints, on_replies))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Give up what is not answered; nothing is called back."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _look(
        self, endpoints: tuple[Endpoint, ...], on_replies: Callable[[Mapping[Endpoint, Reply]], None]
    ) -> None:
        if len(self._tasks) > LOOKS_MAX:
            on_replies({})
            return
        replies = await asyncio.gather(*map(reply_of, endpoints))
        on_replies(dict(zip(endpoints, replies, strict=True)))
