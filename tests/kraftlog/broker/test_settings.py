"""The settings of a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.errors import ConfigurationError
from kraftlog.broker.settings import ACTING_CONFIGS, STATIC_CONFIGS, BrokerListener, BrokerSettings

LISTENERS = (BrokerListener("PLAINTEXT", "127.0.0.1", 0),)


@pytest.mark.parametrize(("log_dirs", "paths"), [((), ["broker/partitions"]), ((Path("a"), Path("/b")), ["a", "/b"])])
def test_log_directories_are_absolute_as_describe_log_dirs_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_dirs: tuple[Path, ...], paths: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = BrokerSettings(broker_id=1, directory=Path("broker"), listeners=LISTENERS, log_dirs=log_dirs)
    assert list(settings.log_paths) == [str(tmp_path / path) for path in paths]


def settings_with(**configs: str) -> BrokerSettings:
    given = {name.replace("_", "."): value for name, value in configs.items()}
    return BrokerSettings(broker_id=1, directory=Path("broker"), listeners=LISTENERS, configs=given)


def test_a_config_that_would_change_nothing_is_refused_with_what_to_do_instead() -> None:
    set_for_all = "kraftlog configs alter --entity-type brokers --entity-default --add-config"
    for configs, words in (
        ({"num_partitions": "4"}, f"auto.create.topics.enable is false; set it for all topics: {set_for_all} num.part"),
        ({"default_replication_factor": "3", "auto_create_topics_enable": "false"}, "default.replication.factor=3"),
        ({"unclean_leader_election_enable": "true"}, f"the controller decides; set it there: {set_for_all} unclean."),
        ({"num_io_threads": "4"}, "num.io.threads has no effect in a broker of kraftlog; leave it out"),
        ({"num_io_threads": "x"}, "'x' is no value for the broker config num.io.threads"),
        ({"log_retention": "1"}, "log.retention is no config of a broker; is log.retention.ms meant?"),
    ):
        with pytest.raises(ConfigurationError) as refused:
            settings_with(**configs)
        assert words in str(refused.value)


def test_configs_that_act_are_taken_and_those_of_new_topics_where_the_broker_makes_some() -> None:
    taken = settings_with(num_partitions="4", default_replication_factor="3", auto_create_topics_enable="TRUE")
    assert taken.broker_configs == {"num.partitions": "4", "default.replication.factor": "3"}
    assert {"log.retention.ms", "min.insync.replicas", "leader.replication.throttled.rate"} <= ACTING_CONFIGS
    assert not ACTING_CONFIGS & STATIC_CONFIGS.keys()
