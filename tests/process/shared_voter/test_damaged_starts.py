"""Files of the only replica's log are gone when its broker starts: it does not lead until somebody decides (DB-88)."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from kraftlog.local.cluster import LocalCluster
from tests.kraftlog.command_line import Run
from tests.process.broker_process import WAIT_SECONDS, BrokerProcess
from tests.process.conftest import addresses

pytestmark = pytest.mark.process

BROKER_ID = 76
RECORDS = 24
PADDING = 200_000
"""Five records fill a segment of the smallest size."""


class Stage:
    """A broker with the only replica of some topics."""

    def __init__(self, voter: LocalCluster, broker: BrokerProcess, run: Run) -> None:
        self.at = addresses(voter)
        self.broker = broker
        self.run = run

    def create(self, topic: str) -> Path:
        """Make a topic with records in several segments; returns its log."""
        created = self.run(
            "topics", "create", topic, "--replica-assignment", BROKER_ID, "--config", "segment.bytes=1048576",
            "--bootstrap-server", self.at,
        )  # fmt: skip
        assert created.code == 0, created
        assert self.produce(topic, range(RECORDS)) == list(range(RECORDS))
        log = self.broker.partitions / f"{topic}-0"
        assert len(list(log.glob("*.log"))) > 3
        return log

    def produce(self, topic: str, numbers: range) -> list[int]:
        """Send records, one batch each; returns their offsets."""
        producer = confluent_kafka.Producer({
            "bootstrap.servers": self.broker.servers, "acks": "all", "linger.ms": 0, "batch.num.messages": 1,
            "topic.metadata.refresh.interval.ms": 200, "enable.idempotence": True,
        })  # fmt: skip
        offsets: list[int] = []
        for number in numbers:
            producer.produce(
                topic,
                str(number).ljust(PADDING).encode(),
                on_delivery=lambda error, sent: offsets.append(sent.offset()),
            )
        assert producer.flush(WAIT_SECONDS) == 0
        return offsets

    def values(self, topic: str) -> list[int]:
        """What a consumer reads from the start on."""
        consumer = confluent_kafka.Consumer({
            "bootstrap.servers": self.broker.servers, "group.id": "unused", "enable.auto.commit": False,
            "enable.partition.eof": True,
            "topic.metadata.refresh.interval.ms": 200,
        })  # fmt: skip
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
        found: list[int] = []
        try:
            while True:
                message = consumer.poll(WAIT_SECONDS)
                assert message is not None
                if message.error() is not None:
                    assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
                    return found
                found.append(int(message.value()))
        finally:
            consumer.close()

    def wait_for_leader(self, topic: str, leader: int) -> None:
        """Until the controller has that broker as the leader; -1 is none."""
        deadline = time.monotonic() + WAIT_SECONDS
        query = f"SELECT leader FROM partitions JOIN topics USING (topic_id) WHERE name = '{topic}'"
        while True:
            found = self.run("sql", query, "--bootstrap-server", self.at, "--output", "json")
            if [row["leader"] for row in json.loads(found.output)] == [leader]:
                return
            assert time.monotonic() < deadline, found
            time.sleep(0.1)

    def accept_loss(self, topic: str, *options: str) -> dict[str, object]:
        """`kraftlog log-dirs accept-loss`."""
        done = self.run(
            "log-dirs", "accept-loss", f"{topic}-0", "--directory", self.broker.directory, *options, "--output", "json"
        )
        assert done.code == 0, done
        (row,) = json.loads(done.output)
        return row


@pytest.fixture
def stage(voter: LocalCluster, tmp_path: Path, run: Run) -> Iterator[Stage]:
    broker = BrokerProcess(addresses(voter), BROKER_ID, tmp_path / "broker")
    with broker.running():
        yield Stage(voter, broker, run)
        assert "Traceback" not in broker.said.read_text()


def test_db88_a_log_without_one_of_its_segments_does_not_lead_until_the_loss_is_accepted(stage: Stage) -> None:
    log = stage.create("gaps")
    stage.broker.kill()
    second, third = sorted(log.glob("*.log"))[1:3]
    lost = range(int(second.stem), int(third.stem))
    kept = second.read_bytes()
    second.unlink()
    stage.broker.start()
    stage.wait_for_leader("gaps", -1)
    assert "accept-loss gaps-0" in stage.broker.said.read_text()
    refused = stage.run("log-dirs", "accept-loss", "gaps-0", "--directory", stage.broker.directory)
    assert refused.code == 1
    assert "in use by another process" in refused.errors

    assert stage.broker.stop() == 0
    second.write_bytes(kept)
    stage.broker.start()  # the file is put back: all is as it was
    stage.wait_for_leader("gaps", BROKER_ID)
    assert stage.values("gaps") == list(range(RECORDS))

    assert stage.broker.stop() == 0
    second.unlink()
    before = sorted((path.name, path.stat().st_size) for path in log.iterdir())
    row = stage.accept_loss("gaps")
    assert row["LostOffsets"] == f"{lost.start} to {lost.stop - 1}"
    assert sorted((path.name, path.stat().st_size) for path in log.iterdir()) == before
    assert stage.accept_loss("gaps", "--execute") == row
    assert stage.accept_loss("gaps", "--execute")["Damage"] == ""
    stage.broker.start()
    stage.wait_for_leader("gaps", BROKER_ID)
    assert stage.values("gaps") == [number for number in range(RECORDS) if number not in lost]


def test_db88_a_log_whose_directory_is_gone_leads_uncleanly_only_and_gives_no_offset_out_twice(stage: Stage) -> None:
    log = stage.create("gone")
    assert stage.broker.stop() == 0
    shutil.rmtree(log)
    stage.broker.start()
    stage.wait_for_leader("gone", -1)
    assert not log.exists()
    elected = stage.run(
        "elect", "--type", "unclean", "--topic", "gone", "--partition", 0, "--bootstrap-server", stage.at
    )
    assert elected.code == 0, elected
    stage.wait_for_leader("gone", BROKER_ID)
    assert stage.produce("gone", range(RECORDS, RECORDS + 1)) == [RECORDS]
    assert stage.values("gone") == [RECORDS]
    assert f"0 to {RECORDS - 1}" in stage.broker.said.read_text()
