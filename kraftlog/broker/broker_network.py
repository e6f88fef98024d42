"""How clients and other brokers reach a broker, on an event loop (`NetworkPort`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from typing import Any

from kraftbase.runtime import OnDone
from kraftlog.broker.awaited_answers import call_back
from kraftlog.broker.clients import ClientApis
from kraftlog.broker.controller_channel import ControllerChannel
from kraftlog.broker.loop_watch import LOOK_SECONDS, REPORTED_LOOK_SECONDS, LoopReport, LoopWatch
from kraftlog.broker.settings import (
    ALLOW_PLAINTEXT,
    CONNECTIONS_MAX_IDLE,
    LOOP_REPORT_INTERVAL,
    QUEUED_BYTES,
    REQUEST_BYTES,
    BrokerSettings,
)
from kraftlog.network.serving import Limits, Listener, serving
from kraftlog.telemetry.registry import Registry
from statemachine.words.config_definitions import CONNECTIONS_MAX, MAX_CONNECTIONS_PER_IP


class BrokerNetwork:
    """The network of one broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        apis: Callable[[ControllerChannel], ClientApis],
        clients_channel: ControllerChannel,
        own_channel: ControllerChannel,
        registry: Registry,
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """`apis` makes the handlers, once the broker's logs are open. `clients_channel` is for clients' requests to the
        controller, `own_channel` for the broker's own. `registry` shows the network's counts. `on_failed` is called
        with an error that must end the broker."""
        self._settings = settings
        self._apis = apis
        self._clients_channel, self._own_channel = clients_channel, own_channel
        self._registry = registry
        self._on_failed = on_failed
        self._listening = AsyncExitStack()
        self._tasks: set[asyncio.Task[None]] = set()
        self.ports: dict[str, int] = {}
        """The bound port, by listener."""

    def listen(self, on_listening: Callable[[Mapping[str, int]], None]) -> None:
        """Bind the listeners, then call back with their ports."""
        self._run(self._listen(on_listening))

    async def _listen(self, on_listening: Callable[[Mapping[str, int]], None]) -> None:
        settings, apis = self._settings, self._apis(self._clients_channel)
        network = await self._listening.enter_async_context(
            serving(
                apis.handle,
                [Listener(listener.name, listener.host, listener.port) for listener in settings.listeners],
                _limits(settings),
                apis.offered,
                on_fatal=self._on_failed,
                allow_plaintext=settings.is_on(ALLOW_PLAINTEXT),
            )
        )
        self.ports.update(network.ports)
        network.show(self._registry)
        self._run(watch_loop(network.longest_request, settings.whole(LOOP_REPORT_INTERVAL)))
        on_listening(self.ports)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` in a task; if it fails, the broker ends."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_failed(error)

    # --- the end ------------------------------------------------------------------------------------------------------

    def answer_pending(self, on_done: OnDone) -> None:
        """Answer clients' pending requests to the controller with an error, and send no more of them."""
        self._clients_channel.close(on_done)

    def close(self, on_closed: OnDone) -> None:
        """Close listeners and connections."""
        call_back(self._close(), on_closed)

    async def _close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._listening.aclose()

    def close_controller(self, on_closed: OnDone) -> None:
        """Drop the broker's own pending requests to the controller."""
        self._own_channel.close(on_closed)


def _limits(settings: BrokerSettings) -> Limits:
    return Limits(
        connections_max=int(settings.broker_value(CONNECTIONS_MAX)),
        address_connections_max=int(settings.broker_value(MAX_CONNECTIONS_PER_IP)),
        request_bytes_max=settings.whole(REQUEST_BYTES),
        queued_bytes_max=settings.whole(QUEUED_BYTES),
        idle_timeout_ms=settings.whole(CONNECTIONS_MAX_IDLE),
    )


async def watch_loop(longest_request: Callable[[], str | None], report_interval_ms: int = 0) -> None:
    """Check again and again that the event loop turns. With an interval above 0, also log a report that often."""
    look_seconds = REPORTED_LOOK_SECONDS if report_interval_ms else LOOK_SECONDS
    watch = LoopWatch(time.monotonic, longest_request, look_seconds)
    report = LoopReport(report_interval_ms / 1_000, time.monotonic) if report_interval_ms else None
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle | None = None

    def check() -> None:
        """Use a timer, because a task that has slept continues only behind the work of other tasks."""
        nonlocal timer
        timer = loop.call_later(look_seconds, check)
        watch.check()
        if report is not None:
            report.check()

    timer = loop.call_later(look_seconds, check)
    try:
        await loop.create_future()
    finally:
        if timer is not None:
            timer.cancel()
