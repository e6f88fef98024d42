"""Topics as files: what is read, what is refused, what is planned, and that doing it twice does nothing more."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from textwrap import indent

import pytest

from kraftbase.errors import ApiError, ConfigurationError, ErrorCode
from kraftlog.admin.client.client import AdminClient, NewTopic
from kraftlog.broker.lifecycle import living_brokers
from kraftlog.commands.topic_files import WantedTopic, parse_topic_file, read_topic_file
from kraftlog.commands.topic_plans import (
    BYTES_PER_OPERATION_MAX,
    RECORDS_PER_OPERATION_MAX,
    apply_plan,
    batches,
    make_plan,
    plan_on,
    topic_plan,
)
from kraftlog.controller.controller_config import ControllerConfig
from statemachine.query.cluster_descriptions import ConfigChange, ConfigChangeKind
from statemachine.query.descriptions import ConfigValue, PartitionDescription, TopicDescription, TopicListing
from tests.kraftlog.admin.admin_nodes import admin_cluster
from tests.kraftlog.command_line import Run
from tests.statemachine.builders import TOPIC

STRIMZI = """
apiVersion: kafka.strimzi.io/v1
kind: KafkaTopic
metadata: {name: payments, labels: {strimzi.io/cluster: my-cluster}}
spec: {partitions: 3, replicas: 2, config: {retention.ms: 7200000}}
"""


def parsed(text: str) -> list[WantedTopic]:
    return parse_topic_file(text.encode(), "t.yaml")


def strimzi(*, spec: str = "{}", metadata: str = "{name: t}", version: str = "kafka.strimzi.io/v1") -> str:
    return f"apiVersion: {version}\nkind: KafkaTopic\nmetadata: {metadata}\nspec: {spec}\n"


def listed(*documents: str, kind: str = "List", version: str = "v1") -> str:
    """What kubectl prints of several."""
    items = "".join(indent(document.strip(), "  ").replace("  ", "- ", 1) + "\n" for document in documents)
    return f"apiVersion: {version}\nitems:\n{items}kind: {kind}\nmetadata: {{resourceVersion: ''}}\n"


def described(name: str, partitions: int = 1, replicas: int = 3, **configs: str) -> TopicDescription:
    rows = tuple(
        PartitionDescription(number, 1, 0, 0, tuple(range(1, replicas + 1)), (1,)) for number in range(partitions)
    )
    values = tuple(ConfigValue(key.replace("_", "."), value) for key, value in configs.items())
    return TopicDescription(name, "id", rows, values)


# --- reading ----------------------------------------------------------------------------------------------------------


def test_both_forms_may_stand_in_one_file_and_empty_documents_count_but_say_nothing() -> None:
    topics = parsed(f"topics:\n- {{name: a, partitions: 6, replication_factor: 3}}\n- name: b\n---\n---{STRIMZI}")
    assert topics == [
        WantedTopic("a", 6, 3, None, "t.yaml, document 1"),
        WantedTopic("b", None, None, None, "t.yaml, document 1"),
        WantedTopic("payments", 3, 2, {"retention.ms": "7200000"}, "t.yaml, document 3"),
    ]


def test_strimzis_topic_name_goes_before_that_of_the_metadata() -> None:
    (topic,) = parsed(strimzi(spec="{topicName: Clicks_1}"))
    assert topic.name == "Clicks_1"


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("5", "5"),
        ("010", "10"),
        ("-1", "-1"),
        ("0.50", "0.50"),
        ("true", "true"),
        ("True", "true"),
        ("on", "on"),
        ("yes", "yes"),
        ("0:101", "0:101"),
        ("1_000", "1_000"),
        ("2024-01-01", "2024-01-01"),
        ("'5'", "5"),
        ("''", ""),
        ("[compact, delete]", "compact,delete"),
        ("[0:1, 1:2]", "0:1,1:2"),
    ],
)
def test_a_config_is_the_text_that_was_written(written: str, value: str) -> None:
    (topic,) = parsed(f"topics: [{{name: a, configs: {{k: {written}}}}}]")
    assert topic.configs == {"k": value}


def test_an_anchor_can_be_merged_and_overridden() -> None:
    topics = parsed("topics:\n- &base {name: a, partitions: 3}\n- {<<: *base, name: b}\n- {<<: *base, name: c}\n")
    assert [(topic.name, topic.num_partitions) for topic in topics] == [("a", 3), ("b", 3), ("c", 3)]


def doubled_merges(count: int) -> str:
    """About 1 KB of mappings, each of which merges the one before twice."""
    chain = "".join(f"- &a{n + 1} {{<<: [*a{n}, *a{n}]}}\n" for n in range(count))
    return f"topics:\n- &a0 {{name: a}}\n{chain}"


def doubled_lists(count: int) -> str:
    """The same with lists in the place of mappings."""
    return "- &a0 [x]\n" + "".join(f"- &a{n + 1} [*a{n}, *a{n}]\n" for n in range(count))


def merges_of_one(count: int) -> str:
    """One mapping that merges a mapping of 100 keys very often."""
    keys = ", ".join(f"k{n}: 1" for n in range(100))
    return f"- &a {{{keys}}}\n- {{<<: [{', '.join(['*a'] * count)}]}}\n"


def test_aliases_are_counted_in_each_document_by_themselves() -> None:
    document = "topics:\n- &a {name: %s}\n- {<<: *a, name: %s}\n"
    text = "---\n".join(document % (f"a{n}", f"b{n}") for n in range(3))
    assert len(parsed(text)) == 6


@pytest.mark.timeout(20)  # it took for ever
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("topics: [{name: a, name: b}]", ["document 1", "'name' appears twice", "line 1"]),
        ("topics: []\ntopics: []", ["document 1", "'topics' appears twice", "line 2"]),
        ("x: 1", ["document 1", "no field 'x'", "topics"]),
        ("{}", ["document 1", "names no topics"]),
        ("- 1", ["document 1", "a list is not a mapping"]),
        ("5", ["document 1", "5 is not a mapping"]),
        ("topics: 3", ["document 1, topics", "3 is not a list"]),
        ("topics: {}", ["document 1, topics", "a mapping is not a list"]),
        ("topics: [3]", ["document 1, topic 1", "not a mapping"]),
        ("topics: [{nam: a}]", ["topic 1", "no field 'nam'"]),
        ("topics: [{}]", ["topic 1, name", "missing"]),
        ("topics: [{name: 7}]", ["topic 1, name", "7 is not a string"]),
        ("topics: [{name: a b}]", ["topic 1, name", "illegal"]),
        ("topics: [{name: a, replicas: 1}]", ["topic 'a'", "no field 'replicas'", "replication_factor"]),
        ("topics: [{name: a, partitions: six}]", ["topic 'a', partitions", "'six' is not a whole number"]),
        ("topics: [{name: a, partitions: 1.5}]", ["topic 'a', partitions", "1.5 is not a whole number"]),
        ("topics: [{name: a, partitions: true}]", ["topic 'a', partitions", "true is not a whole number"]),
        ("topics: [{name: a, partitions: 0}]", ["topic 'a', partitions", "from 1 to 2147483647"]),
        ("topics: [{name: a, partitions: 2147483648}]", ["topic 'a', partitions", "from 1 to 2147483647"]),
        ("topics: [{name: a, partitions: }]", ["topic 'a', partitions", "null is not a whole number"]),
        ("topics: [{name: a, replication_factor: 32768}]", ["topic 'a', replication_factor", "from 1 to 32767"]),
        ("topics: [{name: a, configs: [x]}]", ["topic 'a', configs", "a list is not a mapping"]),
        ("topics: [{name: a, configs: {x: null}}]", ["topic 'a', configs, x", "null is not a value"]),
        ("topics: [{name: a, configs: {x: {}}}]", ["topic 'a', configs, x", "a mapping is not a value"]),
        ("topics: [{name: a, configs: {x: [[]]}}]", ["topic 'a', configs, x", "a list is not a value"]),
        ("topics: [{name: a, configs: {1: 2}}]", ["topic 'a', configs", "1 is not a string"]),
        ("topics: [{name: a}]\n---\ntopics: [{name: a}]", ["document 2, topic 'a'", "also in t.yaml, document 1"]),
        ("topics: [{name: a}]\n---\na: [", ["document 2", "not YAML", "line 4"]),
        ("!!python/object:os.system x", ["document 1", "not YAML", "constructor"]),
        ("topics: !!int x", ["document 1", "invalid literal"]),
        ("[" * 100_000, ["nested more than 50 levels"]),
        ("&a [*a]", ["nested more than 50 levels"]),
        ("- &a0 []\n" + "".join(f"- &a{n + 1} [*a{n}]\n" for n in range(50)), ["nested more than 50 levels"]),
        (doubled_merges(40), ["aliases", "more than 100000 values", "write them out"]),
        (doubled_lists(40), ["aliases", "more than 100000 values"]),
        (merges_of_one(2_000), ["aliases", "more than 100000 values"]),
        ("kind: Kafka", ["document 1, kind", "'Kafka' is not KafkaTopic"]),
        (strimzi(version="v1"), ["document 1, apiVersion", "'v1'", "kafka.strimzi.io/v1"]),
        (strimzi() + "x: 1", ["document 1", "no field 'x'"]),
        (strimzi(metadata="{}"), ["document 1, metadata.name", "missing"]),
        (strimzi(metadata="7"), ["document 1, metadata", "7 is not a mapping"]),
        (strimzi(spec="{topicName: a b}"), ["document 1, spec.topicName", "illegal"]),
        (strimzi(spec="{replicas: x}"), ["topic 't', spec.replicas", "'x' is not a whole number"]),
        (strimzi(spec="{configs: {}}"), ["topic 't'", "no field 'spec.configs'", "spec.config"]),
        ("apiVersion: v1\nkind: List\nitems: {}", ["document 1, items", "a mapping is not a list"]),
        ("apiVersion: v1\nkind: List", ["document 1, items", "null is not a list"]),
        ("apiVersion: v1\nkind: List\nitems: []\ntopics: []", ["no field 'topics'"]),
        ("apiVersion: v1\nkind: KafkaTopicList\nitems: []", ["apiVersion", "'v1' is not Strimzi's"]),
        ("apiVersion: apps/v1\nkind: List\nitems: []", ["apiVersion", "'apps/v1' is not that of a List; write v1"]),
        ("apiVersion: v1\nkind: List\nitems: [7]", ["document 1, item 1", "7 is not a mapping"]),
        ("apiVersion: v1\nkind: List\nitems: [{kind: Secret}]", ["document 1, item 1, kind", "'Secret'"]),
        (f"{listed(strimzi(), strimzi())}", ["item 2, topic 't'", "the topic is also in t.yaml, document 1, item 1"]),
        ("kind: [List]", ["document 1, kind", "a list is not KafkaTopic"]),
    ],
)
def test_what_is_wrong_is_named_by_document_topic_and_field(text: str, words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as failure:
        parsed(text)
    said = str(failure.value)
    assert said.startswith("t.yaml")
    assert all(word in said for word in words), said


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"topics: \xff", b"topics: \x00"])
def test_what_is_no_text_is_no_yaml(content: bytes) -> None:
    with pytest.raises(ConfigurationError, match=r"t\.yaml, document 1: it is not YAML"):
        parse_topic_file(content, "t.yaml")


@pytest.mark.parametrize(("kind", "version"), [("List", "v1"), ("KafkaTopicList", "kafka.strimzi.io/v1beta2")])
def test_a_list_as_kubectl_prints_it_is_unfolded(kind: str, version: str) -> None:
    text = f"topics: [{{name: a}}]\n---\n{listed(strimzi(), STRIMZI, kind=kind, version=version)}"
    assert [(topic.name, topic.num_partitions, topic.place) for topic in parsed(text)] == [
        ("a", None, "t.yaml, document 1"),
        ("t", None, "t.yaml, document 2, item 1"),
        ("payments", 3, "t.yaml, document 2, item 2"),
    ]
    assert parsed(f"apiVersion: {version}\nkind: {kind}\nitems: []") == []


@pytest.mark.parametrize("rest", ["spec: {partitions: 3}", "spec: {strange: 1}", ""])
def test_a_topic_that_is_not_managed_is_neither_changed_nor_deleted(rest: str) -> None:
    metadata = "{name: t, annotations: {strimzi.io/managed: 'false'}}"
    unmanaged = f"apiVersion: kafka.strimzi.io/v1\nkind: KafkaTopic\nmetadata: {metadata}\n{rest}\n"
    wanted = parsed(f"topics: [{{name: a}}]\n---\n{unmanaged}")
    assert [(topic.name, topic.is_managed) for topic in wanted] == [("a", True), ("t", False)]
    present = {"a": described("a"), "t": described("t")}
    there = [TopicListing(name, "id", 1, 1) for name in ("a", "t", "x")]
    assert make_plan(wanted, present, there, prune=True).deletions == ["x"]
    assert make_plan(wanted, present, there).rows() == []
    assert make_plan(wanted[1:], {}).rows() == []


def test_standard_input_is_a_file_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"topics: [{name: a}]")))
    assert read_topic_file(Path("-")) == [WantedTopic("a", place="standard input, document 1")]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"file .*none\.yaml does not exist"):
        read_topic_file(tmp_path / "none.yaml")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_topic_file(tmp_path)


# --- plans ------------------------------------------------------------------------------------------------------------


def test_a_topic_that_is_as_wanted_is_not_in_the_plan() -> None:
    present = {"a": described("a", 2, retention_ms="5"), "b": described("b", 4, retention_ms="5")}
    plan = make_plan([WantedTopic("a", 2, 3, {"retention.ms": "5"}), WantedTopic("b")], present)
    assert plan.rows() == []


def test_what_differs_is_in_the_plan() -> None:
    present = {"a": described("a", 2, retention_ms="5", segment_ms="6", flush_ms="7")}
    wanted = [WantedTopic("a", 4, 3, {"retention.ms": "8", "flush.ms": "7", "max.message.bytes": "9"})]
    plan = make_plan([*wanted, WantedTopic("new", 6, None, {"retention.ms": "1"})], present)
    assert plan.growths == {"a": 4}
    assert plan.configs == [
        ConfigChange(TOPIC, "a", "retention.ms", ConfigChangeKind.SET, "8"),
        ConfigChange(TOPIC, "a", "max.message.bytes", ConfigChangeKind.SET, "9"),
        ConfigChange(TOPIC, "a", "segment.ms", ConfigChangeKind.DELETE),
    ]
    assert plan.creations == [NewTopic("new", 6, -1, configs={"retention.ms": "1"})]
    assert [tuple(row.values()) for row in plan.rows()] == [
        ("a", "add partitions", "partitions", "2", "4"),
        ("a", "set config", "retention.ms", "5", "8"),
        ("a", "set config", "max.message.bytes", "", "9"),
        ("a", "remove config", "segment.ms", "6", ""),
        ("new", "create", "", "", "partitions 6, replication factor by default, retention.ms=1"),
    ]


def test_every_topic_that_cannot_become_what_is_wanted_is_refused_by_name() -> None:
    present = {"a": described("a", 2), "b": described("b"), "c": described("c")}
    wanted = [WantedTopic("a", 1, place="f, document 1"), WantedTopic("b", None, 2, place="f, document 2")]
    with pytest.raises(ApiError) as failure:
        make_plan([*wanted, WantedTopic("c", 5), WantedTopic("new")], present)
    assert failure.value.code is ErrorCode.INVALID_PARTITIONS
    assert "f, document 1, topic 'a': it has 2 partitions, and 1 are wanted" in str(failure.value)
    assert "f, document 2, topic 'b': its replication factor is 3, and 2 is wanted" in str(failure.value)
    assert "'c'" not in str(failure.value)


def test_replicas_that_a_reassignment_takes_away_do_not_count() -> None:
    moving = PartitionDescription(0, 1, 0, 0, (1, 2, 3), (1,), removing_replicas=(3,), adding_replicas=(2,))
    assert make_plan([WantedTopic("a", 1, 2)], {"a": TopicDescription("a", "id", (moving,), ())}).rows() == []


def test_prune_deletes_what_the_file_does_not_name_but_not_kafkas_own() -> None:
    listed = [TopicListing(name, "id", 2, 1) for name in ("__consumer_offsets", "a", "b", "c")]
    plan = make_plan([WantedTopic("b")], {"b": described("b")}, listed, prune=True)
    assert plan.deletions == ["a", "c"]
    assert [row["Action"] for row in plan.rows()] == ["delete", "delete"]
    assert make_plan([WantedTopic("b")], {"b": described("b")}, listed).deletions == []


def test_a_file_without_topics_prunes_nothing() -> None:
    with pytest.raises(ConfigurationError, match="--prune would delete all"):
        make_plan([], {}, [TopicListing("a", "id", 1, 1)], prune=True)


def test_operations_hold_so_many_records_and_bytes_and_at_least_one_item() -> None:
    half = RECORDS_PER_OPERATION_MAX // 2
    counts = [half, half, 1, RECORDS_PER_OPERATION_MAX + 1, 1, 1]
    assert list(batches(counts, lambda count: count)) == [[half, half], [1], [RECORDS_PER_OPERATION_MAX + 1], [1, 1]]
    sizes = [BYTES_PER_OPERATION_MAX, 1, BYTES_PER_OPERATION_MAX + 1]
    assert list(batches(sizes, lambda size: 1, lambda size: size)) == [[size] for size in sizes]
    assert list(batches(range(5), lambda item: 1, len_max=2)) == [[0, 1], [2, 3], [4]]
    assert list(batches([], lambda item: 1)) == []


# --- on a cluster -----------------------------------------------------------------------------------------------------


async def test_apply_creates_and_changes_and_the_second_time_does_nothing(tmp_path: Path) -> None:
    first = "topics:\n- {name: clicks, partitions: 2, replication_factor: 3, configs: {retention.ms: 5, flush.ms: 6}}\n"
    second = f"{first.replace('2,', '4,').replace('flush.ms: 6', 'segment.ms: 7')}---{STRIMZI}"
    async with (
        admin_cluster(tmp_path) as cluster,
        AdminClient([cluster.endpoints[1]], timeout_ms=20_000) as client,
        living_brokers(client, [1, 2, 3]),
    ):
        await client.create_topics([NewTopic("left", 1, 1), NewTopic("__own", 1, 1)])
        for text, actions in (
            (first, ["create"]),
            (first, []),
            (second, ["add partitions", "set config", "remove config", "create"]),
            (second, []),
        ):
            plan = await plan_on(client, parsed(text))
            assert [row["Action"] for row in plan.rows()] == actions
            progress: list[tuple[int, int]] = []
            await apply_plan(client, plan, lambda made, total, to=progress: to.append((made, total)))
            assert progress[-1] == (len(actions), len(actions))
        (clicks,) = (await client.describe_topics(["clicks"])).topics
        assert len(clicks.partitions) == 4
        assert clicks.configs == (ConfigValue("retention.ms", "5"), ConfigValue("segment.ms", "7"))

        plan = await topic_plan([cluster.endpoints[1]], parsed(second), prune=True)
        assert plan.deletions == ["left"]
        await apply_plan(client, plan, lambda made, total: None)
        assert [topic.name for topic in (await client.list_topics()).topics] == ["__own", "clicks", "payments"]


async def test_what_the_controller_refuses_is_named_before_anything_is_changed(tmp_path: Path) -> None:
    async with (
        admin_cluster(tmp_path, config=ControllerConfig(remote_log_storage_system_enable=True)) as cluster,
        AdminClient([cluster.endpoints[1]], timeout_ms=20_000) as client,
        living_brokers(client, [1]),
    ):
        tiered = NewTopic("tiered", 1, 1, configs={"remote.storage.enable": "true"})
        await client.create_topics([NewTopic("there", 1, 1), tiered])
        for wrong, code, words in (
            ("{name: tiered, configs: {segment.ms: 5}}", ErrorCode.INVALID_CONFIG, "remote.log.delete.on.disable=true"),
            ("{name: bad, configs: {retention.ms: soon}}", ErrorCode.INVALID_CONFIG, "topic 'bad'"),
            ("{name: bad, replication_factor: 3}", ErrorCode.INVALID_REPLICATION_FACTOR, "topic 'bad'"),
            ("{name: there, configs: {no.such: 1}}", ErrorCode.INVALID_CONFIG, "topic 'there'"),
            ("{name: there, replication_factor: 3}", ErrorCode.INVALID_REPLICATION_FACTOR, "topic 'there'"),
        ):
            with pytest.raises(ApiError) as failure:
                await plan_on(client, parsed(f"topics:\n- {{name: good}}\n- {wrong}"))
            assert failure.value.code is code
            assert words in str(failure.value)
        plan = await plan_on(client, parsed("topics: [{name: good}]"))
        await client.create_topics([NewTopic("good", 1, 1)])
        with pytest.raises(ApiError, match=r"0 of 1 changes are made; run it again") as late:
            await apply_plan(client, plan, lambda made, total: None)
        assert late.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        assert [topic.name for topic in (await client.list_topics()).topics] == ["good", "there", "tiered"]


async def test_many_topics_go_in_several_operations(tmp_path: Path) -> None:
    count = 60
    text = "topics:\n" + "".join(f"- {{name: t{number}, partitions: 199}}\n" for number in range(count))
    async with (
        admin_cluster(tmp_path) as cluster,
        AdminClient([cluster.endpoints[1]], timeout_ms=30_000) as client,
        living_brokers(client, [1]),
    ):
        plan = await plan_on(client, parsed(text))
        progress: list[int] = []
        await apply_plan(client, plan, lambda made, total: progress.append(made))
        assert progress == [0, 25, 50, 60]
        assert (await plan_on(client, parsed(text))).rows() == []


# --- the command ------------------------------------------------------------------------------------------------------


def test_apply_names_a_file_that_is_wrong(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "topics.yaml"
    file.write_text("topics: [{name: a, partitions: six}]")
    at = ("--bootstrap-server", "127.0.0.1:1", "--dry-run")
    said = run("topics", "apply", *at, "-f", file)
    assert said.is_error(ErrorCode.INVALID_CONFIG, str(file), "document 1, topic 'a', partitions", "'six'")
    assert run("topics", "apply", *at, "-f", tmp_path / "no").is_error(ErrorCode.INVALID_CONFIG, "does not exist")
    without_yes = run("topics", "apply", *at[:2], "-f", tmp_path / "no")
    assert without_yes.is_error(ErrorCode.INVALID_CONFIG, "does not exist")
    for missing, words in (([], "'-f'"), (["-f", ""], "empty")):
        refused = run("topics", "apply", *at, *missing)
        assert refused.code == 2
        assert words in refused.errors


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "not a terminal; give --yes to confirm"),
        (["--prune"], "not a terminal"),
        (["--output", "json"], "cannot ask for confirmation; give --yes"),
        (["-f", "-"], "--yes: standard input is the file"),
    ],
)
def test_apply_asks_only_where_somebody_can_answer(run: Run, tmp_path: Path, options: list[str], words: str) -> None:
    file = tmp_path / "topics.yaml"
    file.write_text("topics: []")
    said = run("topics", "apply", "--bootstrap-server", "127.0.0.1:1", "-f", file, *options)
    assert (said.code, said.output) == (2, "")
    assert words in said.errors
