"""`format` with the voters' directory ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.errors import ConfigurationError, ErrorCode
from kraftbase.files.posix import PosixFileSystem
from kraftbase.uuids import random_cluster_id, random_uuid, uuid_to_text
from kraftlog.config.config import load_config, render_config
from kraftlog.config.endpoints import initial_controllers_text, parse_initial_controllers
from raft.storage.directory import DataDirectory
from snapshot.bootstrap import read_bootstrap
from tests.kraftlog.command_line import Run, run

__all__ = ["run"]

ADDRESSES = ("1@host-1:9093", "2@[::1]:9093", "3@host-3:9093")
FILES = PosixFileSystem()


def config_of(base: Path, node_id: int, port: int = 9093) -> Path:
    path = base / f"node-{node_id}.toml"
    settings = {
        "node.id": node_id,
        "log.dir": f"node-{node_id}",
        "listeners": f"host-{node_id}:{port}",
        "controller.quorum.voters": list(ADDRESSES),
    }
    path.write_text(render_config(settings))
    return path


def controllers() -> str:
    return ",".join(f"{address}:{uuid_to_text(random_uuid())}" for address in ADDRESSES)


def test_voters_with_directory_ids_are_read_as_they_are_written() -> None:
    text = controllers()
    assert initial_controllers_text(parse_initial_controllers(text)) == text


@pytest.mark.parametrize(
    "text", ["1@host:9093", "1@host:9093:short", "host:9093:bx2cUjsKTo-aVwxNLoGz9g", "1@host:9093:" + "A" * 22, ""]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_initial_controllers(text)


def test_a_voters_directory_gets_the_id_that_is_given_and_knows_the_voters(tmp_path: Path, run: Run) -> None:
    config, voters, cluster_id = config_of(tmp_path, 2), controllers(), random_cluster_id()
    formatting = ("format", "--config", config, "--cluster-id", cluster_id, "--initial-controllers", voters)
    assert run(*formatting).lines()[1] == f"Directory id: {voters.split(',')[1][-22:]}"
    directory = load_config(config).directory
    assert read_bootstrap(FILES, str(directory / "snapshots"), cluster_id) == parse_initial_controllers(voters)
    assert run(*formatting).is_error(ErrorCode.KAFKA_STORAGE_ERROR, "already formatted")
    assert run(*formatting, "--ignore-formatted").code == 0
    assert run(*formatting[:-1], controllers(), "--ignore-formatted").code == 1


def test_an_observers_directory_gets_an_id_of_its_own(tmp_path: Path, run: Run) -> None:
    config, voters, cluster_id = config_of(tmp_path, 9, 9099), controllers(), random_cluster_id()
    run("format", "--config", config, "--cluster-id", cluster_id, "--initial-controllers", voters).lines()
    directory = load_config(config).directory
    assert read_bootstrap(FILES, str(directory / "snapshots"), cluster_id) == parse_initial_controllers(voters)
    with DataDirectory.open(FILES, str(directory)) as opened:
        assert uuid_to_text(opened.identity.directory_id) not in voters


def test_voters_that_are_not_those_of_the_configuration_are_refused(tmp_path: Path, run: Run) -> None:
    config = config_of(tmp_path, 1)
    voters = controllers().rpartition(",")[0]
    formatting = ("format", "--config", config, "--cluster-id", "random", "--initial-controllers", voters)
    refused = run(*formatting)
    assert (refused.code, refused.output) == (1, "")
    assert "name the same voters" in refused.errors
    assert not load_config(config).directory.exists()
