"""`kraftlog brokers run`: a data broker in this process, until a signal ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from kraftbase.endpoint import Endpoint
from kraftbase.interpreter import keep_what_is_there, look_at_old_objects_seldom, take_turns
from kraftbase.stop_signals import on_stop_signals
from kraftlog.broker.broker import Broker
from kraftlog.broker.running import Callbacks, running
from kraftlog.broker.settings import BrokerSettings

Say = Callable[[str], None]


async def run_broker(settings: BrokerSettings, endpoints: Sequence[Endpoint], callbacks: Callbacks, say: Say) -> None:
    """Run the broker until SIGTERM, SIGINT or SIGHUP, then shut down controlled.

    Raises ApiError, DirectoryError, StorageError, and OSError for a port that is taken.
    """
    take_turns()
    keep_what_is_there()
    look_at_old_objects_seldom()
    stop = asyncio.Event()
    on_stop_signals(stop.set)
    stopping = asyncio.create_task(stop.wait())
    is_up = asyncio.Event()
    working = asyncio.create_task(_run(settings, endpoints, callbacks, say, stop, is_up))
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not working.done() and not is_up.is_set():
            working.cancel()  # it is still starting
            await asyncio.gather(working, return_exceptions=True)
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
    stop: asyncio.Event,
    is_up: asyncio.Event,
) -> None:
    async with running(settings, endpoints, callbacks) as broker:
        is_up.set()
        say(f"Broker {settings.broker_id} is unfenced, epoch {broker.epoch}.")
        say(f"bootstrap.servers={','.join(addresses_of(broker))}")
        await broker.unless_ended(asyncio.create_task(_wait(stop)))


async def _wait(stop: asyncio.Event) -> None:
    await stop.wait()


def addresses_of(broker: Broker) -> list[str]:
    """Where clients reach it, listener by listener."""
    advertised = (broker.settings.advertised_as(name, port) for name, port in broker.ports.items())
    return [str(Endpoint(of.host, of.port)) for of in advertised]
