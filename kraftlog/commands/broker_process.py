"""`kraftlog brokers run`: a data broker in this process, until a signal ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from kraftbase.endpoint import Endpoint
from kraftbase.interpreter import keep_what_is_there, look_at_old_objects_seldom, take_turns
from kraftbase.stop_signals import on_stop_signals
from kraftlog.broker.broker import Broker
from kraftlog.broker.running import Callbacks, running
from kraftlog.broker.settings import BrokerSettings
from kraftlog.storage.log_manager import LogManager

Say = Callable[[str], None]


async def run_broker(
    settings: BrokerSettings, endpoints: Sequence[Endpoint], callbacks: Callbacks, say: Say, version: str
) -> None:
    """Run the broker, of this version, until SIGTERM, SIGINT or SIGHUP, then do a controlled shutdown. Raises ApiError,
    DirectoryError, StorageError, and OSError for a port in use.
    """
    take_turns()
    keep_what_is_there()
    look_at_old_objects_seldom()
    stop = asyncio.Event()
    on_stop_signals(stop.set)
    stopping = asyncio.create_task(stop.wait())
    is_up = asyncio.Event()
    told = partial(start_lines, settings, version)
    working = asyncio.create_task(_run(settings, endpoints, callbacks, say, told, stop, is_up))
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not working.done() and not is_up.is_set():
            working.cancel()  # it is still starting
            (error,) = await asyncio.gather(working, return_exceptions=True)
            if isinstance(error, Exception):
                raise error
        else:
            await working
    finally:
        stopping.cancel()
    say(f"Broker {settings.broker_id} has shut down.")


async def _run(
    settings: BrokerSettings,
    endpoints: Sequence[Endpoint],
    callbacks: Callbacks,
    say: Say,
    told: Callable[[LogManager], list[str]],
    stop: asyncio.Event,
    is_up: asyncio.Event,
) -> None:
    async with running(settings, endpoints, callbacks) as broker:
        is_up.set()
        say(f"Broker {settings.broker_id} is unfenced, epoch {broker.epoch}.")
        say(f"bootstrap.servers={','.join(addresses_of(broker))}")
        for line in told(broker.logs):
            say(line)
        await broker.unless_ended(asyncio.create_task(_wait(stop)))


async def _wait(stop: asyncio.Event) -> None:
    await stop.wait()


def start_lines(settings: BrokerSettings, version: str, logs: LogManager) -> list[str]:
    """The program's version and configuration, and the logs that it opened."""
    configs = ", ".join(f"{name}={value}" for name, value in settings.configs.items()) or "all by default"
    count = sum(len(directory.logs) for directory in logs.online)
    offline = [*logs.failed, *(of.path for of in logs.directories if of.offline_reason)]
    beside = f"; offline: {', '.join(offline)}" if offline else ""
    return [
        f"kraftlog {version}, data in {settings.directory}, rack {settings.rack or 'none'}, configs: {configs}",
        f"{count} logs in {', '.join(of.path for of in logs.online)}{beside}",
    ]


def addresses_of(broker: Broker) -> list[str]:
    """Where clients reach the broker, listener by listener."""
    advertised = (broker.settings.advertised_as(name, port) for name, port in broker.ports.items())
    return [str(Endpoint(of.host, of.port)) for of in advertised]
