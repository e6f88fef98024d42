"""A disk that is full refuses what is produced, loses nothing, and takes more as soon as there is room."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pytest

from kraftlog.local.cluster import LocalCluster
from tests.kraftlog.command_line import Run
from tests.process.broker_process import WAIT_SECONDS, BrokerProcess
from tests.process.conftest import addresses

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk that is small enough"),
]

RECORD: Final = b"x" * 100_000
MORE_THAN_FIT: Final = 250


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """16 MiB."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", path], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no small disk: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def produce(broker: BrokerProcess, count: int) -> tuple[list[int], list[Any]]:
    """The offsets of what was acknowledged, and why the rest was not; nothing is tried twice."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.servers, "acks": "all", "retries": 0})
    offsets: list[int] = []
    errors: list[Any] = []
    for _ in range(count):
        producer.produce(
            "full", RECORD, partition=0,
            on_delivery=lambda error, message: errors.append(error) if error else offsets.append(message.offset()),
        )  # fmt: skip
    assert producer.flush(WAIT_SECONDS) == 0
    return offsets, errors


def test_a_full_disk_refuses_and_recovers(voter: LocalCluster, disk: Path, tmp_path: Path, run: Run) -> None:
    broker = BrokerProcess(addresses(voter), 80, tmp_path / "broker", "--log-dir", disk / "logs")
    with broker.running():
        created = run("topics", "create", "full", "--replica-assignment", 80, "--bootstrap-server", addresses(voter))
        assert created.code == 0, created
        before, errors = produce(broker, MORE_THAN_FIT)
        assert 0 < len(before) < MORE_THAN_FIT
        assert {error.code() for error in errors} == {confluent_kafka.KafkaError.KAFKA_STORAGE_ERROR}
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        after, errors = produce(broker, 20)
        assert errors == []
        assert before + after == list(range(len(before) + 20))
        assert broker.stop() == 0
        assert "Traceback" not in broker.said.read_text()


def states(run: Run, servers: str) -> dict[int, str]:
    """By broker, what `log-dirs` says of the state of its directory."""
    rows = run("log-dirs", "--output", "json", "--bootstrap-server", servers).json()
    return {row["Broker"]: row["State"] for row in rows}


def test_ct66_another_replica_leads_when_the_disk_of_the_leader_is_full(
    voter: LocalCluster, disk: Path, tmp_path: Path, run: Run
) -> None:
    """Every record is acknowledged in the end, and people see which disk is full."""
    # The new leader waits for the full replica until that has lagged for so long, which is 30 s by default.
    lag = ("--config", "replica.lag.time.max.ms=3000")
    full = BrokerProcess(addresses(voter), 81, tmp_path / "81", "--log-dir", disk / "logs", *lag)
    other = BrokerProcess(addresses(voter), 82, tmp_path / "82", *lag)
    with full.running(), other.running():
        created = run(
            "topics", "create", "fuller", "--replica-assignment", "81:82", "--config", "min.insync.replicas=1",
            "--bootstrap-server", addresses(voter),
        )  # fmt: skip
        assert created.code == 0, created
        servers = f"{full.servers},{other.servers}"
        producer = confluent_kafka.Producer({"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True})
        errors: list[Any] = []

        def delivered(error: confluent_kafka.KafkaError | None, _: confluent_kafka.Message) -> None:
            if error is not None:
                errors.append(error)

        for _ in range(MORE_THAN_FIT):
            producer.produce("fuller", RECORD, partition=0, on_delivery=delivered)
        assert producer.flush(WAIT_SECONDS) == 0
        assert errors == []
        described = run(
            "topics", "describe", "fuller", "--replicas", "--output", "json", "--bootstrap-server", addresses(voter)
        )
        rows = {row["Broker"]: row for row in described.json()}
        assert (rows[82]["Role"], rows[82]["LogEnd"]) == ("leader", MORE_THAN_FIT)
        assert "disk-full" in rows[81]["WhyNot"]
        assert states(run, servers) == {81: "disk-full", 82: ""}
        ill = run("health", "--output", "json", "--bootstrap-server", addresses(voter))
        assert ill.code == 1
        assert ("directory", "disk-full") in {(of["Of"], of["State"]) for of in json.loads(ill.output)["Findings"]}
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        deadline = time.monotonic() + WAIT_SECONDS
        while states(run, servers)[81]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for broker in (full, other):
            assert broker.stop() == 0
            assert "Traceback" not in broker.said.read_text()
