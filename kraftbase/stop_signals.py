"""The signals that ask a process to stop in its own order: SIGTERM, SIGINT, and SIGHUP when its terminal goes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Final

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def on_stop_signals(stop: Callable[[], object]) -> None:
    """Let each of them call `stop` in the running event loop; SIGHUP stays ignored where it is, as under nohup."""
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop)
