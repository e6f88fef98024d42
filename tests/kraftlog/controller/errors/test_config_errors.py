"""What AlterConfigs refuses (CT-60)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from kraftbase.errors import ErrorCode
from kraftpb.v1.admin_pb2 import AlterConfigsRequest, ConfigAlteration, Operation
from tests.kraftlog.controller.errors.cases import Case, refused
from tests.kraftlog.controller.errors.world import World, running_world
from tests.statemachine.builders import BROKER, TOPIC, creatable, create

pytestmark = pytest.mark.asyncio(loop_scope="module")

SET, DELETE, APPEND, SUBTRACT = (
    ConfigAlteration.SET,
    ConfigAlteration.DELETE,
    ConfigAlteration.APPEND,
    ConfigAlteration.SUBTRACT,
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Broker 1 and the topics "clicks" and "tiered"; replicas may be eligible to lead, as in any new cluster."""
    async with running_world(tmp_path_factory.mktemp("configs")) as world:
        await world.with_brokers(1)
        tiered = creatable("tiered", configs={"remote.storage.enable": "true"})
        await world.done(create("clicks", tiered))
        await world.settle()
        yield world


def altering(
    kind: Any, name: str, value: str = "", *, on: str = "clicks", of: int = TOPIC, repeated: int = 1
) -> Operation:
    alteration = ConfigAlteration(resource_type=of, resource_name=on, name=name, kind=kind, value=value)
    return Operation(alter_configs=AlterConfigsRequest(alterations=[alteration] * repeated))


def together(*configs: tuple[str, str], on: str = "clicks", of: int = TOPIC) -> Operation:
    alterations = [altering(SET, name, value, on=on, of=of).alter_configs.alterations[0] for name, value in configs]
    return Operation(alter_configs=AlterConfigsRequest(alterations=alterations))


TIERED = ("remote.storage.enable", "true")
COMPACTED = together(TIERED, ("cleanup.policy", "compact"))
LOCAL_FOR_LONGER = together(TIERED, ("retention.ms", "5"), ("local.retention.ms", "6"))
UNCOPIED = together(TIERED, ("remote.log.copy.disable", "true"), ("local.retention.ms", "5"))
KEPT_LOCALLY = (("log.retention.bytes", "5"), ("log.local.retention.bytes", "6"))
NOBODY = altering(SET, "max.connections.per.ip", "0", on="1", of=BROKER)
LAGGING = together(("min.compaction.lag.ms", "6"), ("max.compaction.lag.ms", "5"))


C = "CT-60: "
E = ErrorCode
CLICKS = "topic 'clicks'"
WORDS = ("remote.log.delete.on.disable=true", "remote.log.copy.disable=true")

CASES = [
    *[
        Case(C + what, E.INVALID_CONFIG, operation, CLICKS, *words)
        for what, operation, *words in (
            ("APPEND to no list", altering(APPEND, "retention.ms", "5"), "retention.ms", "'5'", "appended"),
            ("SUBTRACT from no list", altering(SUBTRACT, "retention.ms", "5"), "retention.ms", "'5'", "subtracted"),
            ("unknown config", altering(SET, "no.such", "5"), "'no.such'"),
            ("unknown config", altering(APPEND, "no.such", "5"), "'no.such'"),
            ("bad value", altering(SET, "retention.ms", "soon"), "retention.ms", "'soon'"),
            ("bad value", altering(APPEND, "cleanup.policy", "shred"), "cleanup.policy", "'delete,shred'"),
            ("bad value", altering(SET, "cleanup.policy", "delete,"), "cleanup.policy", "'delete,'"),
            ("configs that exclude each other", COMPACTED, "remote.storage.enable=true", "cleanup.policy=compact"),
            ("configs that exclude each other", LOCAL_FOR_LONGER, "local.retention.ms=6", "retention.ms=5"),
            ("configs that exclude each other", UNCOPIED, "remote.log.copy.disable=true", "local.retention.ms=5"),
            ("configs that exclude each other", LAGGING, "min.compaction.lag.ms=6", "max.compaction.lag.ms=5"),
        )
    ],
    *[
        Case(C + "configs that exclude each other", E.INVALID_CONFIG, operation, *words)
        for operation, *words in (
            (together(*KEPT_LOCALLY, on="1", of=BROKER), "broker 1", "log.local.retention.bytes=6"),
            (together(*KEPT_LOCALLY, on="", of=BROKER), "default", "log.local.retention.bytes=6"),
            (NOBODY, "broker 1", "max.connections.per.ip=0", "max.connections.per.ip.overrides"),
        )
    ],
    *[
        Case(C + "no word about remote data", E.INVALID_CONFIG, operation, "topic 'tiered'", *WORDS)
        for operation in (
            altering(SET, "remote.storage.enable", "false", on="tiered"),
            altering(DELETE, "remote.storage.enable", on="tiered"),
        )
    ],
    Case(
        "CT-56: a broker's own min.insync.replicas",
        E.INVALID_CONFIG,
        altering(SET, "min.insync.replicas", "2", on="1", of=BROKER),
        "broker 1",
        "eligible.leader.replicas.version",
    ),
    Case(C + "bad value", E.INVALID_CONFIG, altering(SET, "num.io.threads", "0", on="1", of=BROKER), "broker 1", "'0'"),
    Case(C + "bad value", E.INVALID_CONFIG, altering(SET, "num.partitions", "0", on="", of=BROKER), "default", "'0'"),
    Case(C + "unknown topic", E.UNKNOWN_TOPIC_OR_PARTITION, altering(SET, "retention.ms", "5", on="none"), "'none'"),
    Case(
        C + "topic without a name",
        E.INVALID_REQUEST,
        altering(SET, "retention.ms", "5", on=""),
        "the topic has no name",
    ),
    Case(C + "topic name illegal", E.INVALID_TOPIC_EXCEPTION, altering(SET, "retention.ms", "5", on="a b"), "'a b'"),
    Case(
        C + "unknown broker",
        E.BROKER_ID_NOT_REGISTERED,
        altering(SET, "num.io.threads", "1", on="9", of=BROKER),
        "broker 9",
    ),
    Case(C + "no broker", E.INVALID_REQUEST, altering(SET, "num.io.threads", "1", on="01", of=BROKER), "'01'"),
    Case(C + "resource type", E.INVALID_REQUEST, altering(SET, "retention.ms", "5", of=3), "type 3"),
    Case(C + "resource type", E.INVALID_REQUEST, altering(SET, "x", "5", of=16), "client metrics", "type 16"),
    Case(C + "kind", E.INVALID_REQUEST, altering(9, "retention.ms", "5"), CLICKS, "9 is not a kind"),
    Case(C + "repeated", E.INVALID_REQUEST, altering(SET, "retention.ms", "5", repeated=2), CLICKS, "'retention.ms'"),
]


@refused(CASES)
async def test_ct60_a_config_that_cannot_be_is_refused(world: World, case: Case) -> None:
    await world.refuses(case)


def only_validate(operation: Operation) -> None:
    operation.alter_configs.validate_only = True


@refused(CASES)
async def test_ct60_who_only_asks_gets_the_same_answer(world: World, case: Case) -> None:
    await world.refuses(case, spoil=only_validate)
