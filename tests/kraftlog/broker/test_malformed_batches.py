"""What no consumer could read is not stored (DB-84): the answers of our broker, and those of a stock one beside it."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kraftbase.endpoint import Endpoint
from kraftbase.line_rate import INTERVAL_SECONDS, LINES_MAX
from kraftlog.clients.broker_connection import BrokerConnection
from kraftlog.kafka.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.java import needs_kafka
from tests.kraftlog.broker.broker_world import BrokerWorld, registration, replicas, topic
from tests.kraftlog.broker.malformed_batches import BAD, COMPACTED, PLAIN, Malformed, malformed_batches
from tests.kraftlog.broker.stock_broker import StockBroker
from tests.kraftlog.storage.builders import NOW_MS
from tests.statemachine.builders import config

CASES = malformed_batches()
VERSION = 11
"""Of Produce: the newest that names topics, of those that have record_errors."""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrokerWorld:
    """A broker that leads a topic with cleanup.policy delete, and one with compact."""
    records = [registration(1), topic(PLAIN, 1), replicas(1), topic(COMPACTED, 2), replicas(2)]
    made = BrokerWorld(tmp_path, records, own={"log.cleanup.policy": "delete"})
    made.commit(config(COMPACTED, "cleanup.policy", "compact"))
    now_ms = int(time.time() * 1_000)
    monkeypatch.setattr(made.runtime, "wall_clock_ms", lambda: now_ms)
    assert now_ms > NOW_MS
    return made


def request(case: Malformed) -> ProduceRequest:
    data = (PartitionProduceData(index=0, records=case.data),)
    return ProduceRequest(
        acks=1, timeout_ms=5_000, topic_data=(TopicProduceData(name=case.topic, partition_data=data),)
    )


def answer_of(response: ProduceResponse) -> tuple[int, tuple[int, ...]]:
    """The error code, and the records that are named."""
    (part,) = response.responses[0].partition_responses
    assert all(one.batch_index_error_message for one in part.record_errors)
    return part.error_code, tuple(one.batch_index for one in part.record_errors)


@pytest.mark.parametrize("name", CASES)
def test_db84_a_malformed_batch_is_refused_and_nothing_is_stored(world: BrokerWorld, name: str) -> None:
    case = CASES[name]
    world.ask(world.produce.handle, request(case), VERSION)
    world.runtime.run()
    assert answer_of(world.last(ProduceResponse)) == (case.code, case.record_errors)
    log = world.replica(number=1 if case.topic == PLAIN else 2).online_log()
    assert (log.log_end_offset > 0) == (case.code == 0)


def test_what_is_refused_is_logged_with_its_reason_and_not_again_and_again(world: BrokerWorld) -> None:
    """librdkafka tells the producer INVALID_RECORD, and neither the record nor the reason."""
    without_key = next(case for case in CASES.values() if case.topic == COMPACTED and case.record_errors)
    unreadable = next(case for name, case in CASES.items() if "headers -1" in name)
    with capture_logs() as lines:
        for _ in range(LINES_MAX + 3):
            world.ask(world.produce.handle, request(without_key), VERSION)
        later_ms = world.runtime.now_ms() + 1_000 * INTERVAL_SECONDS
        world.produce._refused._rate._now = lambda: later_ms / 1_000
        world.ask(world.produce.handle, request(unreadable), VERSION)
        world.ask(world.produce.handle, request(Malformed(b"", BAD, "unknown")), VERSION)
    first, last = lines[0], lines[-1]
    assert len(lines) == LINES_MAX + 1
    assert (first["event"], first["error"], first["topic"], first["partition"]) == (
        *("records refused", "INVALID_RECORD", COMPACTED, 0),
    )
    assert first["record"] == without_key.record_errors[0]
    assert "has no key" in first["reason"]
    assert last["topic"] == PLAIN
    assert "records[0]" in last["reason"]
    assert (last["left_out_before"], "left_out_before" in first) == (3, False)


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerConnection]:
    broker = StockBroker(tmp_path_factory.mktemp("stock"))
    try:
        broker.start()
        broker.tool("TopicCommand", "--create", "--topic", PLAIN)
        broker.tool("TopicCommand", "--create", "--topic", COMPACTED, "--config", "cleanup.policy=compact")
        with BrokerConnection(Endpoint("localhost", broker.port)) as connection:
            yield connection
    finally:
        broker.end(signal.SIGKILL)


@needs_kafka
@pytest.mark.process
def test_db84_a_stock_broker_answers_the_same_but_where_the_rule_has_a_reason(stock: BrokerConnection) -> None:
    for name, case in malformed_batches().items():
        response = stock._exchange(request(case), VERSION).body
        assert isinstance(response, ProduceResponse)
        expected = case.code if case.stock is None else case.stock
        assert answer_of(response) == (expected, case.record_errors), name
