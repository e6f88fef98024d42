"""Waiting for a condition of things on the same event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], bool], seconds: float = 100) -> None:
    """Run the loop until `condition` holds; TimeoutError if it does not. However slow the machine, it may take long."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.001)


async def turns(count: int = 20) -> None:
    """Run a few turns of the loop: whatever is ready to happen happens."""
    for _ in range(count):
        await asyncio.sleep(0)
