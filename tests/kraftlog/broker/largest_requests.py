"""The largest and the most repetitive requests of each API, made of the tables of its messages."""

from __future__ import annotations

from typing import Any, Final, cast

from kraftlog.kafka.apis import NAMES, OWN_NAMES, api_of
from kraftlog.kafka.layout import Layout
from kraftlog.kafka.notation import Field, Message, Struct

TOPIC: Final = "bounded"
NAMED: Final = {"name", "topic", "topic_name", "resource_name"}
TIMED: Final = {"timeout_ms": 10_000, "max_wait_ms": 0, "acks": 1}
DENSE: Final = "each its own, with short names"
"""As many elements as fit into as few bytes."""
SHAPES: Final = ("the same again and again", "each its own", "all in one")


def arrays(layout: Layout, struct: type[Struct]) -> list[Field]:
    return [field for field in struct.FIELDS if layout.has(field) and field.is_array]


def name_of(number: int, shape: str) -> str:
    if shape == DENSE:
        return f"{number:x}"
    return TOPIC if shape == SHAPES[0] else f"{TOPIC}-{number}"


def value_of(layout: Layout, struct: type[Struct], counts: list[int], number: int, shape: str) -> Any:
    """A struct whose arrays have `counts[0]` elements, and those in their elements `counts[1]`, and so on."""
    values: dict[str, Any] = {}
    for field in struct.FIELDS:
        if not layout.has(field):
            continue
        if field.is_array:
            count = counts[0] if counts else 1
            values[field.name] = tuple(element_of(layout, field, counts[1:], index, shape) for index in range(count))
        elif field.name in NAMED and field.kind == "string":
            values[field.name] = name_of(number, shape)
        elif field.name in TIMED:
            values[field.name] = TIMED[field.name]
        elif field.name == "resource_type":
            values[field.name] = 2
    return struct(**values)


def element_of(layout: Layout, field: Field, counts: list[int], index: int, shape: str) -> Any:
    if field.kind == "struct":
        return value_of(layout, cast(type[Struct], field.struct), counts, index, shape)
    number = 0 if shape == SHAPES[0] else index
    name = f"{TOPIC}-{number}" if shape != DENSE else name_of(number, shape)
    of_kind: dict[str, Any] = {"string": name, "uuid": number.to_bytes(16), "bytes": b"", "bool": False}
    return of_kind.get(field.kind, number)


def elements_in(layout: Layout, value: Any) -> int:
    """How many elements all arrays of a value have."""
    count = 0
    for field in arrays(layout, type(value)):
        elements = getattr(value, field.name) or ()
        count += len(elements)
        if field.kind == "struct" and arrays(layout, cast(type[Struct], field.struct)):
            count += sum(elements_in(layout, element) for element in elements)
    return count


def request_of(name: str, version: int, shape: str, elements: int) -> Message | None:
    """A request with about as many elements, and not more; None if the API has no arrays."""
    message = api_of(next(key for key, of in (NAMES | OWN_NAMES).items() if of == name)).request
    layout = Layout(message, version)
    if not arrays(layout, message):
        return None

    def made(count: int) -> Any:
        counts = [1, count] if shape == "all in one" else [count, 1]
        return value_of(layout, message, counts, 0, shape)

    per_count = elements_in(layout, made(20)) - elements_in(layout, made(19))
    if not per_count:  # nothing is in anything
        return request_of(name, version, SHAPES[1], elements)
    return cast(Message, made((elements - 20) // per_count))
