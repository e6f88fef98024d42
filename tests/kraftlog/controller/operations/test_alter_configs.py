"""AlterConfigs (rule CT-60): what is written, and every error."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftbase.errors import ErrorCode
from kraftlog.controller.controller_config import ControllerConfig
from kraftlog.controller.operations.configs import alter_configs
from kraftpb.v1 import admin_pb2
from kraftpb.v1.metadata_pb2 import ConfigRecord
from statemachine.query import metadata_queries
from tests.effort import examples
from tests.kraftlog.controller.lives import appended_records, beat, fence, partitions, quiet, unregister, with_topic
from tests.statemachine.builders import (
    BROKER,
    TOPIC,
    alter,
    alteration,
    broker,
    config,
    creatable,
    create,
    delete,
    register,
    topic,
)
from tests.statemachine.conftest import Bench, errors, memory_bench
from tests.statemachine.states import Metadata, metadata


def configs(bench: Bench, resource_type: int, resource_name: str) -> dict[str, str]:
    found = metadata_queries.describe_configs(bench.store.reader, resource_type, resource_name)
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
        (alteration("__cluster_metadata", "retention.ms", "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (alteration("", "retention.ms", "1"), ErrorCode.INVALID_REQUEST),
        (alteration("", "retention.ms", None), ErrorCode.INVALID_REQUEST),
        (alteration("no spaces", "retention.ms", "1"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (alteration("..", "retention.ms", None), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (alteration("x" * 250, "retention.ms", "1"), ErrorCode.INVALID_TOPIC_EXCEPTION),
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
        (alteration("t", "", "1"), ErrorCode.INVALID_CONFIG),
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


async def test_what_a_broker_leaves_behind_that_is_unregistered_can_be_deleted_and_nothing_else(bench: Bench) -> None:
    """Its configs stay, as in Kafka: it may return."""
    await bench.with_brokers(1, 2)
    left = [alteration("1", "log.retention.ms", "5", BROKER), alteration("1", "num.io.threads", "3", BROKER)]
    await bench.done(alter(*left))
    await bench.done(unregister(1))
    assert configs(bench, BROKER, "1") == {"log.retention.ms": "5", "num.io.threads": "3"}
    for refused in (
        [alteration("1", "log.retention.ms", "6", BROKER)],
        [alteration("1", "log.retention.ms", None, BROKER), alteration("1", "num.io.threads", "4", BROKER)],
        [alteration("1", "log.segment.bytes", None, BROKER)],  # it has none
        [alteration("3", "log.retention.ms", None, BROKER)],
    ):
        assert errors(await bench.run(alter(*refused))) == [ErrorCode.BROKER_ID_NOT_REGISTERED]
    await bench.done(alter(alteration("1", "log.retention.ms", None, BROKER)))
    assert configs(bench, BROKER, "1") == {"num.io.threads": "3"}
    await bench.done(register(1))
    await bench.done(alter(alteration("1", "num.io.threads", "4", BROKER)))


async def test_ct56_the_eligible_are_forgotten_with_the_default_that_is_lowered_and_not_behind_it(bench: Bench) -> None:
    """KIP-966: from the record on that lowers it, an ISR that was too small may commit what they do not have."""
    await with_topic(bench, {0: [1, 2]}, min_isr=2)
    await bench.done(fence(1))
    assert list(partitions(bench)[0].eligible_leader_replicas) == [1]
    bench.log.auto_commit = False
    since = bench.log.next_append_offset
    await bench.submit(alter(alteration("", "min.insync.replicas", "1", BROKER)))
    assert not bench.controller.has_pages
    assert [record.WhichOneof("record") for record in appended_records(bench, since=since)] == [
        "partition_change",
        "config",
    ]
    assert len([batch for batch in bench.log.batches if batch.base_offset >= since]) == 1
    # Decisions from now on make no replica eligible again.
    (before,) = bench.controller.state.all_partitions()
    assert list(before.eligible_leader_replicas) == []
    await bench.submit(fence(2), beat(bench, 1))
    (after,) = bench.controller.state.all_partitions()
    assert (list(after.isr), list(after.eligible_leader_replicas)) == ([], [2])
    bench.log.auto_commit = True
    bench.log.commit()
    await quiet(bench)


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
    result = await bench.run(alter(alteration("t", "remote.storage.enable", None)))
    assert errors(result) == [ErrorCode.INVALID_CONFIG]
    word = alteration("t", "remote.log.delete.on.disable", "true")
    await bench.done(alter(alteration("t", "remote.storage.enable", None), word))
    await bench.done(alter(alteration("t", "remote.log.delete.on.disable", None)))


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


# --- APPEND and SUBTRACT ----------------------------------------------------------------------------------------------

SET, DELETE = admin_pb2.ConfigAlteration.SET, admin_pb2.ConfigAlteration.DELETE
APPEND, SUBTRACT = admin_pb2.ConfigAlteration.APPEND, admin_pb2.ConfigAlteration.SUBTRACT
THROTTLED = "leader.replication.throttled.replicas"


def changed(
    kind: admin_pb2.ConfigAlteration.Kind.ValueType, name: str, value: str, of: str = "t", resource_type: int = TOPIC
) -> admin_pb2.ConfigAlteration:
    return admin_pb2.ConfigAlteration(resource_type=resource_type, resource_name=of, name=name, kind=kind, value=value)


def decided(
    state: Metadata, *alterations: admin_pb2.ConfigAlteration
) -> tuple[list[ConfigRecord], list[admin_pb2.AlteredResource]]:
    records, response = alter_configs(
        state, admin_pb2.AlterConfigsRequest(alterations=alterations), tiering_enabled=True
    )
    return [record.config for record in records], list(response.resources)


def written(state: Metadata, *alterations: admin_pb2.ConfigAlteration) -> list[str | None]:
    """The values of the records, None for a removal; nothing may be refused."""
    records, answers = decided(state, *alterations)
    assert [answer.error_message for answer in answers if answer.error_code] == []
    return [record.value if record.HasField("value") else None for record in records]


def refused(state: Metadata, *alterations: admin_pb2.ConfigAlteration) -> tuple[ErrorCode, str]:
    """The error of the only resource, with which no record is made."""
    records, [answer] = decided(state, *alterations)
    assert records == []
    return ErrorCode(answer.error_code), answer.error_message


@pytest.mark.parametrize(
    ("present", "kind", "given", "value"),
    [
        ("0:1", APPEND, "1:2", "0:1,1:2"),
        ("0:1", APPEND, "1:2,2:3", "0:1,1:2,2:3"),
        ("0:1, 1:2", APPEND, " 2:3 ", "0:1,1:2,2:3"),
        ("0:1", APPEND, "1:2,1:2", "0:1,1:2"),
        ("0:1,1:2,2:3", SUBTRACT, "1:2", "0:1,2:3"),
        ("0:1, 1:2", SUBTRACT, "0:1", "1:2"),
        ("0:1,0:1", SUBTRACT, "0:1", ""),
        ("0:1", SUBTRACT, "9:9,0:1", ""),
        ("", APPEND, "0:1", "0:1"),
    ],
)
def test_ct60_elements_of_a_list_are_added_at_its_end_and_taken_away(
    present: str, kind: admin_pb2.ConfigAlteration.Kind.ValueType, given: str, value: str
) -> None:
    state = metadata(topic("t", 1), config("t", THROTTLED, present))
    assert written(state, changed(kind, THROTTLED, given)) == [value]


@pytest.mark.parametrize(
    ("kind", "given"),
    [(APPEND, "0:1"), (APPEND, "1:2,0:1"), (SUBTRACT, "7:7"), (APPEND, ""), (SUBTRACT, ""), (SUBTRACT, "x")],
)
def test_ct60_adding_what_is_there_and_taking_what_is_not_changes_nothing(
    kind: admin_pb2.ConfigAlteration.Kind.ValueType, given: str
) -> None:
    state = metadata(topic("t", 1), config("t", THROTTLED, " 0:1 ,1:2,1:2"))
    assert written(state, changed(kind, THROTTLED, given)) == []


def test_a_list_that_is_not_set_starts_from_its_default() -> None:
    state = metadata(topic("t", 1), broker(1))
    assert written(state, changed(APPEND, "cleanup.policy", "compact")) == ["delete,compact"]
    assert written(state, changed(APPEND, "cleanup.policy", "delete")) == []
    assert written(state, changed(APPEND, THROTTLED, "0:1")) == ["0:1"]
    assert written(state, changed(SUBTRACT, THROTTLED, "0:1")) == []
    appended = changed(APPEND, "log.cleanup.policy", "compact", "1", BROKER)
    assert written(state, appended) == ["delete,compact"]


@pytest.mark.parametrize("present", ["", " "])
def test_ct60_all_elements_of_a_list_may_go_and_others_come(present: str) -> None:
    """A topic without a cleanup policy keeps everything (KIP-1161)."""
    state = metadata(topic("t", 1))
    assert written(state, changed(SUBTRACT, "cleanup.policy", "delete")) == [""]
    assert written(state, changed(SET, "cleanup.policy", "")) == [""]
    state.commit(config("t", "cleanup.policy", present))
    assert written(state, changed(SUBTRACT, "cleanup.policy", "delete")) == []
    assert written(state, changed(APPEND, "cleanup.policy", "compact")) == ["compact"]
    assert written(state, changed(SET, "remote.storage.enable", "true")) == ["true"]


def test_ct60_a_brokers_list_is_written_even_if_nothing_changes() -> None:
    state = metadata(broker(1), config("1", "log.cleanup.policy", "delete", BROKER))
    assert written(state, changed(APPEND, "log.cleanup.policy", "delete", "1", BROKER)) == ["delete"]
    assert written(state, changed(APPEND, "log.cleanup.policy", "delete", "", BROKER)) == [None]


@pytest.mark.parametrize(("kind", "word"), [(APPEND, "appended"), (SUBTRACT, "subtracted")])
def test_ct60_only_lists_have_elements(kind: admin_pb2.ConfigAlteration.Kind.ValueType, word: str) -> None:
    code, message = refused(metadata(topic("t", 1)), changed(kind, "retention.ms", "5"))
    assert code is ErrorCode.INVALID_CONFIG
    assert "topic config retention.ms is not a list" in message and f"'5' cannot be {word}" in message


@pytest.mark.parametrize(
    ("alteration", "word"),
    [
        (changed(APPEND, "cleanup.policy", "burn"), "'delete,burn' is no value"),
        (changed(SUBTRACT, "no.such.list", "x"), "'no.such.list' is no config of a topic"),
        (changed(APPEND, THROTTLED, "0-1"), "0:101,1:102"),
        (changed(APPEND, "no.such.list", "x"), "'no.such.list' is no config of a topic"),
    ],
)
def test_what_comes_of_a_list_must_be_valid(alteration: admin_pb2.ConfigAlteration, word: str) -> None:
    code, message = refused(metadata(topic("t", 1)), alteration)
    assert code is ErrorCode.INVALID_CONFIG
    assert word in message


def test_star_stands_for_all_throttled_replicas_and_takes_no_others_beside_it() -> None:
    state = metadata(topic("t", 1), config("t", THROTTLED, "*"))
    assert refused(state, changed(APPEND, THROTTLED, "0:1"))[0] is ErrorCode.INVALID_CONFIG
    assert written(state, changed(SUBTRACT, THROTTLED, "*")) == [""]


def test_a_list_must_go_with_the_other_configs_of_its_topic() -> None:
    state = metadata(topic("t", 1), config("t", "remote.storage.enable", "true"))
    code, message = refused(state, changed(APPEND, "cleanup.policy", "compact"))
    assert code is ErrorCode.INVALID_CONFIG
    assert "exclude each other" in message


def test_a_kind_of_alteration_that_is_none_is_an_invalid_request() -> None:
    code, message = refused(metadata(topic("t", 1)), changed(9, "retention.ms", "5"))  # type: ignore[arg-type]
    assert code is ErrorCode.INVALID_REQUEST
    assert "9 is not a kind of alteration" in message and "3 (SUBTRACT)" in message


def test_a_config_is_altered_once_by_whatever_kinds() -> None:
    state = metadata(topic("t", 1))
    code, message = refused(state, changed(SET, "cleanup.policy", "delete"), changed(APPEND, "cleanup.policy", "x"))
    assert code is ErrorCode.INVALID_REQUEST
    assert "'cleanup.policy' is altered more than once" in message


def test_removing_one_that_nobody_knows_is_no_error_and_no_record() -> None:
    state = metadata(topic("t", 1), broker(1), config("1", "colour.threads", "3", BROKER))
    assert written(state, changed(DELETE, "segment.colour", "")) == []
    assert written(state, changed(DELETE, "segment.colour", ""), changed(SET, "retention.ms", "5")) == ["5"]
    assert written(state, changed(DELETE, "segment.colour", "", "1", BROKER)) == []
    assert written(state, changed(DELETE, "colour.threads", "", "1", BROKER)) == [None]


def test_ct70_a_broker_may_have_what_nobody_knows_but_not_what_means_nothing_here() -> None:
    state = metadata(topic("t", 1), broker(1))
    assert written(state, changed(SET, "my.plug-in", " x ", "1", BROKER)) == [" x "]
    assert refused(state, changed(SET, "my.plug-in", "x" * 40_000, "1", BROKER))[0] is ErrorCode.INVALID_CONFIG
    assert refused(state, changed(SET, "log.dirs", "/data", "1", BROKER))[0] is ErrorCode.INVALID_CONFIG
    assert refused(state, changed(SET, "my.plug-in", "x"))[0] is ErrorCode.INVALID_CONFIG


def test_ct71_blanks_around_a_value_are_not_part_of_it() -> None:
    state = metadata(topic("t", 1), broker(1))
    assert written(state, changed(SET, "retention.ms", " 5\t")) == ["5"]
    assert written(state, changed(SET, "num.io.threads", " 5 ", "1", BROKER)) == ["5"]


def test_one_that_an_earlier_version_knew_can_be_removed() -> None:
    state = metadata(topic("t", 1), config("t", "segment.colour", "red"))
    assert written(state, changed(DELETE, "segment.colour", "")) == [None]
    assert refused(state, changed(SET, "segment.colour", "blue"))[0] is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (8, "configs of broker loggers (resource type 8)"),
        (16, "configs of client metrics (resource type 16)"),
        (32, "configs of groups (resource type 32)"),
        (3, "resource type 3 has no configs"),
    ],
)
def test_configs_of_kafkas_other_resources_are_refused_by_name(number: int, words: str) -> None:
    code, message = refused(metadata(), changed(SET, "x", "y", resource_type=number))
    assert code is ErrorCode.INVALID_REQUEST
    assert words in message and "use 2 for topics or 4 for brokers" in message


def test_ct60_a_topic_that_does_not_exist_is_refused_by_name() -> None:
    code, message = refused(metadata(topic("t", 1)), changed(APPEND, "cleanup.policy", "compact", "missing"))
    assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "'missing'" in message


elements = st.sampled_from([f"{partition}:1" for partition in range(6)])
lists = st.lists(elements, max_size=6, unique=True)


@settings(max_examples=examples(100), deadline=None)
@given(start=lists, steps=st.lists(st.tuples(st.sampled_from([APPEND, SUBTRACT]), lists), max_size=8))
def test_lists_change_as_those_of_a_naive_model(
    start: list[str], steps: list[tuple[admin_pb2.ConfigAlteration.Kind.ValueType, list[str]]]
) -> None:
    model = list(start)
    state = metadata(topic("t", 1), config("t", THROTTLED, ",".join(start)))
    for kind, given_elements in steps:
        before = list(model)
        for element in given_elements:
            if kind == APPEND and element not in model:
                model.append(element)
            if kind == SUBTRACT and element in model:
                model.remove(element)
        records = written(state, changed(kind, THROTTLED, ",".join(given_elements)))
        assert records == ([] if model == before else [",".join(model)])
        state.commit(*(config("t", THROTTLED, value) for value in records))


async def test_ts81_by_default_a_controller_makes_no_topic_tiered(tmp_path: Path) -> None:
    async with memory_bench(tmp_path / "metadata.db", config=ControllerConfig()) as bench:
        bench.log.lead()
        await bench.lead()
        await bench.with_brokers(1)
        await bench.done(create("t"))
        created = await bench.run(create(creatable("tiered", configs={"remote.storage.enable": "true"})))
        altered = await bench.run(alter(alteration("t", "remote.storage.enable", "true")))
        assert errors(created) == errors(altered) == [ErrorCode.INVALID_CONFIG]
