"""Which peers `bench peers` finds, and what it says of those that are not there. No peer is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlog.bench.peers.installed import ETCD_PROGRAM, KAFKA_JARS, etcd_version, find_peers
from tests.kraftlog.command_line import Run

ETCD_3_4 = "etcd Version: 3.4.23\nGit SHA: Not provided (use ./build instead of go build)\nGo Version: go1.19.8\n"


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory on PATH."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    return directory


def make_program(path: Path, output: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nprintf '%s' '{output}'\n")
    path.chmod(0o755)
    return path


def test_what_is_not_there_is_named_with_the_command_that_installs_it(on_path: Path, tmp_path: Path) -> None:
    peers = find_peers(tmp_path / "peers")
    assert (peers.etcd, peers.kafka, peers.missing.keys()) == (None, None, {"etcd", "Kafka"})
    assert "make peers" in peers.missing["etcd"]
    assert "apt-get install etcd-server" in peers.missing["etcd"]
    assert "make peers" in peers.missing["Kafka"]


def test_without_any_peer_nothing_is_measured_and_the_command_fails(run: Run, on_path: Path, tmp_path: Path) -> None:
    finished = run("bench", "peers", "--peers", tmp_path / "peers")
    assert (finished.code, finished.errors) == (1, "")
    assert [line.split(":")[0] for line in finished.output.splitlines() if " is left out" in line] == [
        "etcd is left out",
        "Kafka is left out",
    ]
    assert "rounds" not in finished.output


@pytest.mark.parametrize("is_in_directory", [True, False])
def test_etcd_is_found_in_the_directory_or_on_path(on_path: Path, tmp_path: Path, is_in_directory: bool) -> None:
    program = make_program(tmp_path / ETCD_PROGRAM if is_in_directory else on_path / "etcd", ETCD_3_4)
    peers = find_peers(tmp_path)
    assert peers.etcd is not None
    assert (peers.etcd.program, peers.etcd.version) == (program, "3.4.23")
    assert peers.missing.keys() == {"Kafka"}


def test_the_etcd_of_the_directory_comes_before_that_on_path(on_path: Path, tmp_path: Path) -> None:
    make_program(on_path / "etcd", "etcd Version: 3.5.0\n")
    make_program(tmp_path / ETCD_PROGRAM, ETCD_3_4)
    peers = find_peers(tmp_path)
    assert peers.etcd is not None
    assert peers.etcd.version == "3.4.23"


def test_kafka_needs_its_jars_and_java(on_path: Path, tmp_path: Path) -> None:
    jars = tmp_path / KAFKA_JARS
    jars.mkdir()
    for name in ("kafka-clients-4.3.0.jar", "kafka_2.13-4.3.0.jar", "scala-library-2.13.18.jar"):
        (jars / name).touch()
    assert "apt-get install openjdk" in find_peers(tmp_path).missing["Kafka"]
    java = make_program(on_path / "java")
    kafka = find_peers(tmp_path).kafka
    assert kafka is not None
    assert (kafka.java, kafka.jars, kafka.version) == (java, jars, "4.3.0")


def test_a_version_that_etcd_does_not_name_is_said_to_be_unknown() -> None:
    assert etcd_version(ETCD_3_4) == "3.4.23"
    assert etcd_version("usage: etcd") == "of unknown version"
