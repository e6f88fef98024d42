"""Readers whose records retention deletes: only what they were told is out of range may be missing."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError

from kraftlog.chaos.brokers.ledger import At
from kraftlog.chaos.soak.brokers.ledger import RetainedLedger
from kraftlog.chaos.soak.brokers.load import CODECS, SteadyClients

AT = At("three", 0)


class GivenMessage:
    """What a consumer gives: a record, or an error of a partition."""

    def __init__(self, offset: int, error: KafkaError | None = None) -> None:
        self._offset, self._error = offset, error

    def topic(self) -> str:
        return AT.topic

    def partition(self) -> int:
        return AT.partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return f"k{self._offset}".encode()

    def error(self) -> KafkaError | None:
        return self._error


class Seeker:
    """A consumer that remembers where it was sent."""

    def __init__(self) -> None:
        self.sought: list[Any] = []

    def seek(self, partition: Any) -> None:
        self.sought.append(partition)


@pytest.fixture
def clients() -> SteadyClients:
    return SteadyClients("localhost:1", [AT], RetainedLedger(), Random(1), 100.0)


def take(clients: SteadyClients, *messages: GivenMessage) -> Seeker:
    seeker = Seeker()
    for message in messages:
        clients.take("reader 0", seeker, message)  # type: ignore[arg-type]
    return seeker


def test_a_gap_is_a_violation(clients: SteadyClients) -> None:
    take(clients, GivenMessage(4), GivenMessage(5), GivenMessage(7))
    assert clients.ledger.violations == ["reader 0 was given offset 7 of three-0 where 6 comes next"]


def test_a_reader_that_is_out_of_range_goes_on_at_the_start_of_the_log(clients: SteadyClients) -> None:
    error = KafkaError(KafkaError._AUTO_OFFSET_RESET)
    seeker = take(clients, GivenMessage(4), GivenMessage(-1, error), GivenMessage(9), GivenMessage(10))
    assert [of.offset for of in seeker.sought] == [OFFSET_BEGINNING]
    assert clients.ledger.violations == []
    assert clients.ledger.counts["deleted before a reader came"] == 4
    take(clients, GivenMessage(12))
    assert len(clients.ledger.violations) == 1


def test_a_reader_that_was_beyond_the_end_is_a_violation(clients: SteadyClients) -> None:
    error = KafkaError(KafkaError._AUTO_OFFSET_RESET)
    take(clients, GivenMessage(4), GivenMessage(-1, error), GivenMessage(2))
    assert clients.ledger.violations == ["reader 0 was given offset 2 of three-0 where 5 comes next"]


def test_a_reader_that_is_told_of_a_cut_goes_on_and_what_it_has_read_must_be_there(clients: SteadyClients) -> None:
    seeker = take(clients, GivenMessage(4), GivenMessage(-1, KafkaError(KafkaError._LOG_TRUNCATION)))
    assert [of.offset for of in seeker.sought] == [5]
    assert clients.ledger.counts["readers told of a cut"] == 1
    assert clients.ledger.violations == []
    clients.ledger.compare(AT, {}, 5)
    assert "read and lost" in clients.ledger.violations[0]


def test_every_producer_has_a_codec_of_its_own(clients: SteadyClients) -> None:
    found = [clients.producer_settings(number)["compression.type"] for number in range(len(CODECS))]
    assert tuple(found) == CODECS
    assert {len(clients.value(Random(seed))) for seed in range(200)} == {200, 2_000, 30_000}
