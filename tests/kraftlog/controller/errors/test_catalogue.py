"""The catalogue is complete: every rule is provoked, every error that the code names is in it, and the checks check."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from kraftbase.errors import ErrorCode
from kraftpb.v1.admin_pb2 import CreateTopicsResponse, OperationResult
from tests.kraftlog.controller.errors.cases import PROVOKED, Case
from tests.kraftlog.controller.errors.catalogue import CATALOGUE
from tests.kraftlog.controller.errors.world import parts, refusals, running_world
from tests.paths import ROOT
from tests.statemachine.builders import create

HERE = Path(__file__).parent
CONTROLLER = ROOT / "kraftlog" / "controller"
DECIDING = [
    *sorted((CONTROLLER / "operations").glob("*.py")),
    *sorted((CONTROLLER / "rules").glob("*.py")),
    CONTROLLER / "dispatch.py",
    ROOT / "statemachine" / "metadata" / "config_combinations.py",
    *(ROOT / "statemachine" / "words" / f"{name}.py" for name in ("config_definitions", "limits", "names")),
]
"""The modules that decide on operations."""

OUT_OF_REACH = {ErrorCode.UNKNOWN_SERVER_ERROR}
"""When all producer ids are allocated, after 2^63 of them."""


def rules() -> list[tuple[str, ErrorCode]]:
    return [rule for section in CATALOGUE for rule in section]


def test_every_rule_of_the_catalogue_is_provoked_and_no_other() -> None:
    for module in HERE.glob("test_*.py"):
        importlib.import_module(f"tests.kraftlog.controller.errors.{module.stem}")
    assert sorted(PROVOKED) == sorted(rules())


def test_no_rule_is_in_two_sections() -> None:
    assert len(rules()) == len(set(rules()))


def test_every_error_that_decisions_name_is_in_the_catalogue() -> None:
    named = {ErrorCode[name] for path in DECIDING for name in re.findall(r"\bErrorCode\.([A-Z_]+)\b", path.read_text())}
    assert named - {error for _, error in rules()} == OUT_OF_REACH


async def test_an_operation_that_writes_or_says_too_little_does_not_pass_for_a_refusal(tmp_path: Path) -> None:
    async with running_world(tmp_path) as world:
        await world.with_brokers(1)
        before = world.log.next_append_offset
        await world.done(create("t"))
        assert await world.written_since(before) == ["topic", "partition"]
        exists = ErrorCode.TOPIC_ALREADY_EXISTS
        await world.refuses(Case("CreateTopics: exists", exists, create("t"), "'t'"))
        wrong = [
            (Case("it is done", exists, create("u"), "'u'"), "topics"),
            (Case("a part of it is done", exists, create("t", "v"), "'t'"), "a part of it was done"),
            (Case("another error", ErrorCode.INVALID_REQUEST, create("t"), "'t'"), "error_code: 36"),
            (Case("another message", exists, create("t"), "'t'", "because"), r"\['because'\] not in"),
        ]
        for case, reason in wrong:
            with pytest.raises(AssertionError, match=reason):
                await world.refuses(case)


def test_errors_of_parts_are_found() -> None:
    response = CreateTopicsResponse()
    response.topics.add(name="a")
    response.topics.add(name="b", error_code=36, error_message="why")
    result = OperationResult(error_code=42, error_message="all", create_topics=response)
    assert refusals(result) == [(ErrorCode.INVALID_REQUEST, "all"), (ErrorCode.TOPIC_ALREADY_EXISTS, "why")]
    assert len(parts(result)) == 2
