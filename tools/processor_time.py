"""Compares the processor time of a small Produce and a follower's Fetch with another checkout: `make bench-against`.

The versions run in pairs, in alternating order. Each runs one node and two brokers, and a topic with one partition,
which the first broker leads and the second follows. A producer sends one record of 100 bytes at a time with acks=all.
The result is the median of the pairs' ratios: anything that slows the machine down for a while slows down both runs of
a pair. On a machine with other load a single ratio means little; the spread of the ratios shows how much.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final

OWN_CODE: Final = Path(__file__).resolve().parent.parent
START_SECONDS: Final = 60.0
TOPIC: Final = "measured"
LEADER, FOLLOWER = 101, 102
RECORD_BYTES: Final = 100
WARM_UP_MESSAGES: Final = 300
EXPORTED: Final = re.compile(r"^ *export (KRAFTLOG_\w+)=(\S+)$", re.MULTILINE)


class MeasurementError(Exception):
    """Nothing could be measured. The message has the reason and a remedy."""


@dataclass(frozen=True)
class Cost:
    """Microseconds of processor time for each message."""

    leader: float
    follower: float


@dataclass(frozen=True)
class Pair:
    """The costs of both versions, measured one after the other."""

    against: Cost
    this: Cost

    @property
    def ratios(self) -> Cost:
        """This version's cost divided by the other's."""
        return Cost(self.this.leader / self.against.leader, self.this.follower / self.against.follower)


@dataclass(frozen=True)
class Spread:
    """The median and the range of the pairs' ratios."""

    median: float
    min: float
    max: float


def spread(ratios: Sequence[float]) -> Spread:
    """Return the spread of at least one ratio."""
    return Spread(median(ratios), min(ratios), max(ratios))


def broker_id(command: Sequence[str]) -> int | None:
    """Return the id of the broker that a command runs; None if it runs no broker."""
    if ("brokers", "run") not in pairwise(command):
        return None
    return int(command[command.index("--id") + 1])


def processor_ns(schedstats: Sequence[str]) -> int:
    """Return the processor time of tasks in nanoseconds, from the texts of their /proc/PID/task/TASK/schedstat."""
    return sum(int(text.split()[0]) for text in schedstats)


def exported(output: str) -> dict[str, str]:
    """Return the environment variables that `kraftlog up` printed for other commands."""
    return dict(EXPORTED.findall(output))


def kraftlog_of(checkout: Path) -> Path:
    """Return the path of a checkout's command. Raises MeasurementError if it is not installed."""
    command = checkout / ".venv" / "bin" / "kraftlog"
    if not (checkout / "kraftlog" / "__main__.py").is_file():
        raise MeasurementError(f"{checkout} has no kraftlog/__main__.py: give a checkout of the project")
    if not command.is_file():
        raise MeasurementError(f"{checkout} has no .venv/bin/kraftlog: run `make install` there")
    return command


# --- one run ----------------------------------------------------------------------------------------------------------


def measure(checkout: Path, messages: int) -> Cost:
    """Start a cluster of a version, send messages, and end it; return the cost. Raises MeasurementError."""
    kraftlog = kraftlog_of(checkout)
    with (
        tempfile.TemporaryDirectory(prefix="kraftlog-processor-time-") as name,
        cluster(kraftlog, Path(name)) as (process, environment),
    ):
        brokers = broker_processes(process.pid)
        if brokers.keys() != {LEADER, FOLLOWER}:
            raise MeasurementError(f"{kraftlog} up runs the brokers {sorted(brokers)}, not {LEADER} and {FOLLOWER}")
        make_topic(kraftlog, environment)
        send = sender(environment["KRAFTLOG_BROKERS"])
        send(WARM_UP_MESSAGES)
        before = {one: processor_ns(schedstats_of(pid)) for one, pid in brokers.items()}
        send(messages)
        took = {one: processor_ns(schedstats_of(pid)) - before[one] for one, pid in brokers.items()}
    return Cost(*(round(took[one] / 1_000 / messages, 1) for one in (LEADER, FOLLOWER)))


@contextmanager
def cluster(kraftlog: Path, directory: Path) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, str]]]:
    """A cluster that is up, and the environment for commands. Raises MeasurementError if it does not start."""
    output = directory / "up.log"
    command = [kraftlog, "up", "--voters", "1", "--brokers", "2", "--first-broker-port", str(free_port())]
    with output.open("wb") as log:
        process = subprocess.Popen(
            [*command, "--dir", directory / "cluster"], stdout=log, stderr=log, start_new_session=True
        )
    try:
        ends_at = time.monotonic() + START_SECONDS
        while "KRAFTLOG_BROKERS" not in exported(text := output.read_text()):
            if process.poll() is not None or time.monotonic() > ends_at:
                raise MeasurementError(f"`{kraftlog} up` has not started a cluster: {text.strip()[-500:]}")
            time.sleep(0.05)
        yield process, {**os.environ, **exported(text)}
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        process.wait()


def free_port() -> int:
    """Return a free port whose successor is free, too."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("localhost", 0))
            port = int(first.getsockname()[1])
            try:
                second.bind(("localhost", port + 1))
            except (OSError, OverflowError):
                continue
            return port


def make_topic(kraftlog: Path, environment: Mapping[str, str]) -> None:
    """Create a topic with one partition, again and again until the brokers are unfenced. Raises MeasurementError."""
    command = [kraftlog, "topics", "create", TOPIC, "--replica-assignment", f"{LEADER}:{FOLLOWER}"]
    ends_at = time.monotonic() + START_SECONDS
    while (done := subprocess.run(command, env=environment, capture_output=True, check=False)).returncode:
        if time.monotonic() > ends_at:
            raise MeasurementError(f"the topic cannot be created: {done.stderr.decode(errors='replace').strip()}")
        time.sleep(0.2)


def sender(brokers: str) -> Callable[[int], None]:
    """Return a function that sends a number of records, each after the previous one is acknowledged.

    The function raises MeasurementError.
    """
    from confluent_kafka import Producer

    failed: list[Any] = []
    logger = logging.Logger("producer", logging.CRITICAL)
    producer = Producer({"bootstrap.servers": brokers, "acks": "all", "linger.ms": 0}, logger=logger)

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    def send(count: int) -> None:
        for _ in range(count):
            producer.produce(TOPIC, b"x" * RECORD_BYTES, on_delivery=delivered)
            producer.flush()
            if failed:
                raise MeasurementError(f"a record is not acknowledged: {failed[0]}")

    return send


def broker_processes(parent: int) -> dict[int, int]:
    """Return the process of each broker that a process has started, by the broker's id."""
    found = {}
    for child in Path(f"/proc/{parent}/task").glob("*/children"):
        for pid in map(int, child.read_text().split()):
            one = broker_id(Path(f"/proc/{pid}/cmdline").read_text().split("\0"))
            if one is not None:
                found[one] = pid
    return found


def schedstats_of(pid: int) -> list[str]:
    """Return the schedstat of each present task of a process."""
    return [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]


# --- the comparison ---------------------------------------------------------------------------------------------------


def compare(against: Path, count: int, messages: int, *, is_silent: bool) -> list[Pair]:
    """Measure pairs, and print each as soon as it is complete. Raises MeasurementError."""
    pairs = []
    for number in range(count):
        costs = {}
        for code in (against, OWN_CODE) if number % 2 == 0 else (OWN_CODE, against):
            costs[code] = measure(code, messages)
        pair = Pair(costs[against], costs[OWN_CODE])
        pairs.append(pair)
        if not is_silent:
            print(line(f"pair {number + 1}", pair), flush=True)
    return pairs


def line(label: str, pair: Pair) -> str:
    """Return a pair as a line of text."""
    ratios, other, this = pair.ratios, pair.against, pair.this
    return (
        f"{label:8}  leader {this.leader:7.1f} us against {other.leader:7.1f}, {ratios.leader:.3f}"
        f"    follower {this.follower:7.1f} us against {other.follower:7.1f}, {ratios.follower:.3f}"
    )


def result(pairs: Sequence[Pair], messages: int) -> dict[str, Any]:
    """Return all figures in the form of the JSON output."""
    ratios = [pair.ratios for pair in pairs]
    return {
        "messages": messages,
        "pairs": [asdict(pair) for pair in pairs],
        "leader_ratio": asdict(spread([one.leader for one in ratios])),
        "follower_ratio": asdict(spread([one.follower for one in ratios])),
    }


def main() -> int:
    """Compare, and return the exit code: 2 if nothing could be measured."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    parser.add_argument("--against", type=Path, required=True, metavar="CHECKOUT", help="the other version, installed")
    parser.add_argument("--pairs", type=int, default=10, help="how many; default: 10")
    parser.add_argument("--messages", type=int, default=2_500, help="in each run; default: 2500")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="what to print; default: text")
    arguments = parser.parse_args()
    if min(arguments.pairs, arguments.messages) < 1:
        parser.error("--pairs and --messages must be at least 1")
    against = arguments.against.resolve()
    try:
        for checkout in (against, OWN_CODE):
            kraftlog_of(checkout)
        pairs = compare(against, arguments.pairs, arguments.messages, is_silent=arguments.output == "json")
    except MeasurementError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    figures = result(pairs, arguments.messages)
    if arguments.output == "json":
        print(json.dumps(figures, indent=2))
        return 0
    for name in ("leader", "follower"):
        of = figures[f"{name}_ratio"]
        print(f"{name}: median ratio {of['median']:.3f}, from {of['min']:.3f} to {of['max']:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
