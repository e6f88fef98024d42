"""Any bytes end in a value or in MalformedBytes with the path of a field, and take memory in proportion to them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any, Final, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlog.kafka.codec import decode, encode
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.layout import Layout
from kraftlog.kafka.notation import Field, Message, Struct
from kraftlog.kafka.primitives import varint
from tests.effort import examples, some
from tests.kraftlog.kafka.values import MESSAGES, UNKNOWN_TAG_MIN

RANDOM_INPUTS: Final = 20
TIMES_MAX: Final = 40
"""How many times its bytes a value takes."""

ONE: Final[dict[str, Any]] = {
    "string": "one", "bytes": b"\1", "records": b"\1", "uuid": bytes(range(16)), "bool": True, "float64": 1.0,
}  # fmt: skip
BYTES: Final = (b"\0", b"\1", b"\2", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff")


# Each test has all messages: a test for each message costs more than its work.
EVERY_VERSION: Final = [(message, version) for message in MESSAGES for version in message.VERSIONS]
FIRST_AND_LAST: Final = [
    *((message, message.VERSIONS.highest) for message in MESSAGES),
    *((message, message.VERSIONS.lowest) for message in some(MESSAGES) if len(list(message.VERSIONS)) > 1),
]
"""How bytes are laid out changes little from message to message, and much when a version is flexible."""


def test_bytes_that_end_too_early_are_refused_wherever_they_end() -> None:
    for message, version in EVERY_VERSION:
        data = encode(_one_of_each(Layout(message, version), message), version)
        for end in some(range(len(data)), part=3):
            with pytest.raises(MalformedBytes, match=rf"^{message.__name__}\.\w"):
                decode(message, version, data[:end])


def test_damaged_and_random_bytes_are_read_or_refused() -> None:
    for message, version in EVERY_VERSION:
        random = Random(f"{message.__name__} {version}")
        data = encode(_one_of_each(Layout(message, version), message), version)
        for position in some(range(len(data)), part=3):
            damage = random.choice(BYTES)
            _read_or_refused(message, version, data[:position] + damage + data[position + len(damage) :])
            _read_or_refused(message, version, data[:position] + damage + data[position:])
        for _ in range(RANDOM_INPUTS):
            _read_or_refused(message, version, random.randbytes(random.randrange(200)))


@settings(deadline=None, derandomize=True, database=None, max_examples=examples(200))
@given(st.sampled_from(EVERY_VERSION), st.binary())
def test_what_hypothesis_thinks_of_is_read_or_refused(pair: tuple[type[Message], int], data: bytes) -> None:
    _read_or_refused(*pair, data)


def test_a_value_takes_memory_in_proportion_to_its_bytes() -> None:
    """Whichever array, or the unknown tags, has as many elements as go into the bytes."""
    for message, version in FIRST_AND_LAST:
        layout = Layout(message, version)
        for value in _with_many(layout, message, 200):
            data = encode(value, version)
            at_most = TIMES_MAX * len(data) + 10_000
            assert _least_peak(partial(decode, message, version, data), at_most) < at_most, (message, version)


def test_a_count_that_the_bytes_cannot_hold_takes_no_memory() -> None:
    for message, version in FIRST_AND_LAST:
        data = encode(_one_of_each(Layout(message, version), message), version)
        assert _least_peak(partial(_read_with_large_counts, message, version, data), 300_000) < 300_000, message


def _read_with_large_counts(message: type[Message], version: int, data: bytes) -> None:
    for position in some(range(len(data)), part=3):  # a count has four bytes
        for large in (b"\x7f\xff\xff\xff", varint(2**31 - 1)):
            _read_or_refused(message, version, data[:position] + large + data[position + len(large) :])


def _least_peak(work: Callable[[], object], enough_bytes: int) -> int:
    """The memory that `work` takes at most, in bytes; by the best of a few runs, until one has taken so little.

    What the process's other threads allocate meanwhile is counted, too, and what the first run puts in caches.
    """
    peaks: list[int] = []
    while len(peaks) < 5 and (not peaks or min(peaks) >= enough_bytes):
        tracemalloc.start()
        work()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return min(peaks)


def _read_or_refused(message: type[Message], version: int, data: bytes) -> None:
    try:
        value = decode(message, version, data)
    except MalformedBytes as refused:
        assert refused.path.startswith(message.__name__)
        return
    except Exception as error:
        error.add_note(f"of the bytes {data!r}, read as {message.__name__}, version {version}")
        raise
    decode(message, version, encode(value, version))


def _one_of_each(layout: Layout, struct: type[Struct]) -> Any:
    """A value with one element in each array, and nothing null."""
    made = {field.name: _one(layout, field) for field in struct.FIELDS if layout.has(field)}
    return struct(**made, unknown_tags=((UNKNOWN_TAG_MIN, b"kept"),) if layout.is_flexible else ())


def _one(layout: Layout, field: Field) -> Any:
    one = _one_of_each(layout, cast(type[Struct], field.struct)) if field.struct is not None else ONE.get(field.kind, 1)
    return (one,) if field.is_array else one


def _with_many(layout: Layout, struct: type[Struct], count: int) -> Iterator[Any]:
    """Values of which one array, somewhere, has `count` of the smallest elements."""
    if layout.is_flexible:
        yield struct(unknown_tags=tuple((UNKNOWN_TAG_MIN, b"") for _ in range(count)))
    for field in struct.FIELDS:
        if not layout.has(field):
            continue
        if field.is_array:
            empty = {"string": "", "bytes": b"", "uuid": bytes(16)}.get(field.kind, 0)
            elements = [field.struct() if field.struct is not None else empty for _ in range(count)]
            yield struct(**{field.name: tuple(elements)})
        if field.struct is not None:
            for inner in _with_many(layout, field.struct, count):
                yield struct(**{field.name: (inner,) if field.is_array else inner})
