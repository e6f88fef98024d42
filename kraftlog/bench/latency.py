"""How long one admin operation takes, and how long until every observer's listener has seen it.

Operations run one at a time, each submitted when the previous one is visible at the last observer: the wait of a user
who creates a topic and then uses it. A short pause precedes each operation, so that the fetches that delivered the
previous one are parked again, as they are for a user's operation. Times are CLOCK_MONOTONIC, which client and observers
share. Operations are not retried; a failed one is counted and makes the benchmark fail.

Fetch 17 is measured as with a leader before Kafka 4.1: a parked fetch waits until it times out. A leader of Kafka 4.3
also answers fetches of older versions when its high watermark moves (measured there: mean 15 ms, 444 ms at most).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.status import Status

from kraftbase.errors import ApiError
from kraftlog.admin.client.client import AdminClient
from kraftlog.bench.figures import summary, times_table, write_json
from kraftlog.bench.machine import machine
from kraftlog.bench.probe import Visibility, probe_command
from kraftlog.bench.workload import OBSERVERS, VOTERS, bench_cluster, create_topic_operation, execute_once, prepared

WARM_UP_OPERATIONS: Final = 20
PAUSE_SECONDS: Final = (0.001, 0.005)
"""The range of the random pause between operations, which keeps it out of step with the nodes' timers."""
MEASURES: Final = ("submit_to_ack_ms", "ack_to_visible_ms", "submit_to_visible_ms", "submit_to_applied_ms")

Progress = Callable[[int, int], None]
"""Called after each operation with the number of completed operations and the number of all."""


@dataclass(slots=True)
class Measured:
    """The times of the operations that succeeded, in milliseconds, and the errors of those that did not."""

    submit_to_ack_ms: list[float] = field(default_factory=list)
    ack_to_visible_ms: list[float] = field(default_factory=list)
    submit_to_visible_ms: list[float] = field(default_factory=list)
    submit_to_applied_ms: list[float] = field(default_factory=list)
    """Filled only if requested."""
    errors: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """Each measure's summary, the count of operations and of failures."""
        figures: dict[str, Any] = {name: summary(getattr(self, name)) for name in MEASURES if getattr(self, name)}
        return {**figures, "operations": len(self.submit_to_ack_ms), "failed": len(self.errors)}


async def measure(
    fetch_version: int,
    operations: int,
    directory: Path | None = None,
    *,
    warm_up: int = WARM_UP_OPERATIONS,
    progress: Progress | None = None,
) -> Measured:
    """Measure on a new cluster whose fetches have that version; the first `warm_up` operations do not count."""
    observer_ids = frozenset(range(VOTERS + 1, VOTERS + OBSERVERS + 1))
    with Visibility.listening(observer_ids) as visibility:
        async with (
            bench_cluster(
                directory,
                f"fetch-{fetch_version}",
                settings={"fetch.version": fetch_version},
                command=probe_command(visibility),
            ) as cluster,
            AdminClient(cluster.bootstrap_servers) as client,
            prepared(client),
        ):
            await time_operations(client, visibility, "warm-up", warm_up)
            return await time_operations(client, visibility, "topic", operations, progress)


async def time_operations(
    client: AdminClient,
    visibility: Visibility,
    prefix: str,
    operations: int,
    progress: Progress | None = None,
    *,
    applied: Visibility | None = None,
) -> Measured:
    """Time operations, each submitted when the previous one is visible, and, with `applied`, applied everywhere.

    `prefix` is for the names of the topics.
    """
    measured = Measured()
    for number in range(operations):
        operation = create_topic_operation(f"{prefix}-{number}")
        await asyncio.sleep(random.uniform(*PAUSE_SECONDS))  # noqa: S311 (no secret)
        submitted_ns = time.monotonic_ns()
        try:
            result = await execute_once(client, operation)
            acknowledged_ns = time.monotonic_ns()
            visible_ns = await visibility.wait_for(result.end_offset)
            applied_ns = None if applied is None else await applied.wait_for(result.end_offset)
        except ApiError as error:
            measured.errors.append(str(error))
            continue
        measured.submit_to_ack_ms.append((acknowledged_ns - submitted_ns) / 1e6)
        # A listener may see the commit before the client has read its acknowledgement: then the wait is 0.
        measured.ack_to_visible_ms.append(max(0, visible_ns - acknowledged_ns) / 1e6)
        measured.submit_to_visible_ms.append((max(visible_ns, acknowledged_ns) - submitted_ns) / 1e6)
        if applied_ns is not None:
            measured.submit_to_applied_ms.append((applied_ns - submitted_ns) / 1e6)
        if progress is not None:
            progress(number + 1, operations)
    return measured


async def run(
    fetch_versions: Sequence[int], operations: int, directory: Path | None, json_path: Path | None, console: Console
) -> bool:
    """Measure each version, print and write the result; returns whether every operation succeeded."""
    measured = {}
    for version in fetch_versions:
        with console.status(f"Fetch {version}: starting {VOTERS} voters and {OBSERVERS} observers") as status:
            progress = partial(_show_progress, status, version)
            measured[version] = await measure(version, operations, directory, progress=progress)
    result = {
        "fetch_version": {str(version): found.figures() for version, found in measured.items()},
        "machine": await machine(directory),
    }
    write_json(json_path, result)
    console.print(latency_table({version: found.figures() for version, found in measured.items()}))
    for version, found in measured.items():
        if found.errors:
            console.print(f"Fetch {version}: {len(found.errors)} operations failed, the first: {found.errors[0]}")
    return not any(found.errors for found in measured.values())


def _show_progress(status: Status, version: int, done: int, of: int) -> None:
    status.update(f"Fetch {version}: {done} of {of} operations")


def latency_table(figures: dict[int, dict[str, Any]]) -> Any:
    """Return a table with the measures of all versions one below the other, so that the bars can be compared."""
    rows = [
        (f"{name.removesuffix('_ms').replace('_', ' ')}, Fetch {version}", of_version[name])
        for name in MEASURES
        for version, of_version in figures.items()
        if name in of_version
    ]
    return times_table("One admin operation at a time, milliseconds", rows)
