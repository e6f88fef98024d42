"""Readers whose records retention deletes: only what they were told is out of range may be missing."""

from __future__ import annotations

from random import Random

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


@pytest.fixture
def clients() -> SteadyClients:
    return SteadyClients("localhost:1", [AT], RetainedLedger(), Random(1), 100.0)


def take(clients: SteadyClients, *messages: GivenMessage) -> list[bool]:
    return [clients.take("reader 0", message) for message in messages]  # type: ignore[arg-type]


def test_a_gap_is_a_violation(clients: SteadyClients) -> None:
    take(clients, GivenMessage(4), GivenMessage(5), GivenMessage(7))
    assert clients.ledger.violations == ["reader 0 got offset 7 of three-0, expected 6"]


def test_a_reader_that_is_out_of_range_goes_on_at_the_start_of_the_log(clients: SteadyClients) -> None:
    error = KafkaError(KafkaError._AUTO_OFFSET_RESET)
    assert take(clients, GivenMessage(4), GivenMessage(-1, error)) == [True, False]
    assert clients.next_offsets["reader 0"] == {AT: OFFSET_BEGINNING}
    assert take(clients, GivenMessage(9), GivenMessage(10)) == [True, True]
    assert clients.ledger.violations == []
    assert clients.ledger.counts["deleted before a reader came"] == 4
    take(clients, GivenMessage(12))
    assert len(clients.ledger.violations) == 1


def test_a_reader_that_was_beyond_the_end_is_a_violation(clients: SteadyClients) -> None:
    error = KafkaError(KafkaError._AUTO_OFFSET_RESET)
    take(clients, GivenMessage(4), GivenMessage(-1, error), GivenMessage(2))
    assert clients.ledger.violations == ["reader 0 got offset 2 of three-0, expected 5"]


def test_a_reader_that_is_told_of_a_cut_goes_on_and_what_it_has_read_must_be_there(clients: SteadyClients) -> None:
    told = GivenMessage(-1, KafkaError(KafkaError._LOG_TRUNCATION))
    assert take(clients, GivenMessage(4), GivenMessage(-1, KafkaError(KafkaError._TRANSPORT)), told) == [
        True,
        True,
        False,
    ]
    assert clients.next_offsets["reader 0"] == {AT: 5}
    assert clients.ledger.counts["readers told of a cut"] == 1
    assert clients.ledger.violations == []
    clients.ledger.compare(AT, {}, 5)
    assert "read and lost" in clients.ledger.violations[0]


def test_a_reader_that_lacks_what_was_acknowledged_is_named_with_its_last_error(clients: SteadyClients) -> None:
    clients.ledger.acknowledge(AT, 4, "k")
    take(clients, GivenMessage(3), GivenMessage(-1, KafkaError(KafkaError._TRANSPORT)))
    (first, second) = clients.until_all_is_read(0)
    assert first.startswith("reader 0 has read") and first.endswith("Local: Broker transport failure")
    assert second.endswith("its last error: none")
    for name in clients.next_offsets:
        clients.take(name, GivenMessage(4))  # type: ignore[arg-type]
    assert clients.until_all_is_read(0) == []


def test_every_producer_has_a_codec_of_its_own(clients: SteadyClients) -> None:
    found = [clients.producer_settings(number)["compression.type"] for number in range(len(CODECS))]
    assert tuple(found) == CODECS
    assert {len(clients.value(Random(seed))) for seed in range(200)} == {200, 2_000, 30_000}
