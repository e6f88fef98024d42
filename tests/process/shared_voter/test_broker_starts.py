"""What a broker says that cannot start: one line that names it, exit code 1, and nothing of a crash."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftbase.uuids import random_cluster_id
from kraftlog.kafka import record_reader
from kraftlog.local.cluster import LocalCluster
from raft.storage.directory import META_NAME
from tests.kraftlog.command_line import Finished, Run, command, environment, kraftlog
from tests.process.broker_process import WAIT_SECONDS, BrokerProcess
from tests.process.conftest import addresses

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def broker(voter: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One that runs, and that others get in the way of."""
    with BrokerProcess(addresses(voter), 70, tmp_path_factory.mktemp("starts") / "broker").running() as broker:
        yield broker


def run_broker(
    at: object, broker_id: int, directory: Path, *options: object, port: int = 0, run: Run = kraftlog
) -> Finished:
    return run(
        "brokers", "run", "--id", broker_id, "--endpoint", f"PLAINTEXT://localhost:{port}", "--data-dir", directory,
        "--bootstrap-server", at, *options,
    )  # fmt: skip


def test_a_port_that_is_taken(broker: BrokerProcess, voter: LocalCluster, tmp_path: Path) -> None:
    port = broker.endpoint.port
    ended = run_broker(addresses(voter), 71, tmp_path / "broker", port=port)
    assert ended.is_error(ErrorCode.INVALID_CONFIG, f"the port {port} is in use at 127.0.0.1")


def test_directories_that_another_broker_uses(broker: BrokerProcess, voter: LocalCluster, tmp_path: Path) -> None:
    at = addresses(voter)
    for broker_id in (70, 71):
        ended = run_broker(at, broker_id, broker.directory)
        assert ended.is_error(ErrorCode.KAFKA_STORAGE_ERROR, str(broker.directory), "is in use by another process")
    ended = run_broker(at, 71, tmp_path / "broker", "--log-dir", broker.partitions)
    assert ended.is_error(ErrorCode.KAFKA_STORAGE_ERROR, str(broker.partitions), "is in use by another process")


def test_a_directory_of_another_broker_or_cluster_or_of_nobody_knows_whom(voter: LocalCluster, tmp_path: Path) -> None:
    at, directory = addresses(voter), tmp_path / "broker"
    other = BrokerProcess(at, 72, directory)
    with other.running():
        assert other.stop() == 0
    assert run_broker(at, 73, directory).is_error(ErrorCode.KAFKA_STORAGE_ERROR, "belongs to node 72, not to node 73")

    logs_of = directory / "partitions" / META_NAME
    good = logs_of.read_text()
    logs_of.write_text(good.replace(voter.cluster_id, random_cluster_id()))
    assert run_broker(at, 72, directory).is_error(ErrorCode.INCONSISTENT_CLUSTER_ID, str(directory / "partitions"))
    logs_of.write_text("junk")
    assert run_broker(at, 72, directory).is_error(ErrorCode.KAFKA_STORAGE_ERROR, str(logs_of))
    logs_of.write_text(good)

    own = directory / META_NAME
    good = own.read_text()
    for bad in ("", "junk", good[:-3], good.replace("node.id=72", "node.id=73")):
        own.write_text(bad)
        assert run_broker(at, 72, directory).is_error(ErrorCode.KAFKA_STORAGE_ERROR, f"{own} is damaged")
    own.write_text(good)
    with other.running():
        assert other.stop() == 0


def test_a_directory_of_logs_that_was_emptied_is_another_one(voter: LocalCluster, tmp_path: Path) -> None:
    """By its id the controller would take the broker for one that has lost nothing."""
    broker = BrokerProcess(addresses(voter), 75, tmp_path / "broker")
    ids = []
    for _ in range(2):
        with broker.running():
            meta = (broker.partitions / META_NAME).read_text()
            assert broker.stop() == 0
        ids.append(meta)
        shutil.rmtree(broker.partitions)
    assert ids[0] != ids[1]


def test_metadata_that_is_damaged_is_made_anew(voter: LocalCluster, tmp_path: Path) -> None:
    broker = BrokerProcess(addresses(voter), 74, tmp_path / "broker")
    with broker.running():
        assert broker.stop() == 0
    database = broker.directory / "metadata.db"
    for damaged in (b"garbage" * 10_000, b"", database.read_bytes()[:5_000]):
        database.write_bytes(damaged)
        with broker.running():
            assert broker.stop() == 0
    assert "metadata database set aside" in broker.said.read_text()
    assert "Traceback" not in broker.said.read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--config", "x=y"), "x is no config of a broker"),
        (("--config", "log.retention.ms=abc"), "'abc' is no value for the broker config log.retention.ms"),
        (("--config", "num.partitions=4"), "kraftlog configs alter --entity-type brokers --entity-default"),
        (("--config", "connections.max.idle.ms="), "'' is no value for connections.max.idle.ms"),
        (("--config", "socket.request.max.bytes=1"), "socket.request.max.bytes"),
        (("--endpoint", "W://0.0.0.0:0"), "W is bound to 0.0.0.0, which no client can connect to"),
        (("--endpoint", "W://0.0.0.0:0", "--advertised", "W://localhost:9999"), "set allow.plaintext=true"),
        (("--endpoint", "W://[::]:0", "--advertised", "W://localhost:9999"), "set allow.plaintext=true"),
        (("--endpoint", "W://no-such-name.invalid:0"), "the name no-such-name.invalid is unknown"),
    ],
)
def test_options_that_make_no_sense(
    voter: LocalCluster, tmp_path: Path, run: Run, options: tuple[object, ...], words: str
) -> None:
    """In this process: it does not come to start anything."""
    ended = run_broker(addresses(voter), 75, tmp_path / "broker", *options, run=run)
    assert ended.is_error(ErrorCode.INVALID_CONFIG, words)


def test_no_quorum(tmp_path: Path) -> None:
    """Where nobody listens, which it says; and where somebody does who never answers. Ctrl-C ends both at once."""
    line = command(
        "brokers", "run", "--id", 76, "--endpoint", "PLAINTEXT://localhost:0", "--data-dir", tmp_path / "broker",
        "--bootstrap-server", "127.0.0.1:1",
    )  # fmt: skip
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()) as up:
        assert up.stderr is not None
        told = up.stderr.readline()
        up.send_signal(signal.SIGINT)
        output, errors = up.communicate(timeout=WAIT_SECONDS)
    assert "waiting for the nodes of the cluster: no node answers at 127.0.0.1:1" in told
    assert (up.returncode, output, errors) == (0, "Broker 76 has shut down.\n", "")
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        port = silent.getsockname()[1]
        line = command(
            "brokers", "run", "--id", 76, "--endpoint", "PLAINTEXT://localhost:0", "--data-dir", tmp_path / "broker",
            "--bootstrap-server", f"127.0.0.1:{port}",
        )  # fmt: skip
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()) as up:
            asked, _ = silent.accept()
            with closing(asked):
                up.send_signal(signal.SIGINT)
                output, errors = up.communicate(timeout=WAIT_SECONDS)
    assert (up.returncode, output, errors) == (0, "Broker 76 has shut down.\n", "")


def test_the_log_says_which_loop_reads_records(voter: LocalCluster, tmp_path: Path) -> None:
    with BrokerProcess(addresses(voter), 78, tmp_path / "broker", "--log-level", "info").running() as broker:
        lines = [line for line in broker.said.read_text().splitlines() if "record reader chosen" in line]
    assert len(lines) == 1
    assert record_reader.loop.name in lines[0]
