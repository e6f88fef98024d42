"""What a producer had in flight when its broker ended is stored once when it is sent again to the next process."""

from __future__ import annotations

import itertools
import re
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Final, cast

import pytest

from kraftlog.kafka.connections import ClientConnection
from kraftlog.kafka.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kraftlog.local.cluster import LocalCluster
from tests.kraftlog.command_line import Run
from tests.kraftlog.storage.builders import batch
from tests.process.broker_process import WAIT_SECONDS, BrokerProcess
from tests.process.conftest import addresses

pytestmark = pytest.mark.process

BROKER_ID: Final = 64
PRODUCE_VERSION: Final = 9
"""The last one that names topics."""
PRODUCER_ID: Final = 7
IN_FLIGHT: Final = 3
OUT_OF_ORDER_SEQUENCE_NUMBER: Final = 45
DAY_MS: Final = 86_400_000
OFTEN: Final = (
    "--config", "log.flush.offset.checkpoint.interval.ms=100", "--config",
    "producer.id.expiration.check.interval.ms=100",
)  # fmt: skip

names = itertools.count()


@pytest.fixture(scope="module")
def broker(voter: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The one that all tests here end and start again; it checkpoints, and looks for idle producers, all the time."""
    path = tmp_path_factory.mktemp("again") / "broker"
    with BrokerProcess(addresses(voter), BROKER_ID, path, *OFTEN).running() as broker:
        yield broker


@pytest.fixture
def topic(voter: LocalCluster, broker: BrokerProcess, run: Run) -> str:
    """A topic of the test's own, on that broker; a batch with a timestamp a second ahead is in the next segment."""
    name = f"again-{next(names)}"
    created = run(
        "topics", "create", name, "--replica-assignment", BROKER_ID, "--config", "segment.ms=1000",
        "--bootstrap-server", addresses(voter),
    )  # fmt: skip
    assert created.code == 0, created
    deadline = time.monotonic() + WAIT_SECONDS
    while not (broker.partitions / f"{name}-0").exists():  # the broker knows it then
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return name


def produce(broker: BrokerProcess, topic: str, batches: Sequence[bytes]) -> list[tuple[int, int]]:
    """Send batches with acks=all, all of them before the first answer; error code and first offset of each."""
    connection = ClientConnection("test")
    answers: list[tuple[int, int]] = []
    with socket.create_connection(broker.address, WAIT_SECONDS) as link:
        for data in batches:
            part = PartitionProduceData(index=0, records=data)
            body = ProduceRequest(
                acks=-1, timeout_ms=10_000, topic_data=(TopicProduceData(name=topic, partition_data=(part,)),)
            )
            link.sendall(b"".join(connection.send(body, PRODUCE_VERSION)))
        while len(answers) < len(batches):
            received = link.recv(65_536)
            assert received, "the broker has closed the connection"
            connection.receive_data(received)
            while (response := connection.next_event()) is not None:
                found = cast(ProduceResponse, response.body).responses[0].partition_responses[0]
                answers.append((found.error_code, found.base_offset))
    return answers


def in_flight(timestamp_ms: int, first: int = 0) -> list[bytes]:
    """Batches of two records of the idempotent producer."""
    return [
        batch(2, producer_id=PRODUCER_ID, producer_epoch=0, sequence=2 * index, timestamps=[timestamp_ms] * 2)
        for index in range(first, first + IN_FLIGHT)
    ]


def now_ms() -> int:
    return int(time.time() * 1_000)


def wait_for_recovery_point(broker: BrokerProcess, topic: str, offset: int) -> None:
    """Until the checkpoint says that the log is flushed up to an offset."""
    path, deadline = broker.partitions / "recovery-point-offset-checkpoint", time.monotonic() + WAIT_SECONDS
    while not re.search(rf"^{topic} 0 {offset}$", path.read_text() if path.exists() else "", re.MULTILINE):
        assert time.monotonic() < deadline, path.read_text()
        time.sleep(0.01)


def test_db71_after_a_shutdown_all_that_was_in_flight_is_a_duplicate(broker: BrokerProcess, topic: str) -> None:
    batches = in_flight(now_ms())
    stored = [(0, 0), (0, 2), (0, 4)]
    assert produce(broker, topic, batches) == stored
    assert broker.stop() == 0
    broker.start()
    assert produce(broker, topic, batches) == stored
    assert produce(broker, topic, in_flight(now_ms(), IN_FLIGHT)) == [(0, 6), (0, 8), (0, 10)], "nothing is there twice"


def test_db71_so_it_is_after_a_kill_behind_a_roll(broker: BrokerProcess, topic: str) -> None:
    """A start reads from the last segment on, and has the producers before it from the snapshot only."""
    batches = in_flight(now_ms())
    stored = [(0, 0), (0, 2), (0, 4)]
    assert produce(broker, topic, batches) == stored
    assert produce(broker, topic, [batch(1, timestamp_ms=now_ms() + 60_000)]) == [(0, 6)]
    wait_for_recovery_point(broker, topic, 7)
    broker.kill()
    assert (broker.partitions / f"{topic}-0" / f"{6:020d}.snapshot").exists()
    broker.start()
    assert produce(broker, topic, batches) == stored
    assert produce(broker, topic, [batch(1, timestamp_ms=now_ms())]) == [(0, 7)], "nothing is there twice"


@pytest.mark.parametrize("age_ms", [2 * DAY_MS, None], ids=["two days old", "no timestamps"])
def test_db70_a_producer_of_old_records_is_not_forgotten(broker: BrokerProcess, topic: str, age_ms: int | None) -> None:
    """Kafka goes by the records' timestamps, and forgets it at its next look; this broker looks all the time."""
    batches = in_flight(-1 if age_ms is None else now_ms() - age_ms)
    stored = produce(broker, topic, batches)
    wait_for_recovery_point(broker, topic, 6)  # written as often as it looks
    assert produce(broker, topic, batches) == stored
    assert broker.stop() == 0
    broker.start()
    assert produce(broker, topic, batches) == stored


def test_db70_producer_id_expiration_ms_acts_at_once(
    broker: BrokerProcess, topic: str, voter: LocalCluster, run: Run
) -> None:
    assert produce(broker, topic, in_flight(now_ms())) == [(0, 0), (0, 2), (0, 4)]
    gap = in_flight(now_ms(), first=10)[:1]
    assert produce(broker, topic, gap)[0][0] == OUT_OF_ORDER_SEQUENCE_NUMBER
    entity = ("--entity-type", "brokers", "--entity-default", "--bootstrap-server", addresses(voter))
    altered = run("configs", "alter", "--add-config", "producer.id.expiration.ms=1", *entity)
    assert altered.code == 0, altered
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while (found := produce(broker, topic, gap)[0])[0] == OUT_OF_ORDER_SEQUENCE_NUMBER:
            assert time.monotonic() < deadline
        assert found == (0, 6), "without any state every sequence is taken"
    finally:
        run("configs", "alter", "--delete-config", "producer.id.expiration.ms", *entity)
