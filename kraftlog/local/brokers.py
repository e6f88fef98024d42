"""The brokers that `kraftlog up --brokers` runs in its own process: they send heartbeats, but keep no data."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from rich.table import Table

from kraftbase.errors import ConfigurationError
from kraftlog.admin.client.client import AdminClient
from kraftlog.broker.lifecycle import PORT_BASE, BrokerLifecycle

FIRST_BROKER_ID: Final = 101
"""Above the id of every node that a local cluster can have."""

BROKERS_MAX: Final = 50

SHUTDOWN_TIMEOUT_MS: Final = 5_000
"""How long their controlled shutdowns may take in all. Without a majority no controller answers: then they just end."""


def check_broker_count(count: int) -> None:
    """Raise ConfigurationError if this many cannot be run."""
    if not 0 <= count <= BROKERS_MAX:
        raise ConfigurationError(f"{count} brokers; a local cluster has from 0 to {BROKERS_MAX}")


@asynccontextmanager
async def local_brokers(
    client: AdminClient, count: int, directory: Path, tell: Callable[[str], None]
) -> AsyncIterator[list[BrokerLifecycle]]:
    """`count` brokers that start to register with the block, and shut down controlled, all at once, at its end.

    Await `unfenced` of each within the block. If the block ends with an error, they just stop. Each records in
    `directory` how it was shut down; `tell` is called with the reason if one has to wait.
    """
    lives = [
        BrokerLifecycle(
            client,
            broker_id=broker_id,
            listeners=[("PLAINTEXT", "localhost", PORT_BASE + broker_id)],
            data_dir=str(directory / f"broker-{broker_id}"),
            tell=tell,
        )
        for broker_id in range(FIRST_BROKER_ID, FIRST_BROKER_ID + count)
    ]
    try:
        for life in lives:
            life.start()
        yield lives
        await asyncio.gather(*(life.shut_down(SHUTDOWN_TIMEOUT_MS) for life in lives))
    finally:
        for life in lives:
            await life.stop()


def add_broker_rows(table: Table, brokers: Sequence[BrokerLifecycle]) -> None:
    """One row per broker, below the nodes; what a broker does not have is left blank."""
    for life in brokers:
        address = f"localhost:{PORT_BASE + life.broker_id}"
        role, style = ("fenced broker", "red") if life.is_fenced else ("broker", None)
        table.add_row(str(life.broker_id), address, role, style=style)
