"""Features, quotas, access control, configs and altered topics: arguments, what is refused, and a live cluster."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kraftbase.errors import ApiError, ConfigurationError, ErrorCode
from kraftlog.admin.client.client import AdminClient, NewTopic
from kraftlog.broker.lifecycle import living_brokers
from kraftlog.commands import acl_arguments, cluster_admin, config_admin
from kraftlog.commands.acl_arguments import AclArguments, Resource
from statemachine.query.cluster_descriptions import (
    AccessControlEntry,
    AccessControlFilter,
    AclOperation,
    AclResourceType,
    ConfigChange,
    ConfigChangeKind,
    FeatureChange,
    PatternType,
    PermissionType,
    QuotaAlteration,
    QuotaEntityPart,
    SourcedConfig,
    UpgradeType,
)
from statemachine.words.features import METADATA_VERSION
from tests.kraftlog.admin.admin_nodes import admin_cluster
from tests.kraftlog.command_line import Run
from tests.statemachine.builders import BROKER, TOPIC

AT = ("--bootstrap-server", "127.0.0.1:1")
ELR = "eligible.leader.replicas.version"
ALICE = ("--allow-principal", "User:alice")
CONFIGS = ("configs", "alter", *AT, "--entity-type", "topics", "--entity-name", "t")


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "level"), [("27", 27), ("4.1-IV1", 27), ("4.1-IV0", 26), ("4.1", 27), ("3.3", 7), ("99", 99)]
)
def test_a_metadata_version_is_a_level_a_version_or_a_release(text: str, level: int) -> None:
    assert cluster_admin.parse_metadata_version(text) == level
    assert cluster_admin.parse_features([f"metadata.version={text}"]) == {METADATA_VERSION: level}


def test_metadata_comes_before_other_features() -> None:
    changes = cluster_admin.feature_changes(27, {ELR: 1}, UpgradeType.UPGRADE)
    assert [(change.name, change.level) for change in changes] == [(METADATA_VERSION, 27), (ELR, 1)]
    assert cluster_admin.shown_level(METADATA_VERSION, 27) == "27 (4.1-IV1)"
    assert cluster_admin.shown_level(ELR, 1) == "1"


@pytest.mark.parametrize("text", ["DescribeConfigs", "DESCRIBE_CONFIGS", "describe-configs"])
def test_an_operation_is_written_as_kafkas_tools_or_its_constants_do(text: str) -> None:
    assert acl_arguments.parse_operation(text) is AclOperation.DESCRIBE_CONFIGS


def test_an_entry_is_each_principal_host_operation_and_resource() -> None:
    entries = acl_arguments.entries_of(
        AclArguments(
            resources=[Resource(AclResourceType.TOPIC, "t"), Resource(AclResourceType.GROUP, "g")],
            pattern_type=PatternType.PREFIXED,
            allow_principals=["User:a"],
            deny_principals=["User:b"],
            deny_hosts=["1.1.1.1", "2.2.2.2"],
            operations=[AclOperation.READ, AclOperation.DESCRIBE],
        )
    )
    assert len(entries) == 2 * 2 * (1 + 2)
    assert entries[0] == AccessControlEntry(
        AclResourceType.TOPIC, "t", PatternType.PREFIXED, "User:a", "*", AclOperation.READ, PermissionType.ALLOW
    )
    assert {entry.host for entry in entries if entry.permission_type == PermissionType.DENY} == {"1.1.1.1", "2.2.2.2"}


def test_without_operations_it_is_all_of_them_and_the_cluster_is_always_literal() -> None:
    (entry,) = acl_arguments.entries_of(
        AclArguments(acl_arguments.resources_of(cluster=True), PatternType.PREFIXED, allow_principals=["User:a"])
    )
    assert (entry.resource_name, entry.pattern_type, entry.operation) == ("kafka-cluster", 3, AclOperation.ALL)


def test_a_producer_and_a_consumer_get_what_they_need() -> None:
    resources = acl_arguments.resources_of(topics=["t"], groups=["g"], transactional_ids=["x"])
    entries = acl_arguments.entries_of(
        AclArguments(resources, allow_principals=["User:a"], is_producer=True, is_consumer=True, is_idempotent=True)
    )
    granted = [(AclResourceType(of.resource_type).name, AclOperation(of.operation).name) for of in entries]
    assert granted == [
        ("TOPIC", "WRITE"),
        ("TOPIC", "DESCRIBE"),
        ("TOPIC", "CREATE"),
        ("TOPIC", "READ"),
        ("GROUP", "READ"),
        ("TRANSACTIONAL_ID", "WRITE"),
        ("TRANSACTIONAL_ID", "DESCRIBE"),
        ("CLUSTER", "IDEMPOTENT_WRITE"),
    ]


def test_a_removal_is_what_adding_adds_or_all_of_the_resources() -> None:
    topic = acl_arguments.resources_of(topics=["t"])
    (exact,) = acl_arguments.removal_filters(AclArguments(topic, allow_principals=["User:a"]))
    assert (exact.principal, exact.host, exact.operation) == ("User:a", "*", AclOperation.ALL)
    (whole,) = acl_arguments.removal_filters(AclArguments(topic, PatternType.MATCH))
    assert whole == AccessControlFilter(AclResourceType.TOPIC, "t", PatternType.MATCH)


def test_a_listing_without_options_is_of_everything() -> None:
    assert acl_arguments.listing_filters([], PatternType.LITERAL, []) == [AccessControlFilter()]
    assert acl_arguments.listing_filters([], PatternType.LITERAL, ["User:a"]) == [
        AccessControlFilter(principal="User:a")
    ]


# --- usage ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["features", "upgrade", *AT], "give --release-version, --metadata or --feature"),
        (
            ["features", "upgrade", *AT, "--release-version", "5.9"],
            "'5.9' is not a known release; give one of",
        ),
        (["features", "upgrade", *AT, "--release-version", "4.1-IV1"], "3.9, 4.0, 4.1, 4.2"),
        (
            ["features", "upgrade", *AT, "--release-version", "4.1", "--metadata", "27"],
            "leave --metadata and",
        ),
        (["features", "downgrade", *AT, "--release-version", "4.1", "--feature", "x=1"], "leave --metadata and"),
        (["features", "upgrade", *AT, "--metadata", "5.9"], "between 3.3-IV3 and 4.3-IV0"),
        (["features", "upgrade", *AT, "--feature", "x"], "NAME=LEVEL"),
        (["features", "upgrade", *AT, "--feature", "x=-1"], "'-1' is not a level of x"),
        (["features", "downgrade", *AT, "--feature", "x=40000"], "'40000' is not a level of x"),
        (["features", "downgrade", *AT, "--feature", "x=1", "--feature", "x=2"], "x is given twice"),
        (["features", "upgrade", *AT, "--metadata", "27", "--feature", "metadata.version=27"], "set the same"),
        (["features", "describe", *AT, "--output", "x"], "'x'"),
        (["quotas", "alter", *AT, "--add-config", "producer_byte_rate=1"], "no entity is named"),
        (["quotas", "alter", *AT, "--user", "a"], "there is nothing to alter"),
        (["quotas", "alter", *AT, "--user", "", "--delete-config", "k"], "use --user-default"),
        (["quotas", "alter", *AT, "--user", "a", "--user-default", "--delete-config", "k"], "exclude each other"),
        (["quotas", "describe", *AT, "--client-id", "a", "--client-id-default"], "exclude each other"),
        (["quotas", "describe", *AT, "--ip", ""], "use --ip-default"),
        (["quotas", "alter", *AT, "--user", "a", "--add-config", "k"], "KEY=VALUE"),
        (["quotas", "alter", *AT, "--user", "a", "--add-config", "k=much"], "'much' is not a value of k"),
        (["quotas", "alter", *AT, "--user", "a", "--add-config", "k=1_0"], "'1_0' is not a value of k"),
        (["quotas", "alter", *AT, "--user", "a", "--add-config", "k=inf"], "'inf' is not a value of k"),
        (["quotas", "alter", *AT, "--user", "a", "--add-config", "k=1", "--delete-config", "k"], "set and removed"),
        (["quotas", "alter", *AT, "--user", "a", "--delete-config", ""], "empty name"),
        (["acls", "add", *AT, "--topic", "t"], "no principal is named"),
        (["acls", "add", *AT, *ALICE], "no resource is named"),
        (["acls", "add", *AT, "--allow-principal", "alice", "--topic", "t"], "'alice' is not a principal"),
        (["acls", "add", *AT, "--deny-principal", ":alice", "--topic", "t"], "':alice' is not a principal"),
        (["acls", "add", *AT, *ALICE, "--topic", ""], "a topic has an empty name"),
        (["acls", "add", *AT, *ALICE, "--topic", "t", "--operation", "fly"], "'fly' is not an operation"),
        (["acls", "add", *AT, *ALICE, "--topic", "t", "--operation", "any"], "'any' is not an operation"),
        (["acls", "add", *AT, *ALICE, "--group", "g", "--operation", "Write"], "WRITE does not apply to a GROUP"),
        (["acls", "add", *AT, *ALICE, "--topic", "t", "--resource-pattern-type", "match"], "'match'"),
        (["acls", "add", *AT, *ALICE, "--topic", "t", "--deny-host", "h"], "--deny-host needs"),
        (["acls", "add", *AT, "--deny-principal", "User:a", "--topic", "t", "--allow-host", "h"], "--allow-host needs"),
        (["acls", "add", *AT, *ALICE, "--group", "g", "--producer"], "add --topic"),
        (["acls", "add", *AT, *ALICE, "--topic", "t", "--consumer"], "add --group"),
        (["acls", "add", *AT, *ALICE, "--topic", "t", "--producer", "--operation", "Read"], "leave --operation"),
        (["acls", "add", *AT, *ALICE, "--topic", "t", "--producer", "--cluster"], "CLUSTER 'kafka-cluster'"),
        (["acls", "add", *AT, *ALICE, "--topic", "t", "--idempotent"], "--idempotent needs --producer"),
        (["acls", "list", *AT, "--principal", "alice"], "'alice' is not a principal"),
        (["acls", "remove", *AT, "--yes"], "no resource is named"),
        (["acls", "remove", *AT, "--topic", "t", "--operation", "Read", "--yes"], "add --allow-principal"),
        (["acls", "remove", *AT, "--topic", "t"], "not a terminal; give --yes to confirm"),
        (["acls", "remove", *AT, "--topic", "t", "--output", "json"], "--output json cannot ask"),
        ([*CONFIGS], "give at least one of them"),
        ([*CONFIGS, "--append-config", "k"], "KEY=VALUE"),
        ([*CONFIGS, "--subtract-config", "=1"], "KEY=VALUE"),
        ([*CONFIGS, "--add-config", "k=1", "--append-config", "k=2"], "k is both set and appended to"),
        ([*CONFIGS, "--append-config", "k=1", "--subtract-config", "k=2"], "appended to and subtracted from"),
        ([*CONFIGS, "--subtract-config", "k=1", "--delete-config", "k"], "subtracted from and unset"),
        (["topics", "alter", "t", *AT], "give at least one of them"),
        (["topics", "alter", "t", *AT, "--partitions", "0"], "--partitions"),
        (["topics", "alter", "t", *AT, "--partitions", str(2**31)], str(2**31 - 1)),
        (["topics", "alter", "t", *AT, "--config", "x"], "KEY=VALUE"),
        (["topics", "alter", "t", *AT, "--config", "k=v", "--delete-config", "k"], "k is both set and unset"),
    ],
)
def test_a_usage_error_is_one_line_and_exit_code_2(run: Run, arguments: list[str], words: str) -> None:
    said = run(*arguments)
    assert said.code == 2
    assert said.output == ""
    assert re.fullmatch(r"error: .*; see kraftlog.* --help\n", said.errors), said.errors
    assert words in said.errors


@pytest.mark.parametrize(
    "arguments",
    [
        ["features", "describe"],
        ["features", "upgrade", "--metadata", "4.2"],
        ["quotas", "describe"],
        ["quotas", "alter", "--ip", "192.0.2.1", "--add-config", "connection_creation_rate=1"],
        ["acls", "list"],
        ["acls", "add", *ALICE, "--topic", "t"],
        ["acls", "remove", "--topic", "t", "--yes"],
        ["configs", "describe", "--entity-type", "brokers", "--entity-name", "", "--all"],
        ["topics", "alter", "t", "--partitions", "3"],
    ],
)
def test_an_address_where_nobody_listens_is_one_line(run: Run, arguments: list[str]) -> None:
    assert run(*arguments, *AT).is_error(ErrorCode.BROKER_NOT_AVAILABLE, "127.0.0.1:1")


# --- on a cluster -----------------------------------------------------------------------------------------------------


async def test_features_are_described_and_change_together(tmp_path: Path) -> None:
    """OT-40: described, tried without doing, and changed."""
    async with (
        admin_cluster(tmp_path) as cluster,
        AdminClient([cluster.endpoints[1]], timeout_ms=20_000) as client,
    ):
        before = await cluster_admin.feature_listing([cluster.endpoints[1]])
        assert [row["Feature"] for row in before] == [ELR, METADATA_VERSION]
        assert before[1]["SupportedMinVersion"] == 7
        level = before[1]["FinalizedVersionLevel"]
        down = FeatureChange(METADATA_VERSION, level - 1, UpgradeType.SAFE_DOWNGRADE)
        wrong = FeatureChange(ELR, 9, UpgradeType.UPGRADE)
        with pytest.raises(ApiError) as failure:
            await client.update_features([down, wrong])
        assert failure.value.code is ErrorCode.INVALID_UPDATE_VERSION
        reasons = str(failure.value).removeprefix("INVALID_UPDATE_VERSION: ").split("; ")
        assert reasons[0] == f"{METADATA_VERSION} was not updated: '{ELR}' is refused, and all are updated or none"
        assert reasons[1].startswith(f"{ELR} cannot be 9")
        assert all(reason.count(ELR) <= 1 for reason in reasons)
        await client.update_features([down], validate_only=True)
        assert await cluster_admin.feature_listing([cluster.endpoints[1]]) == before
        await client.update_features([down])
        described = await client.describe_features()
        assert [of.finalized_level for of in described.features if of.name == METADATA_VERSION] == [level - 1]


async def test_quotas_are_set_described_and_removed(tmp_path: Path) -> None:
    alice, anybody = QuotaEntityPart("user", "alice"), QuotaEntityPart("client-id", None)
    async with (
        admin_cluster(tmp_path) as cluster,
        AdminClient([cluster.endpoints[1]], timeout_ms=20_000) as client,
    ):
        await client.alter_client_quotas(
            [
                QuotaAlteration((alice, anybody), "producer_byte_rate", 1024),
                QuotaAlteration((alice,), "request_percentage", 12.5),
                QuotaAlteration((QuotaEntityPart("ip", None),), "connection_creation_rate", 7),
            ],
        )
        with pytest.raises(ApiError, match="'nonsense'"):
            await client.alter_client_quotas([QuotaAlteration((alice,), "nonsense", 1)])
        rows = await cluster_admin.quota_listing([cluster.endpoints[1]], [alice])
        assert {(row["Entity"], row["Quota"], row["Value"]) for row in rows} == {
            ("client-id <default>, user 'alice'", "producer_byte_rate", 1024),
            ("user 'alice'", "request_percentage", 12.5),
        }
        assert len(await cluster_admin.quota_listing([cluster.endpoints[1]])) == 3
        await client.alter_client_quotas([QuotaAlteration((alice,), "request_percentage", None)])
        assert len((await client.describe_client_quotas()).quotas) == 2


async def test_entries_are_added_listed_and_removed(tmp_path: Path) -> None:
    topic = acl_arguments.resources_of(topics=["clicks"])
    adding = AclArguments(topic, allow_principals=["User:alice"], operations=[AclOperation.READ, AclOperation.WRITE])
    prefixed = AclArguments(topic, PatternType.PREFIXED, deny_principals=["User:bob"])
    async with admin_cluster(tmp_path) as cluster:
        at = [cluster.endpoints[1]]
        added = await cluster_admin.add_acls(at, acl_arguments.entries_of(adding))
        assert added == await cluster_admin.add_acls(at, acl_arguments.entries_of(adding))
        await cluster_admin.add_acls(at, acl_arguments.entries_of(prefixed))
        assert [(row["Operation"], row["PermissionType"]) for row in added] == [("READ", "ALLOW"), ("WRITE", "ALLOW")]
        literal = acl_arguments.listing_filters(topic, PatternType.LITERAL, [])
        assert await cluster_admin.acl_listing(at, literal) == added
        covering = acl_arguments.resources_of(topics=["clicks-2"])
        (found,) = await cluster_admin.acl_listing(at, acl_arguments.listing_filters(covering, PatternType.MATCH, []))
        assert (found["Principal"], found["PatternType"], found["Operation"]) == ("User:bob", "PREFIXED", "ALL")
        removed = await cluster_admin.remove_acls(at, acl_arguments.removal_filters(adding))
        assert removed == added
        assert await cluster_admin.acl_listing(at, [AccessControlFilter()]) == [found]
        nowhere = AccessControlEntry(AclResourceType.CLUSTER, "x", PatternType.LITERAL, "User:a", "*", 2, 3)
        with pytest.raises(ApiError, match="kafka-cluster"):
            await cluster_admin.add_acls(at, [nowhere])


async def test_lists_are_appended_to_and_defaults_have_sources(tmp_path: Path) -> None:
    def change(name: str, kind: ConfigChangeKind, value: str = "", of: str = "t") -> ConfigChange:
        return ConfigChange(TOPIC if of else BROKER, of, name, kind, value)

    async with (
        admin_cluster(tmp_path) as cluster,
        AdminClient([cluster.endpoints[1]], timeout_ms=20_000) as client,
        living_brokers(client, [1]),
    ):
        at = [cluster.endpoints[1]]
        await client.create_topics([NewTopic("t", 1, 1)])
        await client.alter_configs(
            [
                change("cleanup.policy", ConfigChangeKind.APPEND, "compact"),
                change("retention.ms", ConfigChangeKind.SET, "5"),
                change("log.segment.bytes", ConfigChangeKind.SET, "1048576", of=""),
            ],
        )
        rows = {row["Name"]: row for row in await config_admin.sourced_config_listing(at, "topics", "t")}
        assert (rows["cleanup.policy"]["Value"], rows["cleanup.policy"]["Source"]) == ("delete,compact", "TOPIC")
        assert (rows["segment.bytes"]["Value"], rows["segment.bytes"]["Source"]) == ("1048576", "CLUSTER_DEFAULT")
        assert rows["preallocate"]["Source"] == "DEFAULT"
        await client.alter_configs(
            [
                change("cleanup.policy", ConfigChangeKind.SUBTRACT, "delete"),
                change("retention.ms", ConfigChangeKind.DELETE),
            ],
        )
        described = await client.describe_sourced_configs(TOPIC, "t", include_defaults=False)
        assert described.configs == (SourcedConfig("cleanup.policy", "compact", "TOPIC"),)
        with pytest.raises(ApiError, match=r"topic 't': .*retention\.ms is not a list"):
            await client.alter_configs([change("retention.ms", ConfigChangeKind.APPEND, "5")])


async def test_a_topic_is_altered_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    async with (
        admin_cluster(tmp_path) as cluster,
        AdminClient([cluster.endpoints[1]], timeout_ms=20_000) as client,
        living_brokers(client, [1]),
    ):
        at = [cluster.endpoints[1]]
        await client.create_topics([NewTopic("t", 2, 1)])
        changes = config_admin.topic_config_changes("t", {"retention.ms": "5"}, [])
        with pytest.raises(ApiError) as failure:
            await config_admin.alter_topic(at, "t", 1, changes)
        assert failure.value.code is ErrorCode.INVALID_PARTITIONS
        (topic,) = (await client.describe_topics(["t"])).topics
        assert topic.configs == ()
        await config_admin.alter_topic(at, "t", 3, changes)
        offset = (await client.list_topics()).applied_end_offset
        (topic,) = (await client.describe_topics(["t"], min_applied_end_offset=offset)).topics
        assert (len(topic.partitions), len(topic.configs)) == (3, 1)
        with pytest.raises(ConfigurationError, match="set and unset"):
            config_admin.topic_config_changes("t", {"retention.ms": "5"}, ["retention.ms"])
