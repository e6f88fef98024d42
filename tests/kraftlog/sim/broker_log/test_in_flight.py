"""A simulated producer numbers what it has in flight as Kafka's does."""

from __future__ import annotations

from kraftlog.kafka.records import Record
from kraftlog.sim.broker_log.in_flight import IN_FLIGHT_MAX, NO_PRODUCER, InFlight, Sent


def add(in_flight: InFlight, count: int = 2) -> Sent:
    return in_flight.add([Record(offset, 0, None, b"v") for offset in range(count)])


def numbers(in_flight: InFlight) -> list[tuple[int, int]]:
    return [(sent.batch.producer_epoch, sent.batch.base_sequence) for sent in in_flight.sent]


def test_only_the_oldest_batch_shows_that_something_is_lost_and_then_all_have_new_numbers() -> None:
    in_flight = InFlight(7)
    first, second, third = add(in_flight), add(in_flight), add(in_flight)
    assert numbers(in_flight) == [(0, 0), (0, 2), (0, 4)]
    assert not in_flight.is_lost(third)
    in_flight.acknowledged(first, first.batch)
    assert numbers(in_flight) == [(0, 2), (0, 4)]
    assert in_flight.is_lost(second)
    assert numbers(in_flight) == [(1, 0), (1, 2)]
    assert second.batch.records_key == first.batch.records_key, "the records are the same"


def test_an_answer_of_the_epoch_before_leaves_no_gap() -> None:
    in_flight = InFlight(7)
    first, second = add(in_flight), add(in_flight)
    before = first.batch
    assert in_flight.is_lost(first)
    in_flight.acknowledged(first, before)
    assert numbers(in_flight) == [(2, 0)]
    in_flight.acknowledged(second, second.batch)
    assert numbers(in_flight) == []


def test_no_batch_is_sent_far_ahead_of_one_without_an_answer() -> None:
    in_flight = InFlight(7)
    for _ in range(IN_FLIGHT_MAX):
        assert in_flight.has_room
        add(in_flight)
    assert not in_flight.has_room
    for sent in in_flight.sent[1:]:
        in_flight.acknowledged(sent, sent.batch)
    assert not in_flight.has_room
    in_flight.refused(in_flight.sent[0])
    assert in_flight.has_room


def test_without_idempotence_there_are_no_numbers() -> None:
    in_flight = InFlight(NO_PRODUCER)
    add(in_flight)
    in_flight.give_up()
    add(in_flight)
    assert numbers(in_flight) == [(-1, -1)]
