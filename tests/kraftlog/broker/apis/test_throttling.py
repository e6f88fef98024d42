"""Quotas of bytes in Produce and Fetch (DB-94), with what the answers say."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.kafka.codec import encode
from kraftlog.kafka.messages.fetch import FetchResponse
from kraftlog.kafka.messages.produce import ProduceResponse
from tests.kraftlog.broker.apis.test_fetch import NEWEST, FetchWorld
from tests.kraftlog.broker.quotas.test_client_quotas import changed, record, removed
from tests.kraftlog.storage.builders import batch

REQUEST_BYTES = 100
"""What `World` says is the size of each request."""


@pytest.fixture
def world(tmp_path: Path) -> FetchWorld:
    return FetchWorld(tmp_path)


def limited(world: FetchWorld, key: str, bytes_per_second: float) -> None:
    changed(world.quotas, record(bytes_per_second, key, user="ANONYMOUS"))


@pytest.mark.parametrize("acks", [-1, 1])
def test_db94_a_producer_over_its_quota_is_answered_and_waits(world: FetchWorld, acks: int) -> None:
    limited(world, "producer_byte_rate", REQUEST_BYTES)
    for _ in range(11):
        world.send(batch(1), acks)
        world.runtime.run()
    assert world.throttles == [*[0] * 10, 1_000], "11 requests of 100 bytes in 10 s are a tenth too much"
    response = world.answers[-1]
    assert isinstance(response, ProduceResponse)
    assert response.throttle_time_ms == 1_000
    assert world.produced() == (ErrorCode.NONE, 10)


def test_db94_a_producer_without_answers_waits_too(world: FetchWorld) -> None:
    limited(world, "producer_byte_rate", REQUEST_BYTES)
    for _ in range(11):
        world.send(batch(1), acks=0)
    assert world.answers == [None] * 11
    assert world.throttles == [*[0] * 10, 1_000]


def test_db94_a_reader_over_its_quota_is_told_nothing_and_is_told_it_when_it_has_waited(world: FetchWorld) -> None:
    world.append(0, batch(1, value=b"x" * 1_000))
    world.fetch_from({0: 0}, session=(0, 0))
    answer_bytes = 4 + len(encode(world.response, NEWEST))
    limited(world, "consumer_byte_rate", answer_bytes / 10)
    world.fetch_from({}, session=(1, 1))
    assert (world.throttles[-1], world.sizes()) == (0, {0: len(batch(1, value=b"x" * 1_000))})
    world.runtime.clock_ms += 1_000
    world.fetch_from({}, session=(1, 2))
    assert (world.throttles[-1], world.response.throttle_time_ms) == (10_000, 10_000)
    assert (world.response.session_id, world.response.error_code, world.sizes()) == (1, ErrorCode.NONE, {})
    world.runtime.clock_ms += 10_000
    world.fetch_from({}, session=(1, 3))
    assert world.throttles[-1] == 0
    assert len(world.sizes()) == 1


def test_db94_a_full_request_that_is_throttled_makes_no_session(world: FetchWorld) -> None:
    world.append(0, batch(1))
    limited(world, "consumer_byte_rate", 1)
    world.fetch_from({0: 0}, session=(0, 0))
    assert world.throttles[-1] > 0
    assert (world.response.session_id, world.sizes(), len(world.sessions)) == (0, {}, 0)


def test_db94_no_more_is_read_than_a_quota_allows_at_once(world: FetchWorld) -> None:
    """All fifty batches would be too much however long a reader waits; five wait for what is around them only."""
    size = sum(world.append(0, batch(1, value=b"x" * 1_000)) for _ in range(50)) // 50
    limited(world, "consumer_byte_rate", 5 * size / 10)
    world.fetch_from({0: 0})
    assert (0 < world.throttles[-1] < 1_000, world.sizes()) == (True, {})
    world.runtime.clock_ms += world.throttles[-1]
    world.fetch_from({0: 0})
    assert (world.throttles[-1], world.sizes()) == (0, {0: 5 * size})


def test_db94_what_a_reader_would_not_be_told_costs_nothing(world: FetchWorld) -> None:
    """An answer with nothing in it is some bytes, and one with a partition is some more."""
    world.fetch_from({0: 0, 1: 0, 2: 0}, session=(0, 0))
    nothing_bytes = 4 + len(encode(FetchResponse(session_id=1), NEWEST))
    limited(world, "consumer_byte_rate", nothing_bytes / 10)
    world.fetch_from({}, session=(1, 1))
    assert world.throttles[-1] == 0
    world.fetch_from({}, session=(1, 2))
    assert world.throttles[-1] == 10_000
    removed(world.quotas, record(1, "consumer_byte_rate", user="ANONYMOUS"))
    world.fetch_from({}, session=(1, 3))
    assert (world.throttles[-1], world.response.throttle_time_ms) == (0, 0)
