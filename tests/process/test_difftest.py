"""The contract of both systems of `kraftlog difftest`, on real processes; Kafka's half where `make peers` was run."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kraftlog.bench.peers.installed import KAFKA_JARS, find_peers
from kraftlog.difftest import steps
from kraftlog.difftest.kafka_system import KafkaSystem
from kraftlog.difftest.own_system import OwnSystem
from kraftlog.difftest.records import Record
from kraftlog.difftest.system import Answer, System
from statemachine.words.features import METADATA_VERSION, METADATA_VERSION_LATEST
from tests.kraftlog.command_line import kraftlog
from tests.paths import ROOT

pytestmark = pytest.mark.process

PEERS = find_peers(ROOT / "build" / "peers")
WITHOUT_KAFKA = pytest.mark.skipif(PEERS.kafka is None, reason=f"Kafka is not installed: {PEERS.missing.get('Kafka')}")


@asynccontextmanager
async def running(name: str, directory: Path) -> AsyncIterator[System]:
    if name == "ours":
        async with OwnSystem.running(directory) as own:
            yield own
    else:
        assert PEERS.kafka is not None
        async with KafkaSystem.running(PEERS.kafka, directory) as kafka:
            yield kafka


@pytest.mark.parametrize("name", ["ours", pytest.param("Kafka", marks=[WITHOUT_KAFKA, pytest.mark.slow])])
async def test_a_system_carries_out_steps_and_shows_its_records(name: str, tmp_path: Path) -> None:
    async with running(name, tmp_path) as system:

        async def done(step: steps.Step) -> tuple[Answer, list[Record]]:
            answer = await system.execute(step)
            return answer, [record for record in await system.read_records() if record.kind != "ClearElr"]

        for broker_id in (1, 2):
            assert (await done(steps.RegisterBroker(broker_id, 1)))[0] == {"": "NONE"}
            answer, records = await done(steps.Heartbeat(broker_id))
            assert answer == {"": "NONE caught_up=True fenced=False shut_down=False"}
            assert [str(record) for record in records] == [
                "BrokerRegistrationChange(epoch=registration 1, fenced=False)"
            ]
        assert system.image.features[METADATA_VERSION] == METADATA_VERSION_LATEST
        topic = steps.NewTopic("t", ((1, 2),), configs=(("min.insync.replicas", "2"),))
        answer, records = await done(steps.CreateTopics((topic,)))
        assert answer == {"t": "NONE partitions=1 replicas=2"}
        assert [record.kind for record in records] == ["Topic", "Config", "Partition"]
        answer, records = await done(steps.AlterPartition("t", 0, (2,), steps.TOGGLE))
        assert answer == {"t-0": "NONE leader=1 leader_epoch=0 isr=(1,) recovery_state=0 partition_epoch=1"}
        assert [str(record) for record in records] == ["PartitionChange(isr=(1,), elr=(2,))"]
        assert (await done(steps.AlterPartition("t", 0, (2,), partition_epoch_change=-1)))[0] == {
            "t-0": "INVALID_UPDATE_VERSION"
        }
        assert (await done(steps.Heartbeat(1, epoch_change=-1)))[0] == {"": "STALE_BROKER_EPOCH"}
        answer, _ = await done(steps.Heartbeat(1, want_fence=True))
        assert answer == {"": "NONE caught_up=True fenced=True shut_down=False"}
        assert system.image.brokers[1].fenced


@pytest.mark.slow
@WITHOUT_KAFKA
def test_a_short_run_compares_both_and_writes_what_it_found(tmp_path: Path) -> None:
    assert PEERS.kafka is not None
    directory = tmp_path / "peers"
    directory.mkdir()
    (directory / KAFKA_JARS).symlink_to(PEERS.kafka.jars.resolve())
    file = tmp_path / "difftest.json"
    finished = kraftlog(
        *("difftest", "--sequences", 1, "--length", 12, "--json", file, "--peers", directory, "--dir", tmp_path),
        timeout=170,
    )
    assert "1 sequences" in finished.output
    report = json.loads(file.read_text())
    (sequence,) = report["sequences"]
    assert report["kafka"] == PEERS.kafka.version
    assert finished.code == (1 if sequence["findings"] else 0)
    assert sum(report["answers"].values()) >= sequence["steps_done"] - 2


def test_without_kafka_it_is_skipped_with_the_reason(tmp_path: Path) -> None:
    finished = kraftlog("difftest", "--sequences", 1, "--peers", tmp_path)
    assert (finished.code, finished.errors) == (0, "")
    assert finished.output.startswith("skipped: there is no kafka_2.13-*.jar in")
    assert "make peers" in finished.output


def test_a_file_that_is_no_report_is_an_error_of_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka, and the Java for it, are found; neither is started."""
    file = tmp_path / "wrong.json"
    file.write_text('{"sequences": [{"seed": 1, "steps": [{"step": "Nothing"}]}]}')
    jars = tmp_path / "kafka"
    jars.mkdir()
    (jars / "kafka_2.13-4.3.0.jar").touch()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join((str(java.parent), os.environ["PATH"])))
    finished = kraftlog("difftest", "--steps", file, "--peers", tmp_path)
    assert (finished.code, finished.output) == (1, "")
    assert finished.errors.startswith("error: INVALID_REQUEST: ")
    assert str(file) in finished.errors and finished.errors.count("\n") == 1
