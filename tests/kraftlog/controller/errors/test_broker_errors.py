"""The refusals that brokers and controllers get (CT-33 to CT-37)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from kraftbase.errors import ErrorCode
from kraftbase.ids import id_to_text
from kraftpb.v1.admin_pb2 import (
    AllocateProducerIdsRequest,
    AssignReplicasToDirsRequest,
    FeatureUpdate,
    FenceBrokerRequest,
    Operation,
    RegisterBrokerRequest,
    RegisterControllerRequest,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from kraftpb.v1.metadata_pb2 import BrokerEndpoint
from statemachine.words.features import ELIGIBLE_LEADER_REPLICAS, METADATA_VERSION
from tests.kraftlog.controller.errors.cases import Case, refused
from tests.kraftlog.controller.errors.world import World, running_world
from tests.statemachine.builders import all_features, an_id, feature, heartbeat, registration

pytestmark = pytest.mark.asyncio(loop_scope="module")

RESERVED_ID = (5).to_bytes(16, "big")
STALE = 999_999
LISTENER = BrokerEndpoint(name="PLAINTEXT", host="localhost", port=9099)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Brokers 1 and 2, alive."""
    async with running_world(tmp_path_factory.mktemp("brokers")) as world:
        await world.with_brokers(1, 2)
        yield world


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def old_world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A cluster whose metadata.version is 14, before controllers register and directories are known."""
    async with running_world(tmp_path_factory.mktemp("old")) as world:
        lower = [
            FeatureUpdate(name=name, level=level, upgrade_type=FeatureUpdate.SAFE_DOWNGRADE)
            for name, level in ((ELIGIBLE_LEADER_REPLICAS, 0), (METADATA_VERSION, 14))
        ]
        await world.done(Operation(update_features=UpdateFeaturesRequest(updates=lower)))
        yield world


def registering(broker_id: int = 7, **fields: Any) -> Operation:
    """A registration that is valid except for `fields`."""
    request = registration(broker_id)
    for name in fields:
        request.ClearField(name)  # type: ignore[arg-type]
    request.MergeFrom(RegisterBrokerRequest(**fields))
    return Operation(register_broker=request)


def registering_controller(controller_id: int = 7, **fields: Any) -> Operation:
    """A controller's, likewise."""
    right: dict[str, Any] = {"incarnation_id": an_id(7), "end_points": [LISTENER], "features": all_features()}
    return Operation(register_controller=RegisterControllerRequest(controller_id=controller_id, **{**right, **fields}))


def beating(broker_id: int, epoch: int, offset: int = 0, *offline: bytes) -> Operation:
    return Operation(broker_heartbeat=heartbeat(broker_id, epoch, offset, offline_log_dirs=offline))


NO_FINALIZED_LEVEL = [feature(METADATA_VERSION, 7, 20), feature(ELIGIBLE_LEADER_REPLICAS, 0, 1)]

REGISTRATIONS = [
    Case(
        "RegisterBroker: cluster id",
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        registering(cluster_id="another"),
        "broker 7",
        "'another'",
    ),
    Case(
        "RegisterBroker: live session of another incarnation",
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        registering(1, incarnation_id=an_id(77)),
        "broker 1",
        id_to_text(an_id(501)),
    ),
    *[
        Case(f"RegisterBroker: log directories {what}", ErrorCode.INVALID_REGISTRATION, operation, *words)
        for what, operation, *words in (
            ("empty", registering(log_dirs=[]), "broker 7", "0 log directories"),
            ("reserved", registering(log_dirs=[RESERVED_ID]), "broker 7", RESERVED_ID.hex()),
            ("reserved", registering(log_dirs=[b"short"]), "broker 7", b"short".hex()),
            ("repeated", registering(log_dirs=[an_id(1), an_id(1)]), "broker 7", id_to_text(an_id(1))),
            ("of another", registering(log_dirs=[an_id(901)]), "broker 7", "broker 1's", id_to_text(an_id(901))),
        )
    ],
    *[
        Case(f"RegisterBroker: {what}", ErrorCode.UNSUPPORTED_VERSION, operation, "broker 7", *words)
        for what, operation, *words in (
            (
                "range of metadata.version required",
                registering(features=[feature(ELIGIBLE_LEADER_REPLICAS, 0, 1)]),
                METADATA_VERSION,
            ),
            ("finalized levels", registering(features=NO_FINALIZED_LEVEL), METADATA_VERSION, "30", "7 to 20"),
            (
                "finalized levels",
                registering(features=[feature(METADATA_VERSION, 7, 30)]),
                ELIGIBLE_LEADER_REPLICAS,
                "none of it",
            ),
        )
    ],
    *[
        Case("RegisterBroker: listeners and features", ErrorCode.INVALID_REGISTRATION, operation, "broker 7", *words)
        for operation, *words in (
            (registering(listeners=[]), "0 listeners"),
            (registering(listeners=[LISTENER, LISTENER]), "'PLAINTEXT'"),
            (registering(listeners=[BrokerEndpoint(name="X", host="h", port=0)]), "'X'", "port 0"),
            (registering(listeners=[BrokerEndpoint(name="X", port=1)]), "'X'", "host ''"),
            (registering(listeners=[BrokerEndpoint(host="h", port=1)]), "0 characters"),
            (registering(features=[*all_features(), *all_features()]), "'metadata.version'"),
            (registering(features=[*all_features(), feature("f", 3, 2)]), "'f'", "3 to 2"),
            (registering(features=[*all_features(), feature("", 1, 2)]), "0 characters"),
            (registering(features=[feature(f"f{number}", 1, 1) for number in range(101)]), "101 features", "100"),
        )
    ],
    *[
        Case("RegisterBroker: identity and rack", ErrorCode.INVALID_REQUEST, operation, *words)
        for operation, *words in (
            (registering(-1), "broker id", "-1"),
            (registering(incarnation_id=RESERVED_ID), "broker 7", RESERVED_ID.hex()),
            (registering(incarnation_id=b"short"), "broker 7", b"short".hex()),
            (registering(rack=""), "broker 7", "rack", "0 characters"),
        )
    ],
]

HEARTBEATS = [
    Case("BrokerHeartbeat: epoch", ErrorCode.STALE_BROKER_EPOCH, beating(1, STALE), "broker 1", str(STALE)),
    Case("BrokerHeartbeat: unknown broker", ErrorCode.BROKER_ID_NOT_REGISTERED, beating(9, 1), "broker 9"),
    Case(
        "BrokerHeartbeat: what it says",
        ErrorCode.INVALID_REQUEST,
        lambda world: beating(1, world.epochs[1], -2),
        "broker 1",
        "-2",
    ),
    Case(
        "BrokerHeartbeat: what it says",
        ErrorCode.INVALID_REQUEST,
        lambda world: beating(1, world.epochs[1], 0, b"short"),
        "broker 1",
        b"short".hex(),
    ),
    Case(
        "BrokerHeartbeat: what it says",
        ErrorCode.INVALID_REQUEST,
        lambda world: beating(1, world.epochs[1], 0, *map(an_id, range(1_001))),
        "broker 1",
        "1001 failed log directories",
        "1000",
    ),
]

DEPARTURES = [
    Case(
        "UnregisterBroker: unknown broker",
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        Operation(unregister_broker=UnregisterBrokerRequest(broker_id=9)),
        "broker 9",
    ),
    Case(
        "FenceBroker: unknown broker",
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        Operation(fence_broker=FenceBrokerRequest(broker_id=9)),
        "broker 9",
    ),
]

CONTROLLERS = [
    Case(
        "RegisterController: finalized levels",
        ErrorCode.UNSUPPORTED_VERSION,
        registering_controller(features=NO_FINALIZED_LEVEL),
        "controller 7",
        "7 to 20",
    ),
    Case(
        "RegisterController: listeners and features",
        ErrorCode.INVALID_REGISTRATION,
        registering_controller(end_points=[]),
        "controller 7",
        "0 listeners",
    ),
    Case("RegisterController: identity", ErrorCode.INVALID_REQUEST, registering_controller(-1), "controller id", "-1"),
    Case(
        "RegisterController: identity",
        ErrorCode.INVALID_REQUEST,
        registering_controller(incarnation_id=RESERVED_ID),
        "controller 7",
        RESERVED_ID.hex(),
    ),
]

PRODUCER_IDS = [
    Case(
        "AllocateProducerIds: epoch",
        ErrorCode.STALE_BROKER_EPOCH,
        Operation(allocate_producer_ids=AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=STALE)),
        f"broker {broker_id}",
        str(STALE),
    )
    for broker_id in (1, 9)
]

OF_OLD_VERSIONS = [
    Case(
        "RegisterController: metadata.version",
        ErrorCode.UNSUPPORTED_VERSION,
        registering_controller(),
        "controller 7",
        "15 (3.7-IV0)",
        "14 (3.6-IV2)",
    ),
    Case(
        "AssignReplicasToDirs: metadata.version",
        ErrorCode.UNSUPPORTED_VERSION,
        Operation(assign_replicas_to_dirs=AssignReplicasToDirsRequest(broker_id=1)),
        "broker 1",
        "17",
        "14",
    ),
]


@refused([*REGISTRATIONS, *HEARTBEATS, *DEPARTURES, *CONTROLLERS, *PRODUCER_IDS])
async def test_what_a_broker_or_controller_may_not_do_is_refused(world: World, case: Case) -> None:
    await world.refuses(case)


@refused(OF_OLD_VERSIONS)
async def test_what_the_metadata_version_does_not_have_yet_is_refused(old_world: World, case: Case) -> None:
    await old_world.refuses(case)
