"""Every message of the tables, and values of it in any version."""

from __future__ import annotations

from typing import Any, Final, cast

from hypothesis import strategies as st

from kraftlog.kafka.apis import all_apis
from kraftlog.kafka.control_records import (
    EndTxnMarker,
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from kraftlog.kafka.headers import RequestHeader, ResponseHeader
from kraftlog.kafka.layout import Layout
from kraftlog.kafka.notation import Field, Message, Struct
from kraftlog.kafka.record_values import METADATA_RECORDS

CONTROL: Final[list[type[Message]]] = [
    EndTxnMarker,
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
]
REQUESTS: Final = [message for api in all_apis() for message in (api.request, api.response)]
MESSAGES: Final = [*REQUESTS, *METADATA_RECORDS.values(), *CONTROL, RequestHeader, ResponseHeader]

UNKNOWN_TAG_MIN: Final = 40
"""No table has a tag as high."""

PRIMITIVES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": st.text(max_size=20),
    "bytes": st.binary(max_size=150),
    "records": st.binary(max_size=150),
}

UNKNOWN_TAGS: Final = st.dictionaries(st.integers(UNKNOWN_TAG_MIN, 2**31 - 1), st.binary(max_size=9), max_size=2).map(
    lambda tags: tuple(sorted(tags.items()))
)


def values(message: type[Message], version: int) -> st.SearchStrategy[Message]:
    """Values that a version of a message can have: fields that it lacks have their defaults."""
    return cast(st.SearchStrategy[Message], _structs(Layout(message, version), message))


def _structs(layout: Layout, struct: type[Struct]) -> st.SearchStrategy[Struct]:
    fields = {field.name: _values(layout, field) for field in struct.FIELDS if layout.has(field)}
    return st.builds(struct, **fields, unknown_tags=UNKNOWN_TAGS if layout.is_flexible else st.just(()))


def _values(layout: Layout, field: Field) -> st.SearchStrategy[Any]:
    if field.kind == "struct":
        found: st.SearchStrategy[Any] = _structs(layout, cast(type[Struct], field.struct))
    else:
        found = PRIMITIVES[field.kind]
    if field.is_array:
        found = st.lists(found, max_size=3 if field.kind == "struct" else 20).map(tuple)
    return st.none() | found if layout.can_be_null(field) else found
