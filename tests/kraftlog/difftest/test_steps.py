"""Steps are data: what a report holds is the same sequence again, and every step has a request on both systems."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import pytest

from kraftlog.difftest import kafka_answers, kafka_requests, own_answers, own_requests, steps
from kraftlog.difftest.generator import BROKERS, generate
from kraftlog.difftest.image import Image
from kraftlog.difftest.kafka_requests import VERSIONS, Known
from kraftlog.difftest.records import Names
from kraftlog.kafka.codec import decode, encode

SEQUENCES = [generate(seed) for seed in range(60)]
KNOWN = Known(Image(), Names(), "cluster", 100)


def test_a_seed_is_a_sequence_and_another_seed_another_one() -> None:
    assert [generate(seed) for seed in range(60)] == SEQUENCES
    assert len({str(sequence) for sequence in SEQUENCES}) == len(SEQUENCES)


def test_all_kinds_of_steps_are_drawn() -> None:
    drawn = {type(step) for step in chain.from_iterable(SEQUENCES)}
    assert drawn == set(steps.KINDS.values())


def test_a_sequence_begins_with_brokers_and_goes_on_for_as_long_as_asked() -> None:
    for sequence in SEQUENCES:
        starts = [step for step in sequence[: 2 * len(BROKERS) : 2] if isinstance(step, steps.RegisterBroker)]
        assert [step.broker_id for step in starts] == [*BROKERS]
        assert len(sequence) == 48


@pytest.mark.parametrize("seed", range(20))
def test_a_sequence_is_the_same_after_a_way_through_json(seed: int) -> None:
    sequence = SEQUENCES[seed]
    shown = json.loads(json.dumps([steps.to_json(step) for step in sequence]))
    assert [steps.from_json(step) for step in shown] == sequence


@pytest.mark.parametrize("wrong", [{"step": "Nothing"}, {"step": "VanishBroker", "x": 1}, {}])
def test_what_is_no_step_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError)):
        steps.from_json(wrong)


def test_every_step_is_a_request_that_kafkas_version_can_hold() -> None:
    for step in chain.from_iterable(SEQUENCES):
        if isinstance(step, steps.VanishBroker):
            continue
        request = kafka_requests.request_of(step, KNOWN)
        version = VERSIONS[request.KEY]
        assert decode(type(request), version, encode(request, version)) == request


def test_every_step_is_an_operation_of_the_same_kind_on_both_systems() -> None:
    kinds = set()
    for step in chain.from_iterable(SEQUENCES):
        if isinstance(step, steps.VanishBroker):
            continue
        kind = own_requests.operation_of(step, KNOWN).WhichOneof("operation")
        kinds.add((type(kafka_requests.request_of(step, KNOWN)).__name__, kind))
    assert len(kinds) == len({name for name, _ in kinds}) == len({kind for _, kind in kinds}) == 16


def test_every_step_that_is_a_request_has_an_answer_of_both() -> None:
    """PlaceTopic and CreateTopics share one."""
    kinds = set(steps.KINDS.values()) - {steps.VanishBroker}
    assert kafka_answers._ANSWERS.keys() == own_answers._ANSWERS.keys() == kinds
