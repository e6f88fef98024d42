"""Every message of the tables, and values of it in any version."""

from __future__ import annotations

from typing import Any, Final, cast

from hypothesis import strategies as st

from kraftlog.kafka.apis import all_apis, own_apis
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
KAFKAS: Final = [*REQUESTS, *METADATA_RECORDS.values(), *CONTROL, RequestHeader, ResponseHeader]
"""Those that Kafka has a definition of."""
MESSAGES: Final = [*KAFKAS, *(message for api in own_apis() for message in (api.request, api.response))]

UNKNOWN_TAG_MIN: Final = 40
"""No table has a tag as high."""

Primitives = dict[str, st.SearchStrategy[Any]]

PRIMITIVES: Final[Primitives] = {
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
    "error_code": st.integers(-(2**15), 2**15 - 1),
}

UNKNOWN_TAGS: Final = st.dictionaries(st.integers(UNKNOWN_TAG_MIN, 2**31 - 1), st.binary(max_size=9), max_size=2).map(
    lambda tags: tuple(sorted(tags.items()))
)

MODEST: Final = {
    **PRIMITIVES,
    **dict.fromkeys(("int8", "int16", "uint16", "int32", "int64"), st.integers(1, 100)),
    "error_code": st.sampled_from([0, 3, 35]),
}
"""Numbers that can also be times and durations, and error codes that are some."""


def values(message: type[Message], version: int) -> st.SearchStrategy[Message]:
    """Values that a version of a message can have: fields that it lacks have their defaults."""
    return cast(st.SearchStrategy[Message], _structs(Layout(message, version), message, PRIMITIVES, UNKNOWN_TAGS))


def modest_values(message: type[Message], version: int) -> st.SearchStrategy[Message]:
    """Values that other programs take, too."""
    return cast(st.SearchStrategy[Message], _structs(Layout(message, version), message, MODEST, st.just(())))


Tags = st.SearchStrategy[tuple[tuple[int, bytes], ...]]


def _structs(layout: Layout, struct: type[Struct], primitives: Primitives, tags: Tags) -> st.SearchStrategy[Struct]:
    fields = {field.name: _values(layout, field, primitives, tags) for field in struct.FIELDS if layout.has(field)}
    return st.builds(struct, **fields, unknown_tags=tags if layout.is_flexible else st.just(()))


def _values(layout: Layout, field: Field, primitives: Primitives, tags: Tags) -> st.SearchStrategy[Any]:
    if field.kind == "struct":
        found: st.SearchStrategy[Any] = _structs(layout, cast(type[Struct], field.struct), primitives, tags)
    else:
        found = primitives["error_code" if field.name.endswith("error_code") else field.kind]
    if field.is_array:
        found = st.lists(found, max_size=3 if field.kind == "struct" else 20).map(tuple)
    return st.none() | found if layout.can_be_null(field) else found
