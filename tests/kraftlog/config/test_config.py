"""A node's configuration file: what it may say, and what each mistake is answered with.

A rule that tests here are named after: RF-05.
"""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ConfigurationError
from kraftbase.types import NodeId
from kraftlog.config.config import NodeConfig, load_config, parse_config, render_config
from kraftlog.config.settings import SETTINGS
from kraftlog.controller.controller_config import ControllerConfig
from raft.core.config import QuorumConfig
from raft.rpc.limits import ServiceLimits
from raft.storage.segmented_log import LogConfig
from snapshot.log_start_policy import LogStartConfig, LogStartPolicy
from statemachine.store.snapshot_generator import SnapshotConfig

VALID = """
node.id = 1
log.dir = "data"
listeners = "127.0.0.1:9093"
controller.quorum.voters = ["1@127.0.0.1:9093", "2@node-2:9093", "3@[::1]:9095"]
"""


def parse(text: str) -> NodeConfig:
    return parse_config(tomllib.loads(text), Path("/base"))


def refusal(text: str) -> str:
    with pytest.raises(ConfigurationError) as refused:
        parse(text)
    return str(refused.value)


def test_a_minimal_file_gives_a_node_with_the_defaults() -> None:
    config = parse(VALID)
    assert config.node_id == 1
    assert config.directory == Path("/base/data")
    assert config.listener == Endpoint("127.0.0.1", 9093)
    assert config.voters[2] == (NodeId(3), Endpoint("::1", 9095))
    assert config.quorum == QuorumConfig()
    assert config.log == LogConfig()
    assert config.is_voter


@pytest.mark.parametrize(
    "text",
    [
        VALID.replace("node.id = 1", '"node.id" = 1'),
        VALID.replace("node.id = 1", "node = { id = 1 }"),
        VALID + "[controller.quorum.fetch]\ntimeout.ms = 2000",
    ],
)
def test_dotted_quoted_and_nested_keys_mean_the_same(text: str) -> None:
    assert parse(text) == parse(VALID)


def test_kafkas_lists_with_commas_are_understood() -> None:
    commas = VALID.replace(
        '["1@127.0.0.1:9093", "2@node-2:9093", "3@[::1]:9095"]', '"1@127.0.0.1:9093,2@node-2:9093,3@[::1]:9095"'
    )
    assert parse(commas) == parse(VALID)


def test_a_node_that_is_no_voter_is_an_observer() -> None:
    config = parse(VALID.replace("node.id = 1", "node.id = 7"))
    assert not config.is_voter
    assert config.advertised_endpoint == config.listener


def test_a_voter_advertises_its_entry_among_the_voters() -> None:
    config = parse(VALID.replace('listeners = "127.0.0.1', 'listeners = "0.0.0.0'))
    assert config.listener.host == "0.0.0.0"
    assert config.advertised_endpoint == Endpoint("127.0.0.1", 9093)


def test_an_unknown_key_is_refused_with_the_nearest_one() -> None:
    message = refusal(VALID + "controller.quorum.election.timout.ms = 5")
    assert "controller.quorum.election.timout.ms" in message
    assert "did you mean controller.quorum.election.timeout.ms?" in message


def test_a_key_that_is_set_twice_is_refused() -> None:
    assert "node.id is set twice" in refusal(VALID + '"node.id" = 2')


@pytest.mark.parametrize("setting", [setting for setting in SETTINGS if setting.key in VALID], ids=lambda s: s.key)
def test_a_key_that_is_missing_is_named(setting) -> None:
    kept = [line for line in VALID.splitlines() if not line.startswith(setting.key)]
    assert f"{setting.key} is missing" in refusal("\n".join(kept))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("node.id = -1", ["node.id = -1", "whole number from 0"]),
        ("node.id = true", ["node.id = true", "whole number"]),
        ('listeners = "localhost"', ["listeners", "'localhost'", "host:port"]),
        ('listeners = "localhost:0"', ["port 0", "from 1 to 65535"]),
        ('listeners = "localhost:65536"', ["65536"]),
        ('log.dir = ""', ["log.dir", "text"]),
        (r'log.dir = "a\u0000b"', [r'log.dir = "a\u0000b"', "NUL"]),
        (f"node.id = 0x{'f' * 5000}", ["node.id = 0xff", "whole number"]),
        ('controller.quorum.voters = ["1@0.0.0.0:0"]', ["0.0.0.0:0"]),
        ('controller.quorum.voters = ["1@0.0.0.0:9093"]', ["no client can connect"]),
        ('controller.quorum.voters = ["127.0.0.1:9093"]', ["id@host:port"]),
        ('controller.quorum.voters = ["x@127.0.0.1:9093"]', ["'x'", "node id"]),
        ("controller.quorum.voters = []", ["voter set is empty"]),
        ('controller.quorum.voters = ["1@a:9093", "2@a:9093"]', ["voters 1 and 2 both at a:9093"]),
        ('controller.quorum.voters = ["1@a:9093", "1@b:9093"]', ["voter 1 is listed twice"]),
        ('controller.quorum.voters = ["1@127.0.0.1:9094"]', ["same port", "9094", "9093"]),
    ],
)
def test_a_wrong_value_is_named_with_what_it_must_be(line: str, words: list[str]) -> None:
    key = line.split(" =")[0]
    kept = [kept for kept in VALID.splitlines() if not kept.startswith(key)]
    message = refusal("\n".join([*kept, line]))
    for word in words:
        assert word in message


@pytest.mark.parametrize("line", ["fetch.version = 16", "fetch.version = true", 'fetch.version = "18"'])
def test_only_fetch_versions_17_and_18_are_known(line: str) -> None:
    assert "it must be one of 17, 18" in refusal(VALID + line)


def test_an_observer_on_the_wildcard_address_is_refused() -> None:
    text = VALID.replace("node.id = 1", "node.id = 7").replace('listeners = "127.0.0.1', 'listeners = "0.0.0.0')
    assert "name the host" in refusal(text)


@pytest.mark.parametrize("content", [b"node.id = ", b"\xff\xfe"])
def test_a_file_that_is_no_toml_is_refused_by_its_path(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "node.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"node\.toml: it is not TOML"):
        load_config(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("node.id = " + "[" * 3000, "nested deeper"),
        (".".join(["a"] * 3000) + " = 1", "nested deeper"),
        ("node.id = " + "1" * 5000, "more digits"),
    ],
    ids=["lists", "tables", "digits"],
)
def test_a_file_beyond_what_python_parses_is_refused_by_its_path(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "node.toml"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match=rf"node\.toml: .*{words}"):
        load_config(path)


def test_a_file_that_is_not_there_is_refused_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"node\.toml: there is no such file"):
        load_config(tmp_path / "node.toml")


def test_rf05_a_node_without_any_voter_to_ask_is_refused() -> None:
    text = 'node.id = 1\nlog.dir = "node"\nlisteners = "localhost:9091"\ncontroller.quorum.voters = []\n'
    assert "voter" in refusal(text)


def test_an_error_within_a_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(VALID + "fetch.version = 3")
    with pytest.raises(ConfigurationError, match=r"node\.toml: fetch\.version = 3: it must be"):
        load_config(path)


def test_a_rendered_file_reads_back_as_what_was_rendered(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(
        render_config(
            {
                "node.id": 4,
                "log.dir": 'a "quoted"\\path',
                "listeners": "[::1]:9099",
                "controller.quorum.voters": ["1@127.0.0.1:9093"],
                "fetch.version": 17,
            }
        )
    )
    config = load_config(path)
    assert config.node_id == 4
    assert config.directory == tmp_path / 'a "quoted"\\path'
    assert config.listener == Endpoint("::1", 9099)
    assert config.quorum == QuorumConfig(fetch_version=17)


def test_a_rendered_file_shows_every_setting_with_its_default_as_a_comment() -> None:
    text = render_config({"node.id": 1, "log.dir": "d", "listeners": "a:1", "controller.quorum.voters": ["1@a:1"]})
    assert all(f"{setting.key} = " in text for setting in SETTINGS)
    uncommented = "\n".join(line.removeprefix("# ") for line in text.splitlines() if " = " in line)
    assert parse_config(tomllib.loads(uncommented), Path("/")) == parse_config(tomllib.loads(text), Path("/"))


def test_rendering_an_unknown_key_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"did you mean log\.level"):
        render_config({"log.levle": "info"})


def test_every_setting_sets_a_field_and_every_quorum_field_has_a_setting() -> None:
    owners: dict[str, type] = {
        "node": NodeConfig,
        "quorum": QuorumConfig,
        "log": LogConfig,
        "snapshots": SnapshotConfig,
        "log_start": LogStartConfig,
        "controller": ControllerConfig,
        "service": ServiceLimits,
    }
    for setting in SETTINGS:
        assert setting.field in {field.name for field in fields(owners[setting.section])}
    quorum_fields = {setting.field for setting in SETTINGS if setting.section == "quorum"}
    assert quorum_fields == {field.name for field in fields(QuorumConfig)}
    log_start_fields = {setting.field for setting in SETTINGS if setting.section == "log_start"}
    assert log_start_fields == {field.name for field in fields(LogStartConfig)}
    assert all(field.default is not MISSING for field in fields(QuorumConfig))


def test_sn51_the_log_start_has_settings_with_kafkas_names(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(
        VALID
        + """
metadata.log.start.policy = "eager"
metadata.max.retention.bytes = 0
metadata.max.retention.ms = 1
metadata.start.offset.lag.time.max.ms = 2
metadata.start.offset.replica.session.timeout.ms = 3
controller.quorum.fetch.snapshot.max.bytes = 100
"""
    )
    config = load_config(path)
    assert config.log_start == LogStartConfig(
        policy=LogStartPolicy.EAGER,
        retention_bytes=0,
        retention_ms=1,
        lag_time_max_ms=2,
        replica_session_timeout_ms=3,
    )
    assert config.log_start.policy is LogStartPolicy.EAGER
    assert config.quorum.fetch_snapshot_max_bytes == 100


@pytest.mark.parametrize(
    "line",
    [
        'metadata.log.start.policy = "lazy"',
        "metadata.max.retention.bytes = -1",
        "metadata.max.retention.ms = -1",
        "metadata.start.offset.lag.time.max.ms = -1",
        "metadata.start.offset.replica.session.timeout.ms = 0",
        "controller.quorum.fetch.snapshot.max.bytes = 0",
        "controller.quorum.fetch.snapshot.max.bytes = 8388609",
    ],
)
def test_sn51_settings_of_the_log_start_that_are_out_of_range_are_refused_by_name(line: str) -> None:
    assert line.partition(" = ")[0] in refusal(VALID + line)
