"""Record what an operator sees of a broker's kill: `python tools/record_kill.py [FILE]`, or `make recording`.

It starts three voters and three brokers, writes records, kills the leading broker with SIGKILL, and starts it again. It
records the output of `kraftlog topics describe --replicas` at each step. The file is an SVG that shows one screen after
the other, without a script; a reader whose browser asks for less motion sees the last one.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple

from kraftlog.admin.client.client import AdminClient
from kraftlog.local.brokers import LocalBrokers
from kraftlog.local.cluster import LocalCluster
from kraftlog.local.cluster_directory import open_or_create

RECORDING: Final = Path(__file__).resolve().parent.parent / "docs" / "images" / "a-brokers-kill.svg"
KRAFTLOG: Final = Path(sys.executable).with_name("kraftlog")
TOPIC: Final = "orders"
DESCRIBE: Final = ("topics", "describe", TOPIC, "--replicas")
COLUMNS: Final = ("Topic", "Partition", "Role", "Broker", "LogEnd", "InSync", "Lag", "WhyNot")
RECORDS: Final = 1_000
SECONDS_MAX: Final = 60.0
SECONDS_EACH: Final = 4
INK, GREY, GROUND, EDGE = "#1f2328", "#59636e", "#ffffff", "#d1d9e0"
WIDTH, LINE_PIXELS, MARGIN = 760, 18, 20


class Screen(NamedTuple):
    """The lines that are shown at one time."""

    caption: str
    lines: tuple[str, ...]


class Recorder:
    """Runs commands as an operator would, and keeps what they print."""

    def __init__(self, nodes: str) -> None:
        self._nodes = nodes
        self.screens: list[Screen] = []

    async def run(self, *arguments: str, servers: str | None = None, given: str = "") -> str:
        """Return a command's output. Raises CalledProcessError, but not for `describe`, whose leader may be dead."""
        command = [KRAFTLOG, *arguments, "--bootstrap-server", servers or self._nodes]
        ran = await asyncio.to_thread(
            subprocess.run, command, input=given, capture_output=True, text=True, check=arguments[:2] != DESCRIBE[:2]
        )
        return ran.stdout

    async def rows(self) -> list[dict[str, str]]:
        """The table of `describe --replicas`, without the columns that a screen has no room for."""
        printed = await self.run(*DESCRIBE, "--output", "json")
        return [{name: _shown(row.get(name)) for name in COLUMNS} for row in _json(printed)]

    async def record(self, caption: str, holds: Callable[[list[dict[str, str]]], bool] = bool) -> None:
        """Record the table as soon as `holds` is true for it. Raises TimeoutError."""
        ends_at = time.monotonic() + SECONDS_MAX
        while not holds(rows := await self.rows()):
            if time.monotonic() > ends_at:
                raise TimeoutError(f"{caption}: not true after {SECONDS_MAX:g} s: {rows}")
        widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in COLUMNS}
        table = ["  ".join(name.ljust(widths[name]) for name in COLUMNS)]
        table += ["  ".join(row[name].ljust(widths[name]) for name in COLUMNS) for row in rows]
        self.screens.append(Screen(caption, (f"$ kraftlog {' '.join(DESCRIBE)}", *map(str.rstrip, table))))


async def recorded(directory: Path) -> list[Screen]:
    """Run the commands once, and return the screens."""
    cluster = LocalCluster(open_or_create(directory / "cluster", voters=3, observers=0))
    async with cluster.running(), AdminClient(cluster.bootstrap_servers) as client:
        brokers = LocalBrokers(client, cluster.bootstrap_servers, directory / "cluster", 3, None)
        await brokers.start()
        try:
            return await _recorded(Recorder(",".join(map(str, cluster.bootstrap_servers))), brokers)
        finally:
            await brokers.stop()


async def _recorded(recorder: Recorder, brokers: LocalBrokers) -> list[Screen]:
    leader = brokers.broker_ids[0]
    assignment = ":".join(map(str, brokers.broker_ids))
    options = ("--replica-assignment", assignment, "--config", "min.insync.replicas=2")
    await recorder.run("topics", "create", TOPIC, *options)
    servers = ",".join([str(await brokers.endpoint(of)) for of in brokers.broker_ids])
    lines = "\n".join(map(str, range(RECORDS)))
    await recorder.run("produce", TOPIC, servers=servers, given=lines)
    await recorder.record(f"Broker {leader} leads; all three replicas are in sync", _all_in_sync)
    killed_at = time.monotonic()
    await brokers.kill(leader)
    await recorder.record(
        "", lambda rows: any(row["Role"] == "leader" and row["Broker"] != str(leader) for row in rows)
    )
    seconds = time.monotonic() - killed_at
    recorder.screens[-1] = recorder.screens[-1]._replace(
        caption=f"kill -9 of broker {leader}: seen {seconds:.1f} s later, another one leads"
    )
    await recorder.run("produce", TOPIC, servers=servers, given=lines)
    await recorder.record(f"{RECORDS} more records are acknowledged by the other two")
    await brokers.start()
    await recorder.record(f"Broker {leader} is started again, and has fetched what it lacked", _all_in_sync)
    return recorder.screens


def _all_in_sync(rows: Sequence[dict[str, str]]) -> bool:
    return len(rows) == 3 and all(row["InSync"] == "yes" for row in rows)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def _json(printed: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(printed)
    return found


def drawn(screens: Sequence[Screen]) -> str:
    """Return the screens as one SVG, which shows each of them for `SECONDS_EACH` seconds."""
    height = 2 * MARGIN + LINE_PIXELS * (2 + max(len(screen.lines) for screen in screens))
    total, share = SECONDS_EACH * len(screens), 100 / len(screens)
    body = [_drawn_screen(number, screen, number == len(screens) - 1) for number, screen in enumerate(screens)]
    title = "; ".join(screen.caption for screen in screens)
    style = (
        f".s{{opacity:0;animation:show {total}s step-end infinite}}"
        f"@keyframes show{{0%{{opacity:1}}{share:g}%{{opacity:0}}}}"
        "@media(prefers-reduced-motion:reduce){.s{animation:none}.last{opacity:1}}"
    )
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
            ' font-family="monospace" font-size="13">',
            "<!-- Recorded by tools/record_kill.py. Do not edit. -->",
            f"<title>{escape(title)}</title>",
            f"<style>{style}</style>",
            f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8" fill="{GROUND}" stroke="{EDGE}"/>',
            *body,
            "</svg>\n",
        )
    )


def _drawn_screen(number: int, screen: Screen, is_last: bool) -> str:
    kind = "s last" if is_last else "s"
    lines = [_text(0, screen.caption, GREY), *(_text(row, line, INK) for row, line in enumerate(screen.lines, 2))]
    return f'<g class="{kind}" style="animation-delay:{number * SECONDS_EACH}s">\n' + "\n".join(lines) + "\n</g>"


def _text(row: int, text: str, fill: str) -> str:
    y = MARGIN + LINE_PIXELS * (row + 1) - 5
    return f'<text x="{MARGIN}" y="{y}" fill="{fill}" xml:space="preserve">{escape(text)}</text>'


def main(path: Path) -> None:
    """Record, and write the file."""
    with tempfile.TemporaryDirectory(prefix="record-kill-") as directory:
        screens = asyncio.run(recorded(Path(directory)))
    path.write_text(drawn(screens))
    print(f"{path}: {len(screens)} screens")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDING)
