"""What holds for every table."""

from __future__ import annotations

from collections.abc import Iterator

from kraftlog.kafka.apis import API_VERSIONS, NAMES, OWN_NAMES, all_apis, api_of, own_apis
from kraftlog.kafka.layout import Layout
from kraftlog.kafka.notation import DEFAULTS, Struct, Versions, kafka_name
from kraftlog.kafka.record_values import METADATA_RECORDS
from tests.kraftlog.kafka.values import MESSAGES, UNKNOWN_TAG_MIN
from tests.paths import ROOT


def _structs(struct: type[Struct]) -> Iterator[type[Struct]]:
    yield struct
    for field in struct.FIELDS:
        if field.struct is not None:
            yield from _structs(field.struct)


# Each test has all messages: a test for each message costs more than its work.


def test_a_table_does_not_contradict_itself() -> None:
    for message, struct in [(of, struct) for of in MESSAGES for struct in _structs(of)]:
        for field in struct.FIELDS:
            assert field.default is not None or field.null.lowest <= field.null.highest, field
            assert field.default is DEFAULTS or not isinstance(field.default, Struct), field
            if field.tag is not None:
                assert field.tag < UNKNOWN_TAG_MIN
                in_use = [version for version in message.VERSIONS if version in field.versions]
                assert all(version in message.FLEXIBLE for version in in_use), field
        for version in message.VERSIONS:
            layout = Layout(message, version)
            tags = [field.tag for field in layout.tagged(struct)]
            assert len(tags) == len(set(tags)), struct


def test_an_element_of_an_array_has_a_byte_at_least() -> None:
    """Else any count would be in no bytes at all."""
    for message, version in [(of, version) for of in MESSAGES for version in of.VERSIONS]:
        layout = Layout(message, version)
        for struct in _structs(message):
            for field in struct.FIELDS:
                if field.is_array and layout.has(field):
                    assert layout.element_size_min(field) > 0, (message, field)


def test_every_module_of_messages_is_an_apis() -> None:
    modules = {path.stem for path in (ROOT / "kraftlog" / "kafka" / "messages").glob("*.py")} - {"__init__"}
    apis = [*all_apis(), *own_apis()]
    assert {api.request.__module__.rpartition(".")[2] for api in apis} == modules
    for api in apis:
        assert api.request.KEY == api.response.KEY == api.key
        assert api.request.VERSIONS == api.response.VERSIONS == api.versions
        assert api.request.FLEXIBLE == api.response.FLEXIBLE
        assert api.name == (NAMES | OWN_NAMES)[api.key]


def test_headers_follow_from_the_version() -> None:
    fetch, api_versions = api_of(1), api_of(API_VERSIONS)
    assert [fetch.request_header_version(version) for version in (4, 11, 12, 18)] == [1, 1, 2, 2]
    assert [fetch.response_header_version(version) for version in (4, 11, 12, 18)] == [0, 0, 1, 1]
    assert [api_versions.request_header_version(version) for version in (0, 2, 3, 4)] == [1, 1, 2, 2]
    assert [api_versions.response_header_version(version) for version in (0, 2, 3, 4)] == [0, 0, 0, 0]


def test_metadata_records_are_by_their_numbers() -> None:
    assert sorted(METADATA_RECORDS) == [*range(6), *range(7, 13), 14, 15, *range(17, 29)]


def test_names_are_kafkas() -> None:
    assert kafka_name("last_known_elr") == "lastKnownElr"
    assert kafka_name("isr") == "isr"


def test_versions() -> None:
    assert [str(Versions.parse(text)) for text in ("3", "4-12")] == ["3", "4-12"]
    assert 3 in Versions.parse("3+") and 2 not in Versions.parse("3+") and 30_000 in Versions.parse("3+")
    assert list(Versions.parse("none")) == []
