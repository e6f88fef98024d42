"""TERM, INT and HUP ask a process to stop; under nohup HUP does not."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from kraftbase.stop_signals import STOP_SIGNALS, on_stop_signals


@pytest.fixture(autouse=True)
def given_back() -> Iterator[None]:
    """This process handles the signals as before."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_each_of_them_stops(number: signal.Signals) -> None:
    async def run() -> None:
        stop = asyncio.Event()
        on_stop_signals(stop.set)
        os.kill(os.getpid(), number)
        await asyncio.wait_for(stop.wait(), 60)

    asyncio.run(run())


def test_a_hang_up_that_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    async def run() -> list[str]:
        stopped: list[str] = []
        done = asyncio.Event()
        on_stop_signals(lambda: (stopped.append("stopped"), done.set()))
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(done.wait(), 60)
        return stopped

    assert asyncio.run(run()) == ["stopped"]
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
