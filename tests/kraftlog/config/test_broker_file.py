"""A broker's configuration file: what it may say, what options add to it, and what each mistake is answered with."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from kraftbase.endpoint import Endpoint
from kraftbase.errors import ConfigurationError
from kraftlog.commands.broker_arguments import BrokerOptions, broker_settings, given_configs, nodes_to_ask
from kraftlog.config.broker_file import BrokerFile, parse_broker_file
from statemachine.query.descriptions import BrokerListener

FULL = """
node.id = 7
controller.quorum.bootstrap.servers = ["localhost:9191", "localhost:9192"]
listeners = "PLAINTEXT://localhost:0,OTHER://0.0.0.0:9300"
advertised.listeners = ["OTHER://broker-7:9300"]
broker.rack = "a"
metadata.log.dir = "broker-7"
log.dirs = ["disk-1", "/disk-2"]
log.level = "info"
log.retention.ms = 3600000
log.flush.before.ack = false
log.cleanup.policy = ["delete"]
auto.create.topics.enable = true
num.partitions = 4
"max.connections" = 100
max.connections.per.ip = 10
"""


def parse(text: str) -> BrokerFile:
    return parse_broker_file(tomllib.loads(text), Path("/base"), {})


def test_a_file_says_all_that_the_options_say() -> None:
    file = parse(FULL)
    settings = broker_settings(BrokerOptions(), file)
    assert nodes_to_ask(BrokerOptions(), file) == (Endpoint("localhost", 9191), Endpoint("localhost", 9192))
    assert (settings.broker_id, settings.rack, file.log_level) == (7, "a", "info")
    assert settings.directory == Path("/base/broker-7")
    assert settings.log_paths == ("/base/disk-1", "/disk-2")
    assert settings.listeners == (BrokerListener("PLAINTEXT", "localhost", 0), BrokerListener("OTHER", "0.0.0.0", 9300))
    assert settings.advertised == (BrokerListener("OTHER", "broker-7", 9300),)
    assert settings.configs == {
        "log.retention.ms": "3600000",
        "log.flush.before.ack": "false",
        "log.cleanup.policy": "delete",
        "auto.create.topics.enable": "true",
        "num.partitions": "4",
        "max.connections": "100",
        "max.connections.per.ip": "10",
    }


def test_options_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text(FULL)
    file = given_configs(["log.retention.ms=5", str(path)])
    options = BrokerOptions(broker_id=8, nodes=(Endpoint("n", 1),), directory=Path("other"), rack="")
    settings = broker_settings(options, file)
    assert (settings.broker_id, settings.directory, settings.rack) == (8, Path("other"), "")
    assert nodes_to_ask(options, file) == (Endpoint("n", 1),)
    assert settings.configs["log.retention.ms"] == "5"
    assert settings.log_paths == (str(tmp_path / "disk-1"), "/disk-2")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("log.retention.mss = 1", "log.retention.mss is not a setting; did you mean log.retention.ms?"),
        ("node.id = 'x'", 'node.id = "x": it must be a whole number'),
        ("log.retention.ms = 'x'", "'x' is no value for the broker config log.retention.ms"),
        ("log.retention.ms = [1]", "log.retention.ms = [1]: it must be text, a number"),
        ("num.io.threads = 3", "num.io.threads has no effect"),
        ("num.partitions = 3", "auto.create.topics.enable is false"),
        ("listeners = 'x'", "'x' is not a listener; write NAME://host:port"),
        ("log.level = 'loud'", "it must be one of debug, info, warning, error"),
        ("'node.id' = 1\nnode = { id = 1 }", "node.id is set twice"),
    ],
)
def test_mistakes_in_a_file(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "broker.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        given_configs([str(path)])
    assert str(refused.value).startswith(f"{path}: ")
    assert words in str(refused.value)


def test_what_neither_the_options_nor_a_file_say_is_named() -> None:
    for options, words in (
        (BrokerOptions(), "--id is missing; give it, or node.id in a file that --config names"),
        (BrokerOptions(broker_id=1), "--endpoint is missing; give it, or listeners"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            broker_settings(options, BrokerFile())
    with pytest.raises(ConfigurationError, match="--bootstrap-server is missing"):
        nodes_to_ask(BrokerOptions(), BrokerFile())


def test_a_path_is_told_from_a_config(tmp_path: Path) -> None:
    path = tmp_path / "a=b.toml"
    path.write_text("broker.rack = 'a'")
    assert given_configs([str(path)]).rack == "a"
    with pytest.raises(ConfigurationError, match="are both files; give one"):
        given_configs([str(path), "b.toml"])
    with pytest.raises(ConfigurationError, match=r"b.toml: there is no such file; give the path of a broker's TOML"):
        given_configs(["b.toml"])
