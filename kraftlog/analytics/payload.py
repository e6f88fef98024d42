"""A record as JSON: every field by Kafka's name (protobuf's JSON names are the same), uuids as Kafka prints them.

Unlike protobuf's own JSON it writes 64-bit numbers as numbers, fields that have their default value, and uuids as in
the export's topic_id column, so that the two can be joined. The content of an `OpaqueRecord` is not shown. The fields
of a message type are determined once, from its descriptor.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from kraftpb.v1.metadata_pb2 import OpaqueRecord

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)


def to_json(message: Message) -> str:
    """The message as one line of JSON. A field that is not set and has no default is left out."""
    return _ENCODER.encode(_to_value(message))


def bytes_to_text(value: bytes) -> str:
    """URL-safe base64 without padding: for 16 bytes the 22 characters of Kafka's uuids."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def _to_value(message: Message) -> dict[str, Any]:
    if message.DESCRIPTOR is OpaqueRecord.DESCRIPTOR:
        return {"hidden": True}
    value: dict[str, Any] = {}
    for name, json_name, has_presence, convert in _fields(message.DESCRIPTOR):
        if not has_presence or message.HasField(name):
            value[json_name] = convert(getattr(message, name))
    return value


@cache
def _fields(descriptor: Descriptor) -> tuple[tuple[str, str, bool, Callable[[Any], Any]], ...]:
    return tuple((field.name, field.json_name, field.has_presence, _converter(field)) for field in descriptor.fields)


def _converter(field: FieldDescriptor) -> Callable[[Any], Any]:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        one: Callable[[Any], Any] = _to_value
    elif field.type == FieldDescriptor.TYPE_BYTES:
        one = bytes_to_text
    else:
        return list if field.is_repeated else _same
    return (lambda values: [one(value) for value in values]) if field.is_repeated else one


def _same(value: object) -> object:
    return value
