"""What a node's file says to its controller: read, refused by name, and gone by."""

from __future__ import annotations

import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from kraftbase.errors import ApiError, ConfigurationError, ErrorCode
from kraftlog.admin.client.client import AdminClient, NewTopic
from kraftlog.config.config import NodeConfig, parse_config, render_config
from kraftlog.config.settings import SETTINGS
from kraftlog.controller.controller_config import ControllerConfig
from tests.kraftlog.config.test_config import VALID
from tests.kraftlog.policies import OfTwoLetters, of_two_letters
from tests.kraftlog.whole_nodes import WholeNodes

POLICIES = "tests.kraftlog.policies"


def parse(*lines: str) -> NodeConfig:
    return parse_config(tomllib.loads("\n".join([VALID, *lines])), Path("/base"))


def test_a_file_that_says_nothing_leaves_the_defaults() -> None:
    assert parse().controller == ControllerConfig()


def test_everything_that_a_controller_is_told_has_a_setting() -> None:
    set_here = {setting.field for setting in SETTINGS if setting.section == "controller"}
    assert set_here == {field.name for field in fields(ControllerConfig)}


def test_each_setting_is_taken() -> None:
    config = parse(
        "broker.session.timeout.ms = 1",
        "auto.leader.rebalance.enable = false",
        "leader.imbalance.check.interval.seconds = 2",
        "unclean.leader.election.interval.ms = 3",
        "metadata.max.idle.interval.ms = 4",
        "delete.topic.enable = false",
        "remote.log.storage.system.enable = true",
        f'create.topic.policy.class.name = "{POLICIES}:of_two_letters"',
        "controller.mutation.rate = 0.5",
        "controller.mutation.burst = 6",
    )
    assert config.controller == ControllerConfig(
        broker_session_timeout_ms=1,
        auto_leader_rebalance_enable=False,
        leader_imbalance_check_interval_seconds=2,
        unclean_election_check_interval_ms=3,
        metadata_max_idle_interval_ms=4,
        delete_topic_enable=False,
        remote_log_storage_system_enable=True,
        create_topic_policy=of_two_letters,
        controller_mutation_rate=0.5,
        controller_mutation_burst=6.0,
    )


def test_a_policy_may_be_a_class() -> None:
    config = parse(f'create.topic.policy.class.name = "{POLICIES}:OfTwoLetters"')
    assert isinstance(config.controller.create_topic_policy, OfTwoLetters)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("broker.session.timeout.ms = 0", "whole number from 1 to 86400000"),
        ("broker.session.timeout.ms = 9.5", "whole number"),
        ('auto.leader.rebalance.enable = "true"', "true or false, without quotes"),
        ("auto.leader.rebalance.enable = 1", "true or false"),
        ("leader.imbalance.check.interval.seconds = 0", "from 1 to 86400"),
        ("unclean.leader.election.interval.ms = -1", "from 1 to"),
        ("metadata.max.idle.interval.ms = -1", "from 0 to"),
        ("delete.topic.enable = 0", "true or false"),
        ("controller.mutation.rate = -1", "a number from 0.001 to 1e+09, or 0"),
        ("controller.mutation.rate = false", "a number from"),
        ("controller.mutation.rate = inf", "a number from"),
        ("controller.mutation.rate = nan", "a number from"),
        (f"controller.mutation.rate = 1{'0' * 400}", "a number from"),
        ('controller.mutation.burst = "many"', "a number from"),
        ("create.topic.policy.class.name = 7", "text, in quotes"),
        ('create.topic.policy.class.name = "judge"', "module:name, as in"),
        ('create.topic.policy.class.name = "a b:c"', "module:name, as in"),
        ('create.topic.policy.class.name = "no.such.module:judge"', "No module named"),
        (f'create.topic.policy.class.name = "{POLICIES}:no_such_name"', "no_such_name"),
        (f'create.topic.policy.class.name = "{POLICIES}:Unmakeable"', "not today"),
        (f'create.topic.policy.class.name = "{POLICIES}:NOT_A_POLICY"', "cannot be called"),
    ],
)
def test_a_wrong_value_is_refused_by_the_settings_name(line: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse(line)
    key = line.partition(" = ")[0]
    assert str(refused.value).startswith(f"{key} = ")
    assert words in str(refused.value)


def test_a_file_that_is_written_says_what_stands_for_none() -> None:
    text = render_config({"node.id": 1, "log.dir": "d", "listeners": "a:1", "controller.quorum.voters": ["1@a:1"]})
    assert '# create.topic.policy.class.name = ""\n' in text
    assert "# controller.mutation.rate = 0\n" in text
    assert "# delete.topic.enable = true\n" in text


async def refused(client: AdminClient, *names: str) -> ErrorCode:
    with pytest.raises(ApiError) as refusal:
        await client.create_topics([NewTopic(name, num_partitions=2, replication_factor=1) for name in names])
    return refusal.value.code


async def test_ct20_a_node_goes_by_what_its_file_says(tmp_path: Path) -> None:
    config = parse(
        "delete.topic.enable = false",
        "controller.mutation.rate = 0.001",
        "controller.mutation.burst = 1",
        f'create.topic.policy.class.name = "{POLICIES}:of_two_letters"',
    )
    async with WholeNodes(tmp_path) as nodes:
        await nodes.start(1, controller=config.controller)
        async with (
            AdminClient([nodes.endpoints[1]], client_id="one", timeout_ms=5_000) as one,
            AdminClient([nodes.endpoints[1]], client_id="another", timeout_ms=5_000) as another,
        ):
            epoch = await one.register_broker(1, [("PLAINTEXT", "localhost", 9092)])
            await one.broker_heartbeat(1, epoch, epoch + 1)
            assert await refused(one, "x") is ErrorCode.POLICY_VIOLATION
            await one.create_topics([NewTopic("xx", num_partitions=2, replication_factor=1)])
            assert await refused(one, "yy") is ErrorCode.THROTTLING_QUOTA_EXCEEDED
            await another.create_topics([NewTopic("yy", num_partitions=2, replication_factor=1)])
            with pytest.raises(ApiError) as refusal:
                await another.delete_topics(["yy"])
            assert refusal.value.code is ErrorCode.TOPIC_DELETION_DISABLED
