"""Our bytes, read and written again by kio and by kafka-python; the latter must also say the same of each field."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest

from kraftlog.kafka.apis import Api, all_apis
from kraftlog.kafka.codec import encode
from kraftlog.kafka.layout import Layout
from kraftlog.kafka.messages.api_versions import ApiVersionsResponse
from kraftlog.kafka.notation import Message, Struct
from tests.kraftlog.kafka.random_values import for_values
from tests.kraftlog.kafka.values import REQUESTS

EXAMPLES: Final = 3
BITFIELDS: Final = {"cluster_authorized_operations", "topic_authorized_operations"}
"""kafka-python makes sets of them, under another name."""

NOT_WRITTEN: Final = {"DeleteTopicsRequest"}
"""kafka-python fails to write what it has read."""


def _is_in_kafka_python(message: type[Message]) -> bool:
    """Whether it has the message: by its files, since its import takes a second."""
    found = find_spec("kafka")
    assert found is not None and found.origin is not None
    return (Path(found.origin).parent / "protocol/schemas/resources" / f"{message.__name__}.json").exists()


@cache
def _kafka_python() -> dict[str, Any]:
    """Its messages by their names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it uses importlib.resources.read_text
        from kafka.protocol import admin, consumer, metadata, producer
    return {name: found for module in (admin, consumer, metadata, producer) for name, found in vars(module).items()}


KNOWN_TO_BOTH: Final = list(filter(_is_in_kafka_python, REQUESTS))


def test_kafka_python_has_most_messages() -> None:
    assert len(KNOWN_TO_BOTH) == 70


@pytest.mark.parametrize("message", KNOWN_TO_BOTH, ids=lambda message: message.__name__)
def test_kafka_python_reads_what_we_write(message: type[Message]) -> None:
    theirs = _kafka_python()[message.__name__]
    for version in message.VERSIONS:
        _kafka_python_agrees(message, theirs, version)


def _kafka_python_agrees(message: type[Message], theirs: Any, version: int) -> None:
    def check(value: Message) -> None:
        data = encode(value, version)
        if isinstance(value, ApiVersionsResponse) and value.error_code:
            return  # it then reads version 0
        read = theirs[version].decode(data)
        assert _shown(Layout(message, version), value) == _shown(Layout(message, version), read)
        if message.__name__ not in NOT_WRITTEN:
            assert read.encode() == data

    for_values(check, message, version, EXAMPLES, modest=True)


def _shown(layout: Layout, value: Any) -> Any:
    """A value, ours or theirs, as what can be compared."""
    return list(_fields(layout, layout.message, value))


def _fields(layout: Layout, struct: type[Struct], value: Any) -> Iterator[tuple[str, Any]]:
    for field in struct.FIELDS:
        if not layout.has(field) or field.name in BITFIELDS:
            continue
        found = getattr(value, re.sub(r"(?<!^)(?=[A-Z])", "_", field.kafka_name).lower())
        if found is None:
            yield field.name, None
        elif field.struct is None:
            yield field.name, [_plain(item) for item in found] if field.is_array else _plain(found)
        elif field.is_array:
            yield field.name, [list(_fields(layout, field.struct, item)) for item in found]
        else:
            yield field.name, list(_fields(layout, field.struct, found))


def _plain(value: Any) -> Any:
    return value.bytes if isinstance(value, UUID) else value


@pytest.mark.parametrize("api", list(all_apis()), ids=lambda api: api.name)
def test_kio_reads_what_we_write(api: Api) -> None:
    from kio.index import load_payload_module
    from kio.static.constants import EntityType

    for version in api.versions:
        for message, kind in ((api.request, EntityType.request), (api.response, EntityType.response)):
            module = load_payload_module(api.key, version, kind)
            _kio_agrees(message, getattr(module, message.__name__), version)


def _kio_agrees(message: type[Message], theirs: Any, version: int) -> None:
    from kio.serial import entity_reader, entity_writer

    read, write = entity_reader(theirs), entity_writer(theirs)

    def check(value: Message) -> None:
        data = encode(value, version)
        written = io.BytesIO()
        entity, size = read(data, 0)
        write(written, entity)
        assert size == len(data)
        assert written.getvalue() == data

    for_values(check, message, version, EXAMPLES, modest=True)
