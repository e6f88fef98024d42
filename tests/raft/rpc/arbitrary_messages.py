"""Protobuf messages with anything in them, made from their descriptors, and bytes that are nearly messages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st
from hypothesis.vendor.pretty import RepresentationPrinter, for_type_by_name

M = TypeVar("M", bound=Message)

_INT32 = [-(2**31), -2, -1, 0, 1, 2, 3, 100, 2**16, 2**31 - 2, 2**31 - 1]
_INT64 = [*_INT32, -(2**63), 2**32, 2**63 - 2, 2**63 - 1]
_UINT32 = [0, 1, 2**31, 2**32 - 1]
_UINT64 = [*_UINT32, 2**63, 2**64 - 1]
_TEXTS = ["", "a", "..", "-1", "01", "\0", "ü", "\U0001f600", "a" * 255, "a" * 256]
_LONG_TEXTS = st.just(70_000).map(lambda length: "x" * length)
_BYTES = [b"", b"\0", b"\0" * 15, b"\0" * 16, b"\1" * 16, b"\xff" * 16, b"\0" * 17, b"\xff" * 300]

SHOWN_MAX = 1_000
"""A report of a failure shows this many characters of a value: Hypothesis warns of more than 30,000 in all, and the
warning, which is an error here, would be reported in the place of the failure."""


class MangledBytes(bytes):
    """Bytes whose repr is short."""

    def __repr__(self) -> str:
        return _shortened(super().__repr__())


def _shortened(text: str) -> str:
    """With each run of the letter of long texts as its length, and cut."""
    text = re.sub("x{100,}", lambda run: f"<{len(run.group())} x>", text)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}<and {len(text) - SHOWN_MAX} more>"


def _print_message(message: Message, printer: RepresentationPrinter, cycle: bool) -> None:
    printer.text(f"{type(message).__name__}({_shortened(str(message))})")


for_type_by_name(Message.__module__, Message.__name__, _print_message)

Hints = Mapping[str, Sequence[Any]]
"""By field name: values that lead further than arbitrary ones do; for lists, their elements."""

HINT_WEIGHT = 5
"""How much more often than other values these are drawn."""

_SCALARS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.CPPTYPE_INT32: st.sampled_from(_INT32) | st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_ENUM: st.sampled_from(_INT32),
    FieldDescriptor.CPPTYPE_INT64: st.sampled_from(_INT64) | st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: st.sampled_from(_UINT32) | st.integers(0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: st.sampled_from(_UINT64) | st.integers(0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_DOUBLE: st.sampled_from([0.0, -1.0, 1e308, float("inf"), float("nan")]) | st.floats(),
}


def arbitrary(kind: type[M], hints: Hints | None = None) -> st.SearchStrategy[M]:
    """Messages of a type: every field is missing, or holds any value of its type, extremes above all."""
    return _message(kind, kind.DESCRIPTOR, hints or {}, depth=4)


def _message(kind: type[M], descriptor: Descriptor, hints: Hints, depth: int) -> st.SearchStrategy[M]:
    fields = [field for field in descriptor.fields if depth or not _is_message(field)]
    single = {
        field.name: _field(field, hints, depth) if field.name in hints else st.none() | _field(field, hints, depth)
        for field in fields
        if field.containing_oneof is None
    }
    of_one = [
        st.none() | st.one_of(*(_named(field.name, _field(field, hints, depth)) for field in oneof.fields))
        for oneof in descriptor.oneofs
    ]

    def make(values: dict[str, Any], chosen: tuple[dict[str, Any] | None, ...]) -> M:
        for one in chosen:
            values |= one or {}
        return kind(**{name: value for name, value in values.items() if value is not None})

    return st.builds(make, st.fixed_dictionaries(single), st.tuples(*of_one))


def _named(name: str, one: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({name: one})


def _is_message(field: FieldDescriptor) -> bool:
    return field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE


def _field(field: FieldDescriptor, hints: Hints, depth: int) -> st.SearchStrategy[Any]:
    one: st.SearchStrategy[Any]
    if _is_message(field):
        one = _message(GetMessageClass(field.message_type), field.message_type, hints, depth - 1)
    elif field.type == FieldDescriptor.TYPE_STRING:
        one = st.sampled_from(_TEXTS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | _LONG_TEXTS
    elif field.type == FieldDescriptor.TYPE_BYTES:
        one = st.sampled_from(_BYTES) | st.binary(max_size=40)
    else:
        one = _SCALARS[field.cpp_type]
    if hints.get(field.name) and field.cpp_type != FieldDescriptor.CPPTYPE_DOUBLE:  # the name is a config's, too
        leading = [st.sampled_from(hints[field.name]) for _ in range(HINT_WEIGHT)]
        one = st.one_of(*leading, one)
    if not field.is_repeated:
        return one
    some = st.lists(one, max_size=3)
    return some if hints.get(field.name, True) else st.just([]) | some


def mangled(valid: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Bytes that are not messages, or not the ones that were meant: random ones, and valid ones with a change."""
    changed = st.builds(
        change,
        valid,
        st.integers(0, 2**32 - 1),
        st.binary(min_size=1, max_size=8),
        st.sampled_from(["cut", "set", "put", "repeat"]),
    )
    return (st.binary(max_size=200) | changed).map(MangledBytes)


def change(data: bytes, number: int, new: bytes, how: str) -> bytes:
    """Some bytes of `data` are cut off, replaced, put between or repeated."""
    position = number % (len(data) + 1)
    match how:
        case "cut":
            return data[:position]
        case "set":
            return data[:position] + new + data[position + len(new) :]
        case "put":
            return data[:position] + new + data[position:]
        case _:
            return data + data[position:]
