"""A client that asks for little all the time, while another one asks for much: how long does it wait?

`python -m kraftlog.bench.broker.loads.bystander HOST:PORT TOPIC` prints a line when it begins, asks until its standard
input ends, and prints the longest wait and the 99.9th percentile as JSON.
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
"""Of each request, not counted."""


def small_requests(topic: str) -> list[bytes]:
    """Metadata of the topic, where its partition ends, and one record, which is not flushed."""
    one = (MetadataRequestTopic(name=topic),)
    return [
        frame_of(MetadataRequest(topics=one, allow_auto_topic_creation=False)),
        frame_of(list_offsets(topic, 1, LATEST)),
        frame_of(produce(topic, 0, small_batch())),
    ]


def waits(client: RawClient, frames: list[bytes], has_ended: threading.Event) -> list[float]:
    """Seconds of each wait, of one request after the other, until the end. Raises ConnectionClosed."""
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
    """One is asking within the block; at its end the figures are there. Raises ApiError if it failed."""
    figures: dict[str, float] = {}
    # -P: otherwise a file in the user's working directory, such as a snapshot.py, is taken for a module of ours.
    process = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-P", "-m", __name__, bootstrap_server, topic],
        env=own_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        if process.stdout is not None and process.stdout.readline():
            yield figures
        output, errors = process.communicate()
        if process.returncode:
            raise failed(f"the client that asks for little failed: {errors.strip().splitlines()[-1:]}")
        figures |= json.loads(output)
    finally:
        if process.returncode is None:
            process.kill()
            process.communicate()


def main() -> int:
    """Returns the exit code."""
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
