"""What the command line does without a cluster: usage, formatting, and the errors of a node that cannot start."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from kraftbase.checksum import crc32c
from kraftbase.errors import ErrorCode
from kraftbase.files.posix import PosixFileSystem
from kraftbase.uuids import random_cluster_id, uuid_from_text
from kraftlog.config.config import render_config
from kraftlog.local.cluster_directory import free_endpoints
from raft.storage.directory import DataDirectory
from tests.kraftlog.command_line import Run, command, environment, kraftlog

NOWHERE = "127.0.0.1:1"
AT_NOWHERE = ("--bootstrap-server", NOWHERE)
THE_DEFAULT = ("--entity-type", "brokers", "--entity-name", "")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The configuration file of a sole voter whose directory is not formatted."""
    (endpoint,) = free_endpoints(1)
    path = tmp_path / "node.toml"
    path.write_text(
        render_config(
            {
                "node.id": 1,
                "log.dir": "data",
                "listeners": str(endpoint),
                "controller.quorum.voters": [f"1@{endpoint}"],
            }
        )
    )
    return path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["quorum", "describe", "--status"], "Missing option '--bootstrap-server'"),
        (["quorum", "describe", "--status"], "`listeners` in a node's configuration file"),
        (["topics", "create", "--bootstrap-server", NOWHERE], "Missing argument 'NAME'"),
        (["topics", "list", "--bootstrap-server", "localhost"], "'localhost' is not an address"),
        (["topics", "list", "--bootstrap-server", NOWHERE, "--output", "yaml"], "'yaml'"),
        (["up", "--voters", "many"], "--voters"),
        (["brokers", "register", "--bootstrap-server", NOWHERE, "--id", "1", "--endpoint", "x"], "NAME://host:port"),
        (["topics", "create", "t", "--bootstrap-server", NOWHERE, "--config", "x"], "KEY=VALUE"),
        (["topics", "create", "t", "--bootstrap-server", NOWHERE, "--replica-assignment", "1:x"], "1:2,2:3"),
        (
            ["topics", "create", "t", "--bootstrap-server", NOWHERE, "--replica-assignment", "1", "--partitions", "1"],
            "leave --partitions",
        ),
        (["bench", "latency", "--fetch-version", "16"], "give 17, 18 or 17,18"),
        (["brokers", "register", *AT_NOWHERE, "--id", str(2**31), "--endpoint", "A://b:1"], str(2**31 - 1)),
        (["topics", "create", "t", *AT_NOWHERE, "--partitions", str(2**31)], str(2**31 - 1)),
        (["topics", "create", "t", *AT_NOWHERE, "--replication-factor", str(2**31)], str(2**31 - 1)),
        (["watch", *AT_NOWHERE, "--from", str(2**63)], str(2**63 - 1)),
        (["watch", *AT_NOWHERE, "--from", "-1"], "earliest, latest or an offset"),
        (["watch", *AT_NOWHERE, "--from", "now"], "earliest, latest or an offset"),
        (["watch", *AT_NOWHERE, "--from", "5", "--until", "4"], "4 is below 5"),
        (["watch", *AT_NOWHERE, "--until", str(2**63)], str(2**63 - 1)),
        (["topics", "create", "\udcff", *AT_NOWHERE], r"'\udcff' is not UTF-8"),
        (["topics", "list", "--bootstrap-server", "\udcff:9"], r"'\udcff:9' is not UTF-8"),
        (["topics", "list", "--bootstrap-server", "a\0b:9"], r"'a\x00b:9' is not an address"),
        (["export", *AT_NOWHERE, "--to", ""], "--to"),
        (["report", "--from", ""], "--from"),
        (["up", "--dir", ""], "--dir"),
        (["demo", "--dir", ""], "--dir"),
        (["bench", "throughput", "--json", ""], "--json"),
        (
            ["configs", "alter", *AT_NOWHERE, *THE_DEFAULT, "--add-config", "k=v", "--delete-config", "k"],
            "k is both set and unset",
        ),
    ],
)
def test_a_usage_error_is_one_line_and_exit_code_2(run: Run, arguments: list[str], words: str) -> None:
    said = run(*arguments)
    assert said.code == 2
    assert said.output == ""
    assert re.fullmatch(r"error: .*; see kraftlog.* --help\n", said.errors), said.errors
    assert words in said.errors


@pytest.mark.parametrize("options", [[], ["--status", "--replication"], ["--status", "--human-readable"]])
def test_ot04_describe_takes_one_view_and_ages_only_for_replication(run: Run, options: list[str]) -> None:
    """OT-04."""
    said = run("quorum", "describe", "--bootstrap-server", NOWHERE, *options)
    assert said.code == 2
    assert "--status / --replication" in said.errors or "--human-readable" in said.errors


def test_random_uuid_prints_an_id_that_format_takes(run: Run) -> None:
    said = run("random-uuid")
    assert said.code == 0
    uuid_from_text(said.output.strip())


def test_format_makes_a_directory_once(run: Run, config: Path) -> None:
    """OT-31: a second time only with --ignore-formatted. OT-32: the cluster is printed and written."""
    said = run("format", "--config", config, "--cluster-id", "random")
    assert said.code == 0
    cluster_id = re.search(r"of cluster (\S{22})\.", said.output)[1]
    directory = DataDirectory.open(PosixFileSystem(), str(config.parent / "data"), cluster_id=cluster_id)
    directory.close()
    again = run("format", "--config", config, "--cluster-id", cluster_id)
    assert again.is_error(ErrorCode.KAFKA_STORAGE_ERROR, "already formatted")
    assert run("format", "--config", config, "--cluster-id", cluster_id, "--ignore-formatted").code == 0


def test_format_for_another_cluster_is_refused_by_kafkas_name(run: Run, config: Path) -> None:
    run("format", "--config", config, "--cluster-id", "random")
    before = (config.parent / "data" / "meta.properties").read_bytes()
    said = run("format", "--config", config, "--cluster-id", random_cluster_id())
    assert said.is_error(ErrorCode.INCONSISTENT_CLUSTER_ID, "belongs to cluster")
    assert (config.parent / "data" / "meta.properties").read_bytes() == before


def test_format_refuses_a_cluster_id_that_is_none(run: Run, config: Path) -> None:
    assert run("format", "--config", config, "--cluster-id", "x").is_error(ErrorCode.INVALID_CONFIG, "'x'")
    assert not (config.parent / "data").exists()


def test_format_refuses_a_foreign_directory_and_leaves_it_alone(run: Run, config: Path) -> None:
    data = config.parent / "data"
    data.mkdir()
    (data / "thesis.txt").write_text("mine")
    said = run("format", "--config", config, "--cluster-id", "random")
    assert said.is_error(ErrorCode.KAFKA_STORAGE_ERROR, "thesis.txt")
    assert not (data / "meta.properties").exists()


def test_a_configuration_error_names_file_and_key(run: Run, config: Path) -> None:
    config.write_text(config.read_text() + "\nfetch.verison = 18\n")
    said = run("start", "--config", config)
    assert said.is_error(ErrorCode.INVALID_CONFIG, str(config), "fetch.verison", "did you mean fetch.version?")


def test_a_configuration_file_that_is_not_there_is_one_line(run: Run, tmp_path: Path) -> None:
    assert run("start", "--config", tmp_path / "none.toml").is_error(ErrorCode.INVALID_CONFIG, "no such file")


def test_up_refuses_a_directory_that_holds_something_else(run: Run, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    assert run("up", "--dir", tmp_path).is_error(ErrorCode.KAFKA_STORAGE_ERROR, "not a kraftlog cluster")


def test_demo_refuses_a_directory_that_is_not_empty(run: Run, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    assert run("demo", "--dir", tmp_path).is_error(ErrorCode.KAFKA_STORAGE_ERROR, "not empty")


@pytest.mark.parametrize(
    "command",
    [
        ["quorum", "describe", "--status"],
        ["topics", "list"],
        ["topics", "create", "t"],
        ["brokers", "list"],
        ["watch"],
    ],
)
def test_an_address_where_nobody_listens_is_one_line(run: Run, command: list[str]) -> None:
    """OT-01: exit code 1, the reason on standard error."""
    said = run(*command, "--bootstrap-server", NOWHERE)
    assert said.is_error(ErrorCode.BROKER_NOT_AVAILABLE, NOWHERE)


def test_export_from_an_address_where_nobody_listens_is_one_line_and_makes_nothing(run: Run, tmp_path: Path) -> None:
    said = run("export", "--to", tmp_path / "export", "--bootstrap-server", NOWHERE)
    assert said.is_error(ErrorCode.BROKER_NOT_AVAILABLE, NOWHERE)
    assert not (tmp_path / "export").exists()


class TestANodeThatCannotStart:
    """`start` as a process of its own: it ends at once, with one line."""

    pytestmark = pytest.mark.process

    def test_because_its_directory_is_not_formatted(self, config: Path) -> None:
        finished = kraftlog("start", "--config", config)
        assert finished.is_error(ErrorCode.KAFKA_STORAGE_ERROR, "not formatted")

    def test_because_its_directory_is_locked(self, config: Path) -> None:
        assert kraftlog("format", "--config", config, "--cluster-id", "random").code == 0
        directory = DataDirectory.open(PosixFileSystem(), str(config.parent / "data"))
        try:
            finished = kraftlog("start", "--config", config)
        finally:
            directory.close()
        assert finished.is_error(ErrorCode.KAFKA_STORAGE_ERROR, "in use")

    def test_because_its_directory_is_another_nodes(self, config: Path) -> None:
        assert kraftlog("format", "--config", config, "--cluster-id", "random").code == 0
        config.write_text(config.read_text().replace("node.id = 1", "node.id = 2").replace('["1@', '["2@'))
        finished = kraftlog("start", "--config", config)
        assert finished.is_error(ErrorCode.KAFKA_STORAGE_ERROR, "node 1, not to node 2")

    def test_because_its_format_version_is_unknown(self, config: Path) -> None:
        assert kraftlog("format", "--config", config, "--cluster-id", "random").code == 0
        meta = config.parent / "data" / "meta.properties"
        lines = meta.read_bytes().replace(b"version=1", b"version=9").rpartition(b"crc32c=")[0]
        meta.write_bytes(lines + b"crc32c=%08x\n" % crc32c(lines))
        finished = kraftlog("start", "--config", config)
        assert finished.is_error(ErrorCode.KAFKA_STORAGE_ERROR, "format version 9")

    def test_because_its_port_is_in_use(self, config: Path) -> None:
        assert kraftlog("format", "--config", config, "--cluster-id", "random").code == 0
        config.write_text(config.read_text() + 'log.level = "error"\n')  # so that the error is the only line
        port = int(re.search(r'listeners = "127.0.0.1:(\d+)"', config.read_text())[1])
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", port))
            taken.listen()
            finished = kraftlog("start", "--config", config)
        assert finished.is_error(ErrorCode.INVALID_CONFIG, f"127.0.0.1:{port}")

    def test_it_stops_with_its_parent_and_on_ctrl_c_without_a_word(self, config: Path) -> None:
        assert kraftlog("format", "--config", config, "--cluster-id", "random").code == 0
        for end in ("eof", "interrupt"):
            options = ["--stop-at-eof"] if end == "eof" else []
            with subprocess.Popen(
                command("start", "--config", config, *options),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment(),
            ) as process:
                assert "node 1 (voter) listens on" in process.stdout.readline()
                if end == "interrupt":
                    process.send_signal(signal.SIGINT)
                process.stdin.close()
                assert process.wait(30) == 0
                assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("brokers", "describe", "--id", "abc"), "'--id': 'abc' is not a whole number from 0 to 2147483647;"),
        (("brokers", "describe", "--id", "-1"), "-1 is not in the range 0<=x<=2147483647"),
        (("topics", "create", "t", "--partitions", "many"), "'many' is not a whole number from -1 to 2147483647;"),
        (("health", "--wait", "long"), "'long' is not a number from 0 on;"),
    ],
)
def test_a_value_that_is_no_number_is_told_which_numbers_there_may_be(
    run: Run, arguments: tuple[str, ...], words: str
) -> None:
    said = run(*arguments, "--bootstrap-server", NOWHERE)
    assert said.code == 2
    assert words in said.errors
