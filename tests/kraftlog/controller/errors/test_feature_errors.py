"""What UpdateFeatures refuses (CT-61, CT-62)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from kraftbase.errors import ErrorCode
from kraftpb.v1.admin_pb2 import FeatureUpdate, Operation, UpdateFeaturesRequest
from statemachine.words.features import ELIGIBLE_LEADER_REPLICAS, METADATA_VERSION
from tests.kraftlog.controller.errors.cases import Case, refused
from tests.kraftlog.controller.errors.test_broker_errors import registering, registering_controller
from tests.kraftlog.controller.errors.world import World, running_world
from tests.statemachine.builders import feature

pytestmark = pytest.mark.asyncio(loop_scope="module")

UPGRADE, SAFE, UNSAFE = FeatureUpdate.UPGRADE, FeatureUpdate.SAFE_DOWNGRADE, FeatureUpdate.UNSAFE_DOWNGRADE


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """metadata.version is 20; broker 1 supports up to 25, controller 3 up to 22."""
    async with running_world(tmp_path_factory.mktemp("features")) as world:
        await world.done(updating(ELIGIBLE_LEADER_REPLICAS, 0, SAFE), updating(METADATA_VERSION, 20, SAFE))
        await world.done(
            registering(1, features=[feature(METADATA_VERSION, 7, 25), feature(ELIGIBLE_LEADER_REPLICAS, 0, 1)]),
            registering_controller(
                3, features=[feature(METADATA_VERSION, 7, 22), feature(ELIGIBLE_LEADER_REPLICAS, 0, 1)]
            ),
        )
        await world.settle()
        yield world


def updating(name: str, level: int, kind: Any = UPGRADE, repeated: int = 1) -> Operation:
    update = FeatureUpdate(name=name, level=level, upgrade_type=kind)
    return Operation(update_features=UpdateFeaturesRequest(updates=[update] * repeated))


def one_good_one_bad() -> Operation:
    operation = updating(METADATA_VERSION, 21)
    operation.update_features.updates.extend(updating("no.such", 1).update_features.updates)
    return operation


def version(level: int, kind: Any = UPGRADE) -> Operation:
    return updating(METADATA_VERSION, level, kind)


CASES = [
    *[
        Case(f"CT-61: {what}", ErrorCode.INVALID_UPDATE_VERSION, operation, *words)
        for what, operation, *words in (
            ("unknown feature", updating("no.such", 1), "'no.such'"),
            ("out of range", version(31), METADATA_VERSION, "31", "7 to 30"),
            ("out of range", updating(ELIGIBLE_LEADER_REPLICAS, 2), ELIGIBLE_LEADER_REPLICAS, "2", "1 to 1"),
            ("out of range", updating(ELIGIBLE_LEADER_REPLICAS, -1, SAFE), ELIGIBLE_LEADER_REPLICAS, "-1"),
            ("below 3.3-IV0", version(3, SAFE), METADATA_VERSION, "3;", "7 to 30"),
            ("below 3.3-IV0", version(0, SAFE), METADATA_VERSION, "0;", "7 to 30"),
            ("downgrade without the flag", version(19), "metadata.version=19", "below the present 20"),
            ("no downgrade", version(21, SAFE), "metadata.version=21", "above the present 20"),
            ("unsafe downgrade", version(19, UNSAFE), "metadata.version to 19", "disabled"),
            ("unknown type", version(21, 9), "9 is not a type"),
            ("loses metadata", version(14, SAFE), "metadata.version=14", "controllers are registered"),
            ("loses metadata", version(16, SAFE), "metadata.version=16", "brokers have log directories"),
            ("not supported by a broker", version(26), "metadata.version=26", "broker 1", "7 to 25"),
            ("not supported by a controller", version(24), "metadata.version=24", "controller 3", "7 to 22"),
            (
                "needs another level",
                updating(ELIGIBLE_LEADER_REPLICAS, 1),
                "eligible.leader.replicas.version=1",
                "metadata.version=23",
                "20",
            ),
            ("all or none", one_good_one_bad(), "'no.such'"),
        )
    ],
    Case("CT-61: repeated", ErrorCode.INVALID_REQUEST, updating("f", 1, UPGRADE, 2), "'f'", "more than once"),
]


@refused(CASES)
async def test_ct61_a_level_that_cannot_be_is_refused(world: World, case: Case) -> None:
    await world.refuses(case)


def only_validate(operation: Operation) -> None:
    operation.update_features.validate_only = True


@refused(CASES)
async def test_ct61_a_dry_run_gets_the_same_answer(world: World, case: Case) -> None:
    await world.refuses(case, spoil=only_validate)
