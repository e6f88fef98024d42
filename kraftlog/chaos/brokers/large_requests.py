"""A client that sends the largest requests that a broker accepts, and disconnects in the middle of some of them.

It checks nothing itself: other clients must still get correct answers, and no broker may be fenced because of it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Final

from kraftlog.chaos.brokers.ledger import At
from kraftlog.clients.large_requests import (
    describe_configs,
    fetch,
    list_offsets,
    metadata,
    produce,
    repeated_record,
    small_batch,
)
from kraftlog.clients.raw_client import ConnectionClosed, RawClient, frame_of

TOPIC: Final = "large"
"""The topic that it produces to. No other client reads it."""
ELEMENTS: Final = 40_000
REPEATED_RECORDS: Final = 7_000_000
BATCHES: Final = 4_000
PRODUCES_MAX: Final = 30
"""The bound for a run, since a broker's disk is small."""
MAX_TIMESTAMP: Final = -3
REST_SECONDS: Final = (0.1, 0.8)
ANSWER_SECONDS: Final = 15.0
"""The client leaves a broker that does not answer within this time."""
LEAVES: Final = 0.3
"""The share of requests whose answer it does not wait for; half of these are not sent completely."""


class LargeRequests:
    """One thread, one connection after the other, to any of the brokers."""

    def __init__(
        self,
        bootstrap_servers: str,
        partitions: Sequence[At],
        random: Random,
        rest_seconds: tuple[float, float] = REST_SECONDS,
    ) -> None:
        """Starts nothing. `partitions` are the partitions that it looks up."""
        self.counts: Counter[str] = Counter()
        """The number of requests by kind, and by their end: "answered", "left" or "not answered"."""
        self._servers = bootstrap_servers.split(",")
        self._random = random
        self.rest_seconds = rest_seconds
        """The shortest and the longest time between two requests. It may be changed during the run."""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="large requests")
        topics = Counter(at.topic for at in partitions)
        (topic, count), *_ = topics.most_common(1)
        self._frames = {
            "ListOffsets by time": frame_of(list_offsets(topic, count, 1)),
            "ListOffsets, largest timestamp": frame_of(list_offsets(topic, count, MAX_TIMESTAMP)),
            "DescribeConfigs of one topic": frame_of(describe_configs(topic, ELEMENTS)),
            "Fetch": frame_of(fetch(topic, ELEMENTS)),
            "Metadata": frame_of(metadata(ELEMENTS)),
            "Produce of many records": frame_of(produce(TOPIC, 0, repeated_record(REPEATED_RECORDS))),
            "Produce of one partition": frame_of(produce(TOPIC, 0, small_batch(), times=BATCHES)),
        }

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sending, and wait until the last request has ended."""
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(self._random.uniform(*self.rest_seconds)):
            kind = self._random.choice(list(self._frames))
            frame = self._frames[kind]
            if kind.startswith("Produce of one") and self.counts[kind] >= PRODUCES_MAX:
                continue
            self.counts[kind] += 1
            self.counts[self._end_of(frame)] += 1

    def _end_of(self, frame: bytes) -> str:
        """Send one request; return how it ended."""
        leaves = self._random.random() < LEAVES
        is_cut = leaves and self._random.random() < 0.5
        try:
            with RawClient(self._random.choice(self._servers), ANSWER_SECONDS) as client:
                client.send(frame[: self._random.randrange(len(frame))] if is_cut else frame)
                if not leaves:
                    client.skip_answer()
        except (OSError, ConnectionClosed):
            return "not answered"  # the broker was killed or paused, or refuses the request
        return "left" if leaves else "answered"
