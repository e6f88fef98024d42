"""One client sends the largest or most repetitive requests, while another one sends small requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from kraftbase.errors import ErrorCode
from kraftlog.bench.broker.loads.bystander import bystander
from kraftlog.bench.broker.loads.load import Load, failed
from kraftlog.clients.large_requests import (
    describe_configs,
    fetch,
    full_batch,
    list_offsets,
    metadata,
    metadata_of_all,
    produce,
    records_in,
    repeated_record,
    small_batch,
)
from kraftlog.clients.raw_client import RawClient, exchange, frame_of
from kraftlog.kafka.apis import ELEMENTS_MAX
from kraftlog.kafka.messages.list_offsets import ListOffsetsResponse
from kraftlog.kafka.messages.produce import ProduceResponse
from kraftlog.kafka.notation import Message

TAKEN: Final = ELEMENTS_MAX - 10
"""A request with this many elements, and those that contain them, is accepted."""
REFUSED: Final = 1_000_000
BATCH_BYTES: Final = 1_000_000
REPEATED_RECORDS: Final = 7_000_000
CONFIGS: Final = 51_200
PIPELINED: Final = 100
MAX_TIMESTAMP: Final = -3
EPOCH_MS: Final = 1_600_000_000_000
"""The timestamp of the first record of a full batch."""


class HostileRequest(NamedTuple):
    """A request, and how it is sent."""

    label: str
    make: Callable[[str], Message]
    """Makes the request from the topic's name."""
    connections: int = 1
    times: int = 1
    """How often each connection sends the request without waiting for answers."""
    longest_wait_ms: float = 250
    """The limit on how long the other client waits."""


LAST_RECORD_MS: Final = EPOCH_MS + records_in(BATCH_BYTES) - 1
"""The timestamp of the last record of the first full batch: a search for it reads all records of the batch."""
BYSTANDER: Final = "-bystander"
"""The suffix of the topic that the other client uses."""
PRODUCED: Final = "-produced"
"""The suffix of the topic to which Produce requests go, so that searches find the same records as before."""


HOSTILE: Final[Mapping[str, HostileRequest]] = {
    "times-20": HostileRequest(
        "ListOffsets by time, 20 partitions", lambda topic: list_offsets(topic, 20, LAST_RECORD_MS)
    ),
    "times-60": HostileRequest(
        "ListOffsets by time, 60 partitions", lambda topic: list_offsets(topic, 60, LAST_RECORD_MS)
    ),
    "newest-60": HostileRequest(
        "ListOffsets, largest timestamp, 60", lambda topic: list_offsets(topic, 60, MAX_TIMESTAMP)
    ),
    "gzip": HostileRequest(
        "Produce, 7,000,000 records in 71 KB", lambda topic: produce(topic, 0, repeated_record(REPEATED_RECORDS))
    ),
    "configs": HostileRequest(
        "DescribeConfigs, 1 topic 51,200 times, by 3", lambda topic: describe_configs(topic, CONFIGS), connections=3
    ),
    "produce": HostileRequest(
        f"Produce, 1 partition {TAKEN:,} times", lambda topic: produce(topic + PRODUCED, 0, small_batch(), times=TAKEN)
    ),
    "fetch": HostileRequest(f"Fetch, {TAKEN:,} partitions", lambda topic: fetch(topic, TAKEN)),
    "fetch-1m": HostileRequest(f"Fetch, {REFUSED:,} partitions", lambda topic: fetch(topic, REFUSED)),
    "metadata": HostileRequest(f"Metadata, {TAKEN:,} unknown topics", lambda topic: metadata(TAKEN)),
    "metadata-1m": HostileRequest(f"Metadata, {REFUSED:,} unknown topics", lambda topic: metadata(REFUSED)),
    "pipelined": HostileRequest(
        "30 connections, 100 pipelined Metadata each", lambda topic: metadata_of_all(), 30, PIPELINED, 100
    ),
}
"""The requests by the names of their figures; each is one row of issue 29."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill(Load):
    """Produces two full batches of small records to each partition of a topic."""

    partitions: int

    def run(self) -> dict[str, float]:
        """Fill the partitions. Raises ApiError if a batch is refused."""
        batch = full_batch(BATCH_BYTES, EPOCH_MS)
        later = full_batch(BATCH_BYTES, EPOCH_MS + BATCH_BYTES)
        with RawClient(self.bootstrap_servers) as client:
            for index in range(self.partitions):
                for records in (batch, later):
                    answer = cast(ProduceResponse, client.ask(produce(self.topic, index, records)))
                    code = answer.responses[0].partition_responses[0].error_code
                    if code != ErrorCode.NONE:
                        raise failed(f"a batch of small records was refused with error {code}")
            last = records_in(BATCH_BYTES) - 1
            answers = cast(ListOffsetsResponse, client.ask(list_offsets(self.topic, self.partitions, LAST_RECORD_MS)))
        found = {part.offset for part in answers.topics[0].partitions}
        if found != {last}:
            raise failed(f"ListOffsets by time found offsets {sorted(found)[:3]}, not {last}")
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hostile(Load):
    """Sends one of `HOSTILE`, again and again for some seconds, and at least once."""

    request: str
    seconds: float

    def run(self) -> dict[str, float]:
        """Return the other client's waits, the longest call, and the number of calls. Raises ApiError."""
        asked = HOSTILE[self.request]
        frames = frame_of(*[asked.make(self.topic)] * asked.times)
        calls, refused = list[float](), 0
        with bystander(self.bootstrap_servers, self.topic + BYSTANDER) as waits:
            ends_at = time.perf_counter() + self.seconds
            while not calls or time.perf_counter() < ends_at:
                began = time.perf_counter()
                refused += exchange(self.bootstrap_servers, asked.connections, frames, asked.times)
                if self.request == "gzip":
                    self._look_up()
                calls.append(time.perf_counter() - began)
        return {
            **waits,
            "call_seconds": round(max(calls), 3),
            "calls": len(calls),
            "refused": refused,
        }

    def _look_up(self) -> None:
        """Send a ListOffsets by time after the batch that the broker should refuse. Raises ApiError."""
        with RawClient(self.bootstrap_servers) as client:
            answer = cast(ListOffsetsResponse, client.ask(list_offsets(self.topic, 1, LAST_RECORD_MS)))
        code = answer.topics[0].partitions[0].error_code
        if code != ErrorCode.NONE:
            raise failed(f"ListOffsets failed with error {code}")
