"""A broker's copy of the metadata on an event loop, fed by any node that sends it (`raft.observe`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from kraftbase.runtime import OnDone
from kraftbase.types import Offset
from statemachine.apply.machine import MetadataMachine
from statemachine.apply.publishers import MetadataPublisher


class FollowedMetadata:
    """`MetadataFeed` over the state machine."""

    def __init__(
        self,
        machine: MetadataMachine,
        following: Callable[[], Coroutine[Any, Any, object]],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """`following` feeds the machine until it is cancelled; `on_failed` is called with what it raises."""
        self._machine = machine
        self._following = following
        self._on_failed = on_failed
        self._task: asyncio.Task[object] | None = None

    @property
    def applied_end_offset(self) -> int:
        """All records below this offset are applied."""
        return self._machine.applied_end_offset

    def follow(self) -> None:
        """Begin to feed the machine."""
        self._task = asyncio.create_task(self._following())
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[object]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_failed(error)

    def wait_applied(self, end_offset: Offset, timeout_ms: float, on_done: OnDone) -> object:
        """Call back when all records below `end_offset` are applied."""
        return self._machine.wait_applied(end_offset, timeout_ms, on_done)

    def install_publisher(self, publisher: MetadataPublisher) -> None:
        """Call `publisher` with the state, and then with every change."""
        self._machine.install_publisher(publisher)

    def stop(self, on_stopped: OnDone) -> None:
        """Stop feeding the machine, then call back."""
        if self._task is None or self._task.done():
            asyncio.get_running_loop().call_soon(on_stopped, None)
        else:
            self._task.cancel()
            self._task.add_done_callback(lambda task: on_stopped(None))
