"""How fast a broker of this code, and one of another checkout, accepts records.

A broker of each version runs all the time, each with its own voter. Both get the same records in pairs, into a new
topic each time: 1 KB records without flushes and with `flush.before.ack`, and small records of different sizes. The
result is the median of the pairs' ratios.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.table import Table

import kraftlog
from kraftbase.checks import check
from kraftbase.errors import ConfigurationError
from kraftlog.admin.client.client import AdminClient
from kraftlog.bench.broker.loads.produce import Produce
from kraftlog.bench.figures import write_json
from kraftlog.bench.machine import machine
from kraftlog.config.endpoints import parse_endpoints
from statemachine.query.descriptions import NewTopic

OWN_CODE: Final = Path(kraftlog.__file__).resolve().parents[1]
BATCH_BYTES: Final = 65_536
LIMIT: Final = 0.97
"""The required speed of this code, as a share of the other version's."""
START_SECONDS: Final = 60.0

Pairs = list[tuple[float, float]]


class Row(NamedTuple):
    """One of the loads."""

    name: str
    is_flushed: bool = False
    record_bytes_min: int = 1_000
    record_bytes: int = 1_000
    divisor: int = 1
    """The number of bytes is divided by this."""


ROWS: Final = (
    Row("without flushes"),
    Row("flush.before.ack", is_flushed=True, divisor=4),
    Row("50 to 150 bytes", record_bytes_min=50, record_bytes=150, divisor=4),
)


class Cluster(NamedTuple):
    """One voter and one broker of a version."""

    nodes: str
    brokers: str


async def run(
    against: Path, pairs: int, total_bytes: int, directory: Path | None, json_path: Path | None, console: Console
) -> bool:
    """Measure, print and write the result; return whether the limit holds.

    Raises ConfigurationError if there is no kraftlog in `against`.
    """
    if not (against / "kraftlog" / "__main__.py").exists():
        raise ConfigurationError(f"{against} has no kraftlog/__main__.py; give a checkout of the project")
    found: dict[Row, Pairs] = {row: [] for row in ROWS}
    with tempfile.TemporaryDirectory(prefix="kraftlog-produce-", dir=directory) as name, console.status("") as status:
        async with AsyncExitStack() as stack:
            clusters = {}
            for label, code in (("other", against), ("own", OWN_CODE)):
                status.update(f"starting {code}")
                clusters[label] = await stack.enter_async_context(_running(code, Path(name) / label))
            for pair in range(-1, pairs):  # the first one does not count
                order = ("other", "own") if pair % 2 == 0 else ("own", "other")
                for number, (row, of) in enumerate(found.items()):
                    status.update(f"pair {pair + 1} of {pairs}")
                    topic, size = f"t{pair + 1}-{number}", total_bytes // row.divisor
                    speeds = {label: await _produce(clusters[label], topic, size, row) for label in order}
                    if pair >= 0:
                        of.append((speeds["other"], speeds["own"]))
    _print(found, console)
    result = {row.name: of for row, of in found.items()}
    write_json(json_path, {"megabytes_per_second": result, "machine": await machine(directory)})
    return all(_ratio(of) >= LIMIT for of in found.values())


@asynccontextmanager
async def _running(code: Path, path: Path) -> AsyncIterator[Cluster]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "kraftlog", "up", "--dir", str(path), "--voters", "1", "--brokers", "1"),
        env={**os.environ, "PYTHONPATH": str(code)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    output = process.stdout
    found: dict[str, str] = {}
    check(output is not None, "its standard output is a pipe")
    try:
        async with asyncio.timeout(START_SECONDS):
            while not {"nodes", "brokers"} <= found.keys():
                line = (await output.readline()).decode()  # type: ignore[union-attr]
                if not line:
                    raise ConfigurationError(f"kraftlog up of {code} ended with exit code {await process.wait()}")
                for key, name in (("nodes", "KRAFTLOG_BOOTSTRAP_SERVER"), ("brokers", "bootstrap.servers")):
                    _, is_there, value = line.strip().partition(f"{name}=")
                    if is_there:
                        found[key] = value
        yield Cluster(**found)
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        await process.communicate()


async def _produce(cluster: Cluster, topic: str, total_bytes: int, row: Row) -> float:
    """Return the megabytes per second into a new topic, which is deleted afterwards."""
    configs = {"flush.before.ack": str(row.is_flushed).lower()}
    async with AdminClient(parse_endpoints(cluster.nodes)) as client:
        await client.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1, configs=configs)])
        load = Produce(
            bootstrap_servers=cluster.brokers, topic=topic, broker_pids=(), batch_bytes=BATCH_BYTES,
            total_bytes=total_bytes, record_bytes=row.record_bytes, record_bytes_min=row.record_bytes_min,
        )  # fmt: skip
        figures = await asyncio.to_thread(load.run)
        await client.delete_topics([topic])
    return figures["megabytes_per_second"]


def _ratio(pairs: Sequence[tuple[float, float]]) -> float:
    return float(median(own / other for other, own in pairs))


def _print(found: Mapping[Row, Pairs], console: Console) -> None:
    table = Table("", "other, MB/s", "this code, MB/s", "ratio", "limit", title="Produce, medians", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for row, pairs in found.items():
        ratio = _ratio(pairs)
        cells: list[Any] = [f"{median(other for other, _ in pairs):.1f}", f"{median(own for _, own in pairs):.1f}"]
        missed = "" if ratio >= LIMIT else ", missed"
        table.add_row(row.name, *cells, f"{ratio:.2f}", f"{LIMIT}{missed}")
    console.print(table)
