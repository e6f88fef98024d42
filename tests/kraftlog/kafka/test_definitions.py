"""Our tables against the definitions in Kafka's own jars (FM-23), which `make peers` fetches with Maven.

Each version of each message must have the same fields in the same order: name, type, null, default, tag.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, cast
from zipfile import ZipFile

import pytest

from kraftlog.kafka.layout import Layout
from kraftlog.kafka.notation import DEFAULTS, NEWEST, ZERO_UUID, Message, Struct, Versions
from kraftlog.kafka.record_values import METADATA_RECORDS
from tests.kraftlog.kafka.values import KAFKAS
from tests.paths import ROOT

KAFKA: Final = "4.3.0"
DIRECTORY: Final = ROOT / "build" / "peers" / "kafka"
JARS: Final = [DIRECTORY / f"kafka-{name}-{KAFKA}.jar" for name in ("clients", "metadata")]

if not all(jar.exists() for jar in JARS):
    pytest.skip(
        f"the jars of Kafka {KAFKA} are not in {DIRECTORY.relative_to(ROOT)}; `make peers` fetches them",
        allow_module_level=True,
    )

IMPLICIT: Final = {"string": "", "bytes": b"", "records": b"", "uuid": ZERO_UUID, "bool": False, "float64": 0.0}


class Column(NamedTuple):
    """A field in one version."""

    name: str
    kind: str
    is_array: bool
    can_be_null: bool
    default: object
    tag: int | None
    is_flexible: bool
    columns: tuple[Any, ...]


@pytest.fixture(scope="module")
def definitions() -> dict[str, dict[str, Any]]:
    found = {}
    for jar in JARS:
        with ZipFile(jar) as opened:
            for name in opened.namelist():
                if re.fullmatch(r"common/(message|metadata)/\w+\.json", name):
                    text = re.sub(r"^\s*//.*$", "", opened.read(name).decode(), flags=re.MULTILINE)
                    definition = json.loads(re.sub(r'\s//[^"\n]*$', "", text, flags=re.MULTILINE))
                    found[definition["name"]] = definition
    return found


@pytest.mark.parametrize("message", KAFKAS, ids=lambda message: message.__name__)
def test_a_table_is_what_kafkas_definition_is(
    message: type[Message], definitions: dict[str, dict[str, Any]]
) -> None:  # fmt: skip
    definition = definitions[message.__name__]
    valid = Versions.parse(definition["validVersions"])
    assert definition.get("apiKey", -1) == message.KEY
    assert valid == message.VERSIONS
    flexible = Versions.parse(definition["flexibleVersions"])
    assert [version in message.FLEXIBLE for version in valid] == [version in flexible for version in valid]
    assert (valid.highest in message.UNSTABLE) == bool(definition.get("latestVersionUnstable"))
    common = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", [])}
    for version in valid:
        ours = tuple(_ours(Layout(message, version), message))
        assert ours == tuple(_kafkas(definition["fields"], version, common, version in flexible))


@pytest.mark.parametrize("message", KAFKAS, ids=lambda message: message.__name__)
def test_the_same_fields_may_be_left_out_where_a_version_lacks_them(
    message: type[Message], definitions: dict[str, dict[str, Any]]
) -> None:
    definition = definitions[message.__name__]
    common = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", [])}
    assert set(_ours_ignorable(message, message.VERSIONS)) == set(
        _kafkas_ignorable(definition["fields"], message.VERSIONS, common)
    )


def test_no_metadata_record_is_missing(definitions: dict[str, dict[str, Any]]) -> None:
    kafkas = {name for name, definition in definitions.items() if definition["type"] == "metadata"}
    assert {message.__name__ for message in METADATA_RECORDS.values()} == kafkas


def _ours(layout: Layout, struct: type[Struct]) -> Iterator[Column]:
    for field in struct.FIELDS:
        if layout.has(field):
            yield Column(
                field.kafka_name,
                field.kind,
                field.is_array,
                layout.can_be_null(field),
                DEFAULTS if field.default is DEFAULTS else field.default,
                field.tag,
                layout.is_compact(field),
                tuple(_ours(layout, field.struct)) if field.struct is not None else (),
            )


def _kafkas(fields: list[dict[str, Any]], version: int, common: dict[str, Any], flexible: bool) -> Iterator[Column]:
    for field in fields:
        if version not in Versions.parse(field["versions"]):
            continue
        kind = field["type"].removeprefix("[]")
        is_array = kind != field["type"]
        inner = field.get("fields") or common.get(kind)
        is_tagged = version in Versions.parse(field.get("taggedVersions", "none"))
        yield Column(
            field["name"][0].lower() + field["name"][1:],
            kind if inner is None else "struct",
            is_array,
            version in Versions.parse(field.get("nullableVersions", "none")),
            _default(field, kind, is_array, inner is not None),
            field["tag"] if is_tagged else None,
            flexible and field.get("flexibleVersions") != "none",
            tuple(_kafkas(inner, version, common, flexible)) if inner is not None else (),
        )


def _default(field: dict[str, Any], kind: str, is_array: bool, is_struct: bool) -> object:
    default = field.get("default")
    if default == "null" or (default is None and "default" in field):
        return None
    if is_array:
        return ()
    if is_struct:
        return DEFAULTS
    if default is None:
        return IMPLICIT.get(kind, 0)
    if kind == "bool":
        return default in (True, "true")
    return default if kind == "string" else int(str(default), 0)


def _ours_ignorable(struct: type[Struct], outer: Versions, path: str = "") -> Iterator[str]:
    """The ignorable fields that some version with their struct lacks."""
    for field in struct.FIELDS:
        versions = _both(field.versions, outer)
        name = f"{path}.{field.kafka_name}"
        if versions != outer and field.ignorable:
            yield name
        if field.struct is not None:
            yield from _ours_ignorable(field.struct, versions, name)


def _kafkas_ignorable(
    fields: list[dict[str, Any]], outer: Versions, common: dict[str, Any], path: str = ""
) -> Iterator[str]:  # fmt: skip
    for field in fields:
        versions = _both(Versions.parse(field["versions"]), outer)
        if versions.lowest > versions.highest:
            continue
        name = f"{path}.{field['name'][0].lower()}{field['name'][1:]}"
        if versions != outer and field.get("ignorable"):
            yield name
        inner = field.get("fields") or common.get(field["type"].removeprefix("[]"))
        if inner is not None:
            yield from _kafkas_ignorable(cast(list[dict[str, Any]], inner), versions, common, name)


def _both(one: Versions, other: Versions) -> Versions:
    return Versions(max(one.lowest, other.lowest), min(one.highest, other.highest, NEWEST))
