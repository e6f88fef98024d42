"""A node that may be the active controller registers when it starts, and `controllers` shows it (CT-37, CT-61)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kraftbase.errors import ApiError, ErrorCode
from kraftlog.admin.client.client import AdminClient
from kraftlog.process import controller_registration
from statemachine.query.cluster_descriptions import FeatureChange, UpgradeType
from statemachine.words import features
from statemachine.words.features import CONTROLLER_REGISTRATION, METADATA_VERSION, METADATA_VERSION_LATEST, FeatureRange
from tests.kraftlog.whole_nodes import WholeNodes

Controllers = dict[int, dict[str, Any]]


async def controllers(client: AdminClient) -> tuple[Controllers, int]:
    """Those that are registered, and up to which offset."""
    answer = await client.query("select * from controllers order by controller_id")
    return {row[0]: dict(zip(answer.columns, row, strict=True)) for row in answer.rows}, answer.applied_end_offset


async def registered(client: AdminClient, *controller_ids: int, other_than: Controllers | None = None) -> Controllers:
    """All controllers once those of these ids are registered, as other incarnations than those given."""
    async with asyncio.timeout(100):
        while True:
            found, end_offset = await controllers(client)
            if all(
                controller_id in found and found[controller_id] != (other_than or {}).get(controller_id)
                for controller_id in controller_ids
            ):
                return found
            await client.wait_for(end_offset + 1)


async def set_metadata_version(client: AdminClient, level: int) -> None:
    change = FeatureChange(METADATA_VERSION, level, UpgradeType.UPGRADE)
    await client.update_features([change])


async def test_every_voter_registers_and_an_observer_does_not(tmp_path: Path) -> None:
    async with WholeNodes(tmp_path, voter_count=3) as nodes:
        await asyncio.gather(*map(nodes.start, (1, 2, 3, 4)))
        async with AdminClient([nodes.endpoints[4]]) as client:
            found = await registered(client, 1, 2, 3)
    assert sorted(found) == [1, 2, 3]
    for controller_id, row in found.items():
        (listener,) = json.loads(row["listeners"])
        assert (listener["name"], listener["port"]) == ("CONTROLLER", nodes.endpoints[controller_id].port)
        ranges = {of["name"]: (of["min_level"], of["max_level"]) for of in json.loads(row["features"])}
        assert ranges[METADATA_VERSION] == (features.METADATA_VERSION_MIN, METADATA_VERSION_LATEST)
    assert len({row["incarnation_id"] for row in found.values()}) == 3


async def test_ct61_no_level_is_set_before_every_voter_has_been_up(tmp_path: Path) -> None:
    change = FeatureChange(METADATA_VERSION, METADATA_VERSION_LATEST - 1, UpgradeType.SAFE_DOWNGRADE)
    async with WholeNodes(tmp_path, voter_count=3) as nodes:
        await asyncio.gather(*map(nodes.start, (1, 2)))
        async with AdminClient([nodes.endpoints[1]]) as client:
            await registered(client, 1, 2)
            with pytest.raises(ApiError, match="controller 3 has not registered") as refused:
                await client.update_features([change])
            assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
            await nodes.start(3)
            await registered(client, 3)
            await client.update_features([change])


async def test_a_start_is_another_incarnation(tmp_path: Path) -> None:
    async with WholeNodes(tmp_path, voter_count=3) as nodes:
        await asyncio.gather(*map(nodes.start, (1, 2, 3)))
        async with AdminClient(list(nodes.endpoints.values())) as client:
            before = await registered(client, 1, 2, 3)
            await nodes.stop(2)
            await nodes.start(2)
            after = await registered(client, 2, other_than=before)
    assert after[2]["incarnation_id"] != before[2]["incarnation_id"]
    assert (after[1], after[3]) == (before[1], before[3])


async def test_a_node_that_finds_no_leader_registers_when_there_is_one(tmp_path: Path) -> None:
    async with WholeNodes(tmp_path, voter_count=2) as nodes:
        await asyncio.gather(*map(nodes.start, (1, 2)))
        async with AdminClient([nodes.endpoints[1]]) as client:
            before = await registered(client, 1, 2)
            await nodes.stop(1)
            await nodes.stop(2)
            await nodes.start(1)  # which cannot lead alone
            await nodes.start(2)
            after = await registered(client, 1, 2, other_than=before)
    assert sorted(after) == [1, 2]


async def test_ct61_controllers_register_once_the_metadata_version_has_a_record_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "kraftlog.controller.operations.activation.BOOTSTRAP", {METADATA_VERSION: CONTROLLER_REGISTRATION - 1}
    )
    async with WholeNodes(tmp_path) as nodes:
        await nodes.start(1)
        async with AdminClient([nodes.endpoints[1]]) as client:
            await client.register_broker(1, [("PLAINTEXT", "localhost", 9092)])
            assert (await controllers(client))[0] == {}
            await set_metadata_version(client, CONTROLLER_REGISTRATION)
            assert sorted(await registered(client, 1)) == [1]


async def test_ct61_a_feature_is_not_upgraded_past_what_a_controller_supports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    level = METADATA_VERSION_LATEST - 1
    monkeypatch.setattr("kraftlog.controller.operations.activation.BOOTSTRAP", {METADATA_VERSION: level})
    monkeypatch.setattr(
        controller_registration, "SUPPORTED", [FeatureRange(METADATA_VERSION, features.METADATA_VERSION_MIN, level)]
    )
    async with WholeNodes(tmp_path) as nodes:
        await nodes.start(1)
        async with AdminClient([nodes.endpoints[1]]) as client:
            await registered(client, 1)
            with pytest.raises(ApiError, match=f"controller 1 supports levels 7 to {level}") as refusal:
                await set_metadata_version(client, METADATA_VERSION_LATEST)
    assert refusal.value.code is ErrorCode.INVALID_UPDATE_VERSION


async def test_a_controller_that_is_refused_says_why_and_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supported = controller_registration.SUPPORTED
    too_old = [FeatureRange(METADATA_VERSION, features.METADATA_VERSION_MIN, METADATA_VERSION_LATEST - 1)]
    monkeypatch.setattr(controller_registration, "RETRY_SECONDS_MIN", 0.01)
    monkeypatch.setattr(controller_registration, "SUPPORTED", too_old)
    refused = asyncio.Event()
    register = controller_registration.ControllerRegistration._register

    async def noting(self: Any, client: AdminClient) -> str | None:
        refusal = await register(self, client)
        if refusal is not None:
            assert refusal.startswith("UNSUPPORTED_VERSION: ")
            refused.set()
            self._request = controller_registration.registration_of(1, nodes.endpoints[1])
        return refusal

    monkeypatch.setattr(controller_registration.ControllerRegistration, "_register", noting)
    async with WholeNodes(tmp_path) as nodes:
        await nodes.start(1)
        monkeypatch.setattr(controller_registration, "SUPPORTED", supported)
        await asyncio.wait_for(refused.wait(), 100)
        async with AdminClient([nodes.endpoints[1]]) as client:
            assert sorted(await registered(client, 1)) == [1]
