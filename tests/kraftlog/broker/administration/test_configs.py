"""DescribeConfigs, IncrementalAlterConfigs and AlterConfigs."""

from __future__ import annotations

import pytest

from kraftbase.errors import ErrorCode
from kraftlog.admin.client.client import NewTopic
from kraftlog.broker.metadata.configs_in_effect import ConfigSource, ConfigType
from kraftlog.kafka.messages import alter_configs, incremental_alter_configs
from kraftlog.kafka.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from kraftlog.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kraftlog.kafka.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from statemachine.words.config_definitions import LOG_VALIDATE_RECORDS, VALIDATE_RECORDS
from tests.kraftlog.broker.administration.world import ME, OTHER, AdministrationWorld

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)
RETENTION = "retention.ms"
BROKERS_RETENTION = "log.retention.ms"

Described = dict[str, DescribeConfigsResourceResult]


async def results(
    world: AdministrationWorld, *resources: tuple[int, str], keys: tuple[str, ...] | None = None, version: int = 4,
    synonyms: bool = True, documentation: bool = False,
) -> list[DescribeConfigsResult]:  # fmt: skip
    given = tuple(
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        for kind, name in resources
    )
    body = DescribeConfigsRequest(resources=given, include_synonyms=synonyms, include_documentation=documentation)
    return list((await world.answer(body, version, DescribeConfigsResponse)).results)


async def described(world: AdministrationWorld, kind: int, name: str) -> Described:
    (result,) = await results(world, (kind, name))
    assert result.error_code == ErrorCode.NONE
    return {config.name: config for config in result.configs}


async def altered(
    world: AdministrationWorld, *resources: tuple[int, str, tuple[tuple[str, int, str | None], ...]],
    version: int = 1, validate_only: bool = False,
) -> list[int]:  # fmt: skip
    given = tuple(
        incremental_alter_configs.AlterConfigsResource(
            resource_type=kind, resource_name=resource,
            configs=tuple(
                incremental_alter_configs.AlterableConfig(name=name, config_operation=operation, value=value)
                for name, operation, value in configs
            ),
        )
        for kind, resource, configs in resources
    )  # fmt: skip
    body = IncrementalAlterConfigsRequest(resources=given, validate_only=validate_only)
    response = await world.answer(body, version, IncrementalAlterConfigsResponse)
    await world.settle()
    assert [(one.resource_type, one.resource_name) for one in response.responses] == [one[:2] for one in resources]
    assert all(bool(one.error_message) == bool(one.error_code) for one in response.responses)
    return [one.error_code for one in response.responses]


async def replaced(
    world: AdministrationWorld, *resources: tuple[int, str, dict[str, str | None]], version: int = 2,
    validate_only: bool = False,
) -> list[int]:  # fmt: skip
    given = tuple(
        alter_configs.AlterConfigsResource(
            resource_type=kind, resource_name=resource,
            configs=tuple(alter_configs.AlterableConfig(name=name, value=value) for name, value in configs.items()),
        )
        for kind, resource, configs in resources
    )  # fmt: skip
    body = AlterConfigsRequest(resources=given, validate_only=validate_only)
    response = await world.answer(body, version, AlterConfigsResponse)
    await world.settle()
    assert [(one.resource_type, one.resource_name) for one in response.responses] == [one[:2] for one in resources]
    return [one.error_code for one in response.responses]


async def with_topic(world: AdministrationWorld, name: str, **configs: str) -> None:
    await world.client.create_topics([NewTopic(name, configs={key.replace("_", "."): configs[key] for key in configs})])
    await world.settle()


# --- DescribeConfigs --------------------------------------------------------------------------------------------------


async def test_a_topics_configs_have_sources_and_synonyms(world: AdministrationWorld) -> None:
    await with_topic(world, "sources", retention_ms="5")
    assert await altered(world, (BROKER, "", ((BROKERS_RETENTION, SET, "7"),))) == [0]
    assert await altered(world, (BROKER, str(ME), ((BROKERS_RETENTION, SET, "6"),))) == [0]
    retention = (await described(world, TOPIC, "sources"))[RETENTION]
    assert (retention.value, retention.config_source, retention.config_type) == (
        "5",
        ConfigSource.TOPIC,
        ConfigType.LONG,
    )
    assert [(of.name, of.value, of.source) for of in retention.synonyms] == [
        (RETENTION, "5", ConfigSource.TOPIC),
        (BROKERS_RETENTION, "6", ConfigSource.BROKER),
        (BROKERS_RETENTION, "7", ConfigSource.ALL_BROKERS),
        (BROKERS_RETENTION, "70000", ConfigSource.FILE),
        (BROKERS_RETENTION, "604800000", ConfigSource.DEFAULT),
    ]
    for resource, config, value, source in (
        ((TOPIC, "sources"), RETENTION, "6", ConfigSource.BROKER),
        ((BROKER, str(ME)), BROKERS_RETENTION, "7", ConfigSource.ALL_BROKERS),
        ((BROKER, ""), BROKERS_RETENTION, "70000", ConfigSource.FILE),
    ):
        assert await altered(world, (*resource, ((config, DELETE, None),))) == [0]
        retention = (await described(world, TOPIC, "sources"))[RETENTION]
        assert (retention.value, retention.config_source) == (value, source)


async def test_db112_values_are_shown_as_they_are_parsed(world: AdministrationWorld) -> None:
    await with_topic(world, "parsed", retention_ms=" 007 ", cleanup_policy="delete, compact")
    assert await altered(world, (TOPIC, "parsed", (("preallocate", SET, "TRUE"),))) == [0]
    configs = await described(world, TOPIC, "parsed")
    shown = [configs[name].value for name in (RETENTION, "cleanup.policy", "preallocate", "min.cleanable.dirty.ratio")]
    assert shown == ["7", "delete,compact", "true", "0.5"]
    assert configs["preallocate"].synonyms[0].value == "true"
    assert await altered(world, (BROKER, str(ME), (("log.preallocate", SET, " True "),))) == [0]
    preallocate = (await described(world, BROKER, str(ME)))["log.preallocate"]
    assert preallocate.value == "true"
    assert (preallocate.synonyms[0].value, preallocate.synonyms[0].source) == ("True", ConfigSource.BROKER)
    assert await altered(world, (BROKER, str(ME), (("log.preallocate", DELETE, None),))) == [0]


async def test_ct70_a_broker_has_configs_that_nobody_knows_and_shows_nothing_of_them(
    world: AdministrationWorld,
) -> None:
    assert await altered(world, (BROKER, str(ME), (("my.plug-in.password", SET, "secret"),))) == [0]
    unknown = (await described(world, BROKER, str(ME)))["my.plug-in.password"]
    assert (unknown.value, unknown.is_sensitive, unknown.config_source) == (None, True, ConfigSource.BROKER)
    assert await altered(world, (BROKER, str(ME), (("my.plug-in.password", DELETE, None),))) == [0]
    assert await altered(world, (BROKER, str(ME), (("log.dirs", SET, "/tmp"),))) == [ErrorCode.INVALID_REQUEST]


async def test_a_topic_shows_whether_this_broker_validates_records(world: AdministrationWorld) -> None:
    """A stock broker answers for itself, too: another one may answer something else, and a controller does not know."""
    await with_topic(world, "validated")
    assert (await described(world, TOPIC, "validated"))[VALIDATE_RECORDS].value == "true"
    assert await altered(world, (BROKER, str(ME), ((LOG_VALIDATE_RECORDS, SET, "false"),))) == [0]
    config = (await described(world, TOPIC, "validated"))[VALIDATE_RECORDS]
    assert (config.value, config.config_source) == ("false", ConfigSource.BROKER)
    assert await altered(world, (BROKER, str(ME), ((LOG_VALIDATE_RECORDS, DELETE, None),))) == [0]


async def test_a_config_without_a_brokers_one_has_its_default_and_no_synonym(world: AdministrationWorld) -> None:
    await with_topic(world, "throttled")
    config = (await described(world, TOPIC, "throttled"))["leader.replication.throttled.replicas"]
    assert (config.value, config.config_source, config.config_type) == ("", ConfigSource.DEFAULT, ConfigType.LIST)
    assert (config.synonyms, config.read_only, config.is_sensitive) == ((), False, False)


async def test_this_brokers_configs_include_its_file_and_what_cannot_be_changed(world: AdministrationWorld) -> None:
    configs = await described(world, BROKER, str(ME))
    assert (configs[BROKERS_RETENTION].value, configs[BROKERS_RETENTION].config_source) == ("70000", ConfigSource.FILE)
    assert not configs[BROKERS_RETENTION].read_only
    idle = configs["connections.max.idle.ms"]
    assert (idle.value, idle.config_source, idle.read_only) == ("500000", ConfigSource.FILE, True)
    assert [(of.value, of.source) for of in idle.synonyms] == [
        ("500000", ConfigSource.FILE),
        ("600000", ConfigSource.DEFAULT),
    ]
    assert configs["auto.create.topics.enable"].config_type == ConfigType.BOOLEAN
    assert (configs["node.id"].value, configs["node.id"].read_only) == (str(ME), True)
    assert configs["listeners"].value == "PLAINTEXT://127.0.0.1:0"
    assert configs["advertised.listeners"].value == f"PLAINTEXT://127.0.0.1:{world.broker.ports['PLAINTEXT']}"  # DB-112
    assert configs["broker.rack"].value is None
    types = {name: configs[name].config_type for name in ("num.partitions", "compression.type", "log.cleanup.policy")}
    assert list(types.values()) == [ConfigType.INT, ConfigType.STRING, ConfigType.LIST]
    assert configs["log.cleaner.min.cleanable.ratio"].config_type == ConfigType.DOUBLE


async def test_the_default_of_all_brokers_has_only_what_is_set(world: AdministrationWorld) -> None:
    assert await altered(world, (BROKER, "", (("num.io.threads", SET, "4"),))) == [0]
    configs = await described(world, BROKER, "")
    assert [(name, config.value, config.config_source) for name, config in configs.items()] == [
        ("num.io.threads", "4", ConfigSource.ALL_BROKERS)
    ]
    assert await altered(world, (BROKER, "", (("num.io.threads", DELETE, None),))) == [0]
    assert await described(world, BROKER, "") == {}


async def test_each_resource_that_cannot_be_described_has_its_own_error(world: AdministrationWorld) -> None:
    await with_topic(world, "described")
    found = await results(
        world, (TOPIC, "missing"), (TOPIC, "no/name"), (BROKER, str(OTHER)), (BROKER, "me"), (LOGGER, str(ME)),
        (99, ""), (TOPIC, "described"), keys=(RETENTION, "no.such"), synonyms=False,
    )  # fmt: skip
    assert [result.error_code for result in found] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        *[ErrorCode.INVALID_REQUEST] * 4,
        ErrorCode.NONE,
    ]
    (config,) = found[-1].configs
    assert (config.name, config.synonyms) == (RETENTION, ())
    assert all(result.error_message and not result.configs for result in found[:-1])


@pytest.mark.parametrize("version", range(1, 5))
async def test_every_version_describes(world: AdministrationWorld, version: int) -> None:
    name = f"described-in-{version}"
    await with_topic(world, name)
    topic, broker = await results(
        world, (TOPIC, name), (BROKER, str(ME)), version=version, documentation=version >= 3
    )  # fmt: skip
    assert {config.config_type for config in topic.configs} >= ({0} if version < 3 else {ConfigType.LONG})
    told = {config.name: config.documentation for config in broker.configs}
    assert bool(told["auto.create.topics.enable"]) == (version >= 3)


# --- IncrementalAlterConfigs ------------------------------------------------------------------------------------------


async def test_lists_grow_and_shrink(world: AdministrationWorld) -> None:
    await with_topic(world, "lists")
    for kind, value, after in ((APPEND, "compact", "delete,compact"), (SUBTRACT, "delete", "compact")):
        assert await altered(world, (TOPIC, "lists", (("cleanup.policy", kind, value),))) == [0]
        assert (await described(world, TOPIC, "lists"))["cleanup.policy"].value == after


async def test_each_resource_that_cannot_be_altered_has_its_own_error(world: AdministrationWorld) -> None:
    await with_topic(world, "altered")
    one = ((RETENTION, SET, "5"),)
    codes = await altered(
        world,
        (TOPIC, "altered", one),
        (TOPIC, "missing", one),
        (TOPIC, "missing-too", ()),
        (TOPIC, "twice", one),
        (TOPIC, "twice", ()),
        (BROKER, str(OTHER), ((BROKERS_RETENTION, SET, "5"),)),
        (BROKER, str(ME), ((BROKERS_RETENTION, SET, "soon"),)),
        (LOGGER, str(ME), one),
    )
    unknown, invalid = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REQUEST
    assert codes == [0, unknown, unknown, *[invalid] * 5]
    assert (await described(world, TOPIC, "altered"))[RETENTION].value == "5"
    for configs, code in (
        ((*one, (RETENTION, DELETE, None)), invalid),
        (((RETENTION, SET, None),), invalid),
        (((RETENTION, 9, "5"),), invalid),
        (((RETENTION, SET, "soon"),), ErrorCode.INVALID_CONFIG),
        (((RETENTION, APPEND, "6"),), ErrorCode.INVALID_CONFIG),
        ((("no.such", SET, "6"),), ErrorCode.INVALID_CONFIG),
        ((), ErrorCode.NONE),
    ):
        assert await altered(world, (TOPIC, "altered", configs)) == [code]
    assert (await described(world, TOPIC, "altered"))[RETENTION].value == "5"


@pytest.mark.parametrize("version", range(2))
async def test_every_version_alters_or_only_validates(world: AdministrationWorld, version: int) -> None:
    name = f"altered-in-{version}"
    await with_topic(world, name, retention_ms="5")
    for validate_only, after in ((True, "5"), (False, "6")):
        resource = (TOPIC, name, ((RETENTION, SET, "6"),))
        assert await altered(world, resource, version=version, validate_only=validate_only) == [0]
        assert (await described(world, TOPIC, name))[RETENTION].value == after


# --- AlterConfigs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
async def test_all_configs_are_replaced(world: AdministrationWorld, version: int) -> None:
    name = f"replaced-in-{version}"
    await with_topic(world, name, retention_ms="5", retention_bytes="6")
    for validate_only, after in ((True, {RETENTION: "5", "retention.bytes": "6"}), (False, {RETENTION: "7"})):
        given = {RETENTION: "7"}
        assert await replaced(world, (TOPIC, name, dict(given)), version=version, validate_only=validate_only) == [0]
        configs = (await described(world, TOPIC, name)).values()
        assert {of.name: of.value for of in configs if of.config_source == ConfigSource.TOPIC} == after
    assert await replaced(world, (TOPIC, name, {}), (TOPIC, "missing", {}), version=version) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert (await described(world, TOPIC, name))[RETENTION].config_source == ConfigSource.FILE


async def test_what_cannot_be_replaced_stays(world: AdministrationWorld) -> None:
    await with_topic(world, "kept", retention_ms="5")
    bad: tuple[tuple[dict[str, str | None], ErrorCode], ...] = (
        ({RETENTION: None}, ErrorCode.INVALID_REQUEST),
        ({"retention.bytes": "much"}, ErrorCode.INVALID_CONFIG),
    )
    for configs, code in bad:
        assert await replaced(world, (TOPIC, "kept", configs), (LOGGER, str(ME), {})) == [
            code,
            ErrorCode.INVALID_REQUEST,
        ]
    assert (await described(world, TOPIC, "kept"))[RETENTION].value == "5"
