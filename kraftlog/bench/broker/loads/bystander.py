"""A client that sends small requests while another client sends large ones, and measures how long it waits.

`python -m kraftlog.bench.broker.loads.bystander HOST:PORT TOPIC` prints a line when it begins, sends requests until its
standard input ends, and prints the longest wait and the 99.9th percentile as JSON.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kraftbase.errors import ApiError
from kraftlog.bench.broker.loads.load import failed
from kraftlog.bench.figures import percentile
from kraftlog.clients.large_requests import list_offsets, produce, small_batch
from kraftlog.clients.raw_client import ConnectionClosed, RawClient, frame_of
from kraftlog.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from kraftlog.local.cluster import own_environment

LATEST: Final = -1
WARM_UP_ROUNDS: Final = 50
"""How often each request is sent uncounted."""


def small_requests(topic: str) -> list[bytes]:
    """Return the frames of Metadata for the topic, ListOffsets for its end, and Produce of one unflushed record."""
    one = (MetadataRequestTopic(name=topic),)
    return [
        frame_of(MetadataRequest(topics=one, allow_auto_topic_creation=False)),
        frame_of(list_offsets(topic, 1, LATEST)),
        frame_of(produce(topic, 0, small_batch())),
    ]


def waits(client: RawClient, frames: list[bytes], has_ended: threading.Event) -> list[float]:
    """Send one request after the other until the end; return the seconds of each wait. Raises ConnectionClosed."""
    found = []
    for number in itertools.count():
        sent = time.perf_counter()
        client.send(frames[number % len(frames)])
        client.skip_answer()
        if number == WARM_UP_ROUNDS * len(frames):
            sys.stdout.write("begun\n")
            sys.stdout.flush()
        elif number > WARM_UP_ROUNDS * len(frames):
            found.append(time.perf_counter() - sent)
            if has_ended.is_set():
                break
    return found


@contextmanager
def bystander(bootstrap_server: str, topic: str) -> Iterator[dict[str, float]]:
    """Run a bystander within the block, whose end fills the figures. Raises ApiError if it failed."""
    figures: dict[str, float] = {}
    # -P: otherwise Python would import a file of the working directory, such as snapshot.py, as kraftlog's module.
    process = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-P", "-m", __name__, bootstrap_server, topic],
        env=own_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        if process.stdout is not None and process.stdout.readline():
            yield figures
        output, errors = process.communicate()
        if process.returncode:
            raise failed(f"the client with small requests failed: {errors.strip().splitlines()[-1:]}")
        figures |= json.loads(output)
    finally:
        if process.returncode is None:
            process.kill()
            process.communicate()


def main() -> int:
    """Run the client and return the exit code."""
    bootstrap_server, topic = sys.argv[1:]
    has_ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        has_ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    try:
        with RawClient(bootstrap_server) as client:
            found = sorted(waits(client, small_requests(topic), has_ended))
    except (ApiError, ConnectionClosed, OSError) as error:
        sys.stderr.write(f"{error!r}\n")
        return 1
    answer = {"longest_wait_ms": 1_000 * found[-1], "wait_ms_p999": 1_000 * percentile(found, 99.9)}
    sys.stdout.write(json.dumps({name: round(value, 3) for name, value in answer.items()}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
