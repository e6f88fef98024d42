"""The producers and readers of a soak of brokers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from kraftlog.chaos.brokers.clients import CONNECTED, LIST_SECONDS, Clients, entry_of
from kraftlog.chaos.brokers.ledger import At
from kraftlog.chaos.soak.brokers.ledger import RetainedLedger

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""The codecs, one for each producer."""
VALUE_BYTES: Final = ((200, 14), (2_000, 5), (30_000, 1))
"""Sizes of values, and how often each is drawn."""
VALUE_BYTES_MEAN: Final = sum(size * weight for size, weight in VALUE_BYTES) / sum(weight for _, weight in VALUE_BYTES)
NOISE_BYTES: Final = 1 << 20
LEFT_BEHIND_ERRORS: Final = (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)
LOG_START_SECONDS: Final = 15.0
"""The interval at which the log starts are requested."""


class SteadyClients(Clients):
    """Producers with one codec each and records of several sizes, and readers that retention may overtake."""

    def __init__(
        self,
        bootstrap_servers: str,
        partitions: Sequence[At],
        ledger: RetainedLedger,
        random: Random,
        records_per_second: float,
    ) -> None:
        """`records_per_second` is the rate of all producers together."""
        super().__init__(bootstrap_servers, partitions, ledger, random, len(CODECS), records_per_second / len(CODECS))
        self._retained = ledger
        self._noise = random.randbytes(NOISE_BYTES)
        self._expected: dict[tuple[str, At], int] = {}
        self._left_behind: set[tuple[str, At]] = set()
        """Readers that got the error that their offset is out of range."""
        self._readers.append(threading.Thread(target=self._guarded, args=(self._watch_log_starts,)))

    def producer_settings(self, number: int) -> dict[str, Any]:
        """Return the settings of a producer, with its codec."""
        return {**super().producer_settings(number), "compression.type": CODECS[number % len(CODECS)]}

    def value(self, random: Random) -> bytes:
        """Return a value of which half is noise, which no codec can compress."""
        (size,) = random.choices([size for size, _ in VALUE_BYTES], [weight for _, weight in VALUE_BYTES])
        at = random.randrange(NOISE_BYTES - size)
        return self._noise[at : at + size // 2] + bytes(size - size // 2)

    def take(self, name: str, message: Message) -> bool:
        """As in Clients; a reader whose records were deleted by retention continues at the log start."""
        error = message.error()
        if error is None:
            at, offset, _ = entry_of(message)
            self._advance(name, at, offset)
        elif error.code() in LEFT_BEHIND_ERRORS:
            topic, partition = message.topic(), message.partition()
            if topic is not None and partition is not None:
                self._left_behind.add((name, At(topic, partition)))
                self.next_offsets[name][At(topic, partition)] = OFFSET_BEGINNING
                return False
        return super().take(name, message)

    def _advance(self, name: str, at: At, offset: int) -> None:
        """Check that a reader's offsets have no gaps, except where retention was faster than the reader."""
        expected = self._expected.get((name, at), offset)
        if offset > expected and (name, at) in self._left_behind:
            self._retained.skip(at, expected, offset)
        elif offset != expected:
            self.ledger.break_rule(f"{name} got offset {offset} of {at}, expected {expected}")
        self._left_behind.discard((name, at))
        self._expected[name, at] = offset + 1

    def _watch_log_starts(self) -> None:
        """Forget records that retention deleted, one round later: an acknowledgment may arrive after the deletion."""
        starts: dict[At, int] = {}
        while not self._may_end.wait(LOG_START_SECONDS):
            for at, start in starts.items():
                self._retained.forget(at, start)
            starts = log_starts(self._bootstrap_servers, self._partitions)


def log_starts(bootstrap_servers: str, partitions: Sequence[At]) -> dict[At, int]:
    """Return the log start offsets of the partitions whose leaders answer."""
    client = AdminClient({**CONNECTED, "bootstrap.servers": bootstrap_servers})
    asked = {TopicPartition(*at): OffsetSpec.earliest() for at in partitions}  # type: ignore[no-untyped-call]
    found = {}
    for of, answer in client.list_offsets(asked, request_timeout=LIST_SECONDS).items():
        with suppress(KafkaException):
            found[At(of.topic, of.partition)] = answer.result().offset
    return found
