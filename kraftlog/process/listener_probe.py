"""Connects to the listeners of brokers and reports their replies to the controller (CT-65).

The addresses are claims of the process that registered. `kraftlog.controller.rules.broker_evidence` bounds how often
a probe runs. This module bounds the open connections and look-ups: names that resolve slowly must not occupy all
threads of the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from kraftbase.endpoint import Endpoint, Reply
from raft.rpc.closed_ports import reply_of

LOOKS_MAX: Final = 64
"""How many brokers are checked at a time. A further check ends at once, and all its replies are unknown."""

LOOKUPS_MAX: Final = 3
"""How many names are looked up at a time. A look-up that hangs keeps its thread even if its result is no longer needed,
and the event loop may have only four threads.
"""


class ListenerProbe:
    """The probe of one event loop. The owner must close it."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._lookups: set[asyncio.Future[Any]] = set()

    def connect(self, endpoints: tuple[Endpoint, ...], on_replies: Callable[[Mapping[Endpoint, Reply]], None]) -> None:
        """Connect to each of the endpoints, and call back later with their replies."""
        loop = asyncio.get_running_loop()
        if len(self._tasks) >= LOOKS_MAX:
            loop.call_soon(on_replies, {})
            return
        task = loop.create_task(self._look(endpoints, on_replies))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Abandon unanswered connections, without a callback."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _look(
        self, endpoints: tuple[Endpoint, ...], on_replies: Callable[[Mapping[Endpoint, Reply]], None]
    ) -> None:
        replies = await asyncio.gather(*(reply_of(endpoint, self._look_up) for endpoint in endpoints))
        on_replies(dict(zip(endpoints, replies, strict=True)))

    async def _look_up(self, *name: Any, **options: Any) -> Any:
        if len(self._lookups) >= LOOKUPS_MAX:
            raise OSError("too many names are being looked up")
        lookup = asyncio.ensure_future(asyncio.get_running_loop().getaddrinfo(*name, **options))
        self._lookups.add(lookup)
        lookup.add_done_callback(self._looked_up)
        return await asyncio.shield(lookup)

    def _looked_up(self, lookup: asyncio.Future[Any]) -> None:
        self._lookups.discard(lookup)
        if not lookup.cancelled():
            lookup.exception()  # nothing may wait for it any longer
