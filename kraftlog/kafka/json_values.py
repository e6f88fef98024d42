"""A message as JSON, as Kafka's tools print it: Kafka's names; uuids and bytes in base64; a tagged field only if it
differs from its default."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from typing import Any

from kraftlog.kafka.layout import Layout
from kraftlog.kafka.notation import Field, Message, Struct


def json_value(value: Message, version: int) -> dict[str, Any]:
    """Return a value for `json.dumps`: the fields that this version of a message has. Unknown tags are left out."""
    return _object(Layout(type(value), version), value)


def _object(layout: Layout, value: Struct) -> dict[str, Any]:
    return {
        field.kafka_name: _shown(layout, field, found)
        for field in type(value).FIELDS
        if layout.has(field)
        for found in (getattr(value, field.name),)
        if field.tag is None or found != field.new_default()
    }


def _shown(layout: Layout, field: Field, value: Any) -> Any:
    if value is None:
        return None
    if field.is_array:
        return [_element(layout, field, item) for item in value]
    return _element(layout, field, value)


def _element(layout: Layout, field: Field, value: Any) -> Any:
    match field.kind:
        case "struct":
            return _object(layout, value)
        case "uuid":
            return urlsafe_b64encode(value).rstrip(b"=").decode()
        case "bytes" | "records":
            return b64encode(value).decode()
        case _:
            return value
