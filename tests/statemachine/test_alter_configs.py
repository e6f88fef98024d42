"""AlterConfigs (rule CT-60): what is written, and every error."""

from __future__ import annotations

import pytest

from kraftpb.v1 import admin_pb2
from raft.core.errors import ErrorCode
from statemachine import queries
from tests.statemachine.builders import BROKER, TOPIC, alter, alteration, create, delete
from tests.statemachine.conftest import Bench, errors


def configs(bench: Bench, resource_type: int, resource_name: str) -> dict[str, str]:
    found = queries.describe_configs(bench.store.reader, resource_type, resource_name)
    return {config.name: config.value for config in found}


async def test_configs_of_topics_brokers_and_the_cluster_are_set_and_removed(bench: Bench) -> None:
    await bench.with_brokers(1)
    await bench.done(create("t"))
    result = await bench.done(
        alter(
            alteration("t", "retention.ms", "5"),
            alteration("t", "segment.ms", "6"),
            alteration("1", "log.retention.ms", "7", BROKER),
            alteration("", "num.partitions", "8", BROKER),
        )
    )
    assert [(of.resource_type, of.resource_name) for of in result.alter_configs.resources] == [
        (TOPIC, "t"),
        (BROKER, "1"),
        (BROKER, ""),
    ]
    assert configs(bench, TOPIC, "t") == {"retention.ms": "5", "segment.ms": "6"}
    assert configs(bench, BROKER, "1") == {"log.retention.ms": "7"}
    assert configs(bench, BROKER, "") == {"num.partitions": "8"}
    await bench.done(alter(alteration("t", "retention.ms", None), alteration("", "num.partitions", None, BROKER)))
    assert configs(bench, TOPIC, "t") == {"segment.ms": "6"}
    assert configs(bench, BROKER, "") == {}


async def test_ct60_a_topics_config_that_has_the_value_already_makes_no_record(bench: Bench) -> None:
    await bench.with_brokers(1)
    await bench.done(create("t"))
    await bench.done(alter(alteration("t", "retention.ms", "5")))
    result = await bench.done(alter(alteration("t", "retention.ms", "5"), alteration("t", "segment.ms", None)))
    assert result.end_offset == -1


async def test_ct60_a_brokers_config_is_always_written(bench: Bench) -> None:
    await bench.with_brokers(1)
    first = await bench.done(alter(alteration("1", "log.retention.ms", "5", BROKER)))
    again = await bench.done(alter(alteration("1", "log.retention.ms", "5", BROKER)))
    assert again.end_offset == first.end_offset + 1


@pytest.mark.parametrize(
    ("altered", "error"),
    [
        (alteration("missing", "retention.ms", "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (alteration("", "retention.ms", "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (alteration("9", "log.retention.ms", "1", BROKER), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (alteration("one", "log.retention.ms", "1", BROKER), ErrorCode.INVALID_REQUEST),
        (alteration("-1", "log.retention.ms", "1", BROKER), ErrorCode.INVALID_REQUEST),
        (alteration("9" * 11, "log.retention.ms", "1", BROKER), ErrorCode.INVALID_REQUEST),
        (alteration("4294967297", "log.retention.ms", "1", BROKER), ErrorCode.INVALID_REQUEST),
        (alteration("01", "log.retention.ms", "1", BROKER), ErrorCode.INVALID_REQUEST),
        (alteration("00", "log.retention.ms", "1", BROKER), ErrorCode.INVALID_REQUEST),
        (alteration("t", "retention.ms", "1", 8), ErrorCode.INVALID_REQUEST),
        (alteration("t", "retention.ms", "1", 0), ErrorCode.INVALID_REQUEST),
        (alteration("t", "retention.ms", "soon"), ErrorCode.INVALID_CONFIG),
        (alteration("t", "no.such.config", "1"), ErrorCode.INVALID_CONFIG),
        (alteration("t", "no.such.config", None), ErrorCode.INVALID_CONFIG),
        (alteration("t", "", None), ErrorCode.INVALID_CONFIG),
        (
            admin_pb2.ConfigAlteration(resource_type=TOPIC, resource_name="t", name="retention.ms", kind=7),  # type: ignore[arg-type]
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
async def test_each_error_has_kafkas_name_and_writes_nothing(
    bench: Bench, altered: admin_pb2.ConfigAlteration, error: ErrorCode
) -> None:
    await bench.with_brokers(1)
    await bench.done(create("t"))
    end = bench.log.log_end_offset
    result = await bench.run(alter(altered))
    assert errors(result) == [error]
    assert result.alter_configs.resources[0].error_message
    assert bench.log.log_end_offset == end


async def test_a_resource_is_altered_whole_or_not_at_all(bench: Bench) -> None:
    await bench.with_brokers(1)
    await bench.done(create("good", "bad", "twice"))
    result = await bench.run(
        alter(
            alteration("bad", "segment.ms", "1"),
            alteration("good", "segment.ms", "2"),
            alteration("bad", "retention.ms", "soon"),
            alteration("twice", "segment.ms", "3"),
            alteration("twice", "segment.ms", None),
        )
    )
    by_name = {of.resource_name: of.error_code for of in result.alter_configs.resources}
    assert by_name == {"bad": ErrorCode.INVALID_CONFIG, "good": 0, "twice": ErrorCode.INVALID_REQUEST}
    assert configs(bench, TOPIC, "bad") == configs(bench, TOPIC, "twice") == {}
    assert configs(bench, TOPIC, "good") == {"segment.ms": "2"}


async def test_what_is_set_must_go_with_what_was_set_before(bench: Bench) -> None:
    await bench.with_brokers(1)
    await bench.done(create("t"))
    await bench.done(alter(alteration("t", "remote.storage.enable", "true"), alteration("t", "retention.ms", "5")))
    result = await bench.run(alter(alteration("t", "local.retention.ms", "6")))
    assert errors(result) == [ErrorCode.INVALID_CONFIG]
    await bench.done(alter(alteration("t", "local.retention.ms", "6"), alteration("t", "retention.ms", None)))


async def test_validate_only_gives_the_same_answer_and_writes_nothing(bench: Bench) -> None:
    await bench.with_brokers(1)
    await bench.done(create("t"))
    asked = (alteration("t", "retention.ms", "5"), alteration("missing", "retention.ms", "5"))
    result = await bench.run(alter(*asked, validate_only=True))
    assert errors(result) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert configs(bench, TOPIC, "t") == {}


async def test_a_new_topic_of_an_old_name_starts_without_configs(bench: Bench) -> None:
    await bench.with_brokers(1)
    await bench.done(create("t"))
    await bench.done(alter(alteration("t", "retention.ms", "5")))
    await bench.done(delete("t"))
    await bench.done(create("t"))
    assert configs(bench, TOPIC, "t") == {}
    assert (await bench.done(alter(alteration("t", "retention.ms", "5")))).end_offset > 0


async def test_ct12_more_alterations_than_a_batch_holds_are_refused_whole(bench: Bench) -> None:
    result = await bench.run(alter(*(alteration(f"t{number}", "retention.ms", "1") for number in range(10_001))))
    assert result.error_code == ErrorCode.RECORD_LIST_TOO_LARGE
