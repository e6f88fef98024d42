"""Releases as levels of features, what features and quotas commands say was changed, and the configs of all at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftbase.errors import ApiError
from kraftlog.admin.client.client import AdminClient, NewTopic
from kraftlog.broker.lifecycle import living_brokers
from kraftlog.commands import admin, cluster_admin
from statemachine.query.cluster_descriptions import (
    ConfigChange,
    ConfigChangeKind,
    FeatureChange,
    QuotaAlteration,
    UpgradeType,
)
from statemachine.words.features import BOOTSTRAP, LEVELS_BY_RELEASE, METADATA_VERSION
from tests.kraftlog.admin.admin_nodes import admin_cluster
from tests.kraftlog.command_line import Run
from tests.statemachine.builders import BROKER

AT = ("--bootstrap-server", "127.0.0.1:1")
ELR = "eligible.leader.replicas.version"


@pytest.mark.parametrize(
    ("release", "version", "eligible_leaders"),
    [("3.3", 7, 0), ("3.9", 21, 0), ("4.0", 25, 0), ("4.1", 27, 1), ("4.2", 29, 1), ("4.3", 30, 1)],
)
def test_ot40_a_release_is_the_levels_that_its_new_clusters_have(
    release: str, version: int, eligible_leaders: int
) -> None:
    assert cluster_admin.parse_release(release) == {METADATA_VERSION: version, ELR: eligible_leaders}
    changes = cluster_admin.feature_changes(None, {}, UpgradeType.UPGRADE, cluster_admin.parse_release(release))
    assert [(change.name, change.level) for change in changes] == [(METADATA_VERSION, version), (ELR, eligible_leaders)]


def test_the_newest_release_is_what_a_new_cluster_has() -> None:
    assert list(LEVELS_BY_RELEASE.values())[-1] == BOOTSTRAP


async def test_two_features_that_do_not_go_together_have_one_reason(tmp_path: Path) -> None:
    changes = [FeatureChange(METADATA_VERSION, 22, UpgradeType.SAFE_DOWNGRADE), FeatureChange(ELR, 1)]
    async with (
        admin_cluster(tmp_path) as cluster,
        AdminClient([cluster.endpoints[1]], timeout_ms=20_000) as client,
    ):
        with pytest.raises(ApiError) as failure:
            await client.update_features(changes)
    assert str(failure.value).count(f"{ELR}=1 needs {METADATA_VERSION}=23") == 1


async def test_only_levels_that_are_others_are_told_as_changed(tmp_path: Path) -> None:
    async with admin_cluster(tmp_path) as cluster:
        at = [cluster.endpoints[1]]
        for release in ("4.1", "4.2"):
            levels = cluster_admin.parse_release(release)
            upgrade_type = UpgradeType.UPGRADE if release == "4.2" else UpgradeType.SAFE_DOWNGRADE
            changes = cluster_admin.feature_changes(None, {}, upgrade_type, levels)
            for dry_run in (True, False):
                changed = await cluster_admin.update_features(at, changes, dry_run=dry_run)
                assert changed == [FeatureChange(METADATA_VERSION, levels[METADATA_VERSION], upgrade_type)]
            assert await cluster_admin.update_features(at, changes, dry_run=False) == []


def test_a_level_that_holds_already_is_told_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def update(_: object, changes: list[FeatureChange], **__: object) -> list[FeatureChange]:
        return changes[:1]

    monkeypatch.setattr(cluster_admin, "update_features", update)
    assert run("features", "upgrade", *AT, "--release-version", "4.1").lines() == [
        f"{METADATA_VERSION} was upgraded to 27 (4.1-IV1).",
        f"{ELR} is already at 1.",
    ]


async def test_only_quotas_that_were_otherwise_are_told_as_altered(tmp_path: Path) -> None:
    alice = cluster_admin.quota_entity({"user": "alice", "client-id": None}, {"client-id": True})
    async with admin_cluster(tmp_path) as cluster:
        at = [cluster.endpoints[1]]
        first = cluster_admin.quota_alterations(alice, ["producer_byte_rate=5"], ["consumer_byte_rate"])
        assert await cluster_admin.alter_client_quotas(at, first) == first[:1]
        assert await cluster_admin.alter_client_quotas(at, first) == []
        second = cluster_admin.quota_alterations(alice, ["consumer_byte_rate=7"], ["producer_byte_rate"])
        assert await cluster_admin.alter_client_quotas(at, second) == second


@pytest.mark.parametrize(
    ("altered", "lines"),
    [
        (2, ["Altered 2 quotas of user 'alice'."]),
        (
            1,
            [
                "Altered 1 quota of user 'alice'.",
                "consumer_byte_rate of user 'alice' was not set; nothing was changed.",
            ],
        ),
        (
            0,
            [
                "producer_byte_rate of user 'alice' was already 5; nothing was changed.",
                "consumer_byte_rate of user 'alice' was not set; nothing was changed.",
            ],
        ),
    ],
)
def test_nothing_is_called_altered_that_is_as_it_was(
    run: Run, monkeypatch: pytest.MonkeyPatch, altered: int, lines: list[str]
) -> None:
    async def alter(_: object, alterations: list[QuotaAlteration]) -> list[QuotaAlteration]:
        return alterations[:altered]

    monkeypatch.setattr(cluster_admin, "alter_client_quotas", alter)
    options = ("--user", "alice", "--add-config", "producer_byte_rate=5", "--delete-config", "consumer_byte_rate")
    assert run("quotas", "alter", *AT, *options).lines() == lines


@pytest.mark.parametrize("rows_per_query", [1, 2, 3, 10_000])
async def test_the_configs_of_all_topics_or_brokers_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_per_query: int
) -> None:
    monkeypatch.setattr(admin, "CONFIGS_PER_QUERY", rows_per_query)
    async with (
        admin_cluster(tmp_path) as cluster,
        AdminClient([cluster.endpoints[1]], timeout_ms=20_000) as client,
        living_brokers(client, [1]),
    ):
        at = [cluster.endpoints[1]]
        assert await admin.all_config_listing(at, "topics") == []
        configs = {"b": {"retention.ms": "5"}, "a": {"segment.ms": "7", "retention.ms": "6"}, "none": {}}
        await client.create_topics([NewTopic(name, 1, 1, configs=of) for name, of in configs.items()])
        for_all, for_one = (ConfigChange(BROKER, of, "num.io.threads", ConfigChangeKind.SET, "4") for of in ("", "1"))
        await client.alter_configs([for_all, for_one])
        assert [tuple(row.values()) for row in await admin.all_config_listing(at, "topics")] == [
            ("a", "retention.ms", "6"),
            ("a", "segment.ms", "7"),
            ("b", "retention.ms", "5"),
        ]
        assert await admin.all_config_listing(at, "brokers") == [
            {"Entity": "<default>", "Name": "num.io.threads", "Value": "4"},
            {"Entity": "1", "Name": "num.io.threads", "Value": "4"},
        ]
