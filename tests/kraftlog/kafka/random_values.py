"""Values of any message in any version, by chance: made in a tenth of the time that Hypothesis takes for its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final, cast

from hypothesis import given, settings

from kraftlog.kafka.layout import Layout
from kraftlog.kafka.notation import Field, Message, Struct
from tests.effort import all_cases
from tests.kraftlog.kafka.values import UNKNOWN_TAG_MIN, modest_values, values

BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "error_code": 16}
SIGNS: Final = "aZ0 _-/\0\x7fäß€\u2028\U0001f600"
"""Of one byte to four in UTF-8."""
FLOATS: Final = [0.0, -0.0, 1.5, -1e300, 5e-324, float("inf"), float("-inf")]


class RandomValues:
    """Makes values of one version. `modest` ones are those that other programs take, too."""

    def __init__(self, layout: Layout, random: Random, *, modest: bool) -> None:
        self._layout = layout
        self._random = random
        self._modest = modest

    def struct(self, struct: type[Struct]) -> Struct:
        """A value of a struct: fields that the version lacks have their defaults."""
        fields = {field.name: self._field(field) for field in struct.FIELDS if self._layout.has(field)}
        return struct(**fields, unknown_tags=self._unknown_tags())

    def _unknown_tags(self) -> tuple[tuple[int, bytes], ...]:
        if self._modest or not self._layout.is_flexible:
            return ()
        tags = {
            self._random.choice([UNKNOWN_TAG_MIN, self._random.randrange(UNKNOWN_TAG_MIN, 2**31)]): self._bytes(9)
            for _ in range(self._random.randint(0, 2))
        }
        return tuple(sorted(tags.items()))

    def _field(self, field: Field) -> Any:
        if self._layout.can_be_null(field) and self._random.random() < 0.25:
            return None
        if not field.is_array:
            return self._one(field)
        count = self._random.choice([0, 1, 2, 3] if field.kind == "struct" else [0, 1, 2, 20])
        return tuple(self._one(field) for _ in range(count))

    def _one(self, field: Field) -> Any:
        if field.kind == "struct":
            return self.struct(cast(type[Struct], field.struct))
        kind = "error_code" if field.name.endswith("error_code") else field.kind
        return self._primitive(kind)

    def _primitive(self, kind: str) -> Any:
        random = self._random
        if self._modest and kind == "error_code":
            return random.choice([0, 3, 35])
        if self._modest and kind == "uuid":
            return random.randbytes(16)  # kafka-python makes None of the zero uuid
        if self._modest and (kind in BITS or kind == "uint16"):
            return random.randint(1, 100)
        if kind in BITS:
            end = 1 << BITS[kind] - 1
            return random.choice([-end, -1, 0, 1, end - 1, random.randrange(-end, end)])
        others: dict[str, Callable[[], Any]] = {
            "uint16": lambda: random.choice([0, 1, 2**16 - 1, random.randrange(2**16)]),
            "float64": lambda: random.choice([*FLOATS, random.uniform(-1e9, 1e9)]),
            "bool": lambda: random.random() < 0.5,
            "uuid": lambda: random.choice([bytes(16), random.randbytes(16)]),
            "string": lambda: "".join(random.choices(SIGNS, k=random.choice([0, 1, 5, 20]))),
            "bytes": lambda: self._bytes(150),
            "records": lambda: self._bytes(150),
        }
        return others[kind]()

    def _bytes(self, size_max: int) -> bytes:
        return self._random.randbytes(self._random.choice([0, 1, size_max]))


def random_values(message: type[Message], version: int, count: int, *, modest: bool) -> Iterator[Message]:
    """So many, which are the same ones each time."""
    random = Random(f"{message.__name__} {version}")
    for _ in range(count):
        yield cast(Message, RandomValues(Layout(message, version), random, modest=modest).struct(message))


def for_values(
    check: Callable[[Message], None], message: type[Message], version: int, count: int, *, modest: bool = False
) -> None:
    """Check so many values: in `make slow` those of Hypothesis, which looks for the simplest one that fails."""
    if not all_cases():
        for value in random_values(message, version, count, modest=modest):
            check(value)
        return
    chosen = modest_values if modest else values
    settings(max_examples=count, derandomize=True, database=None, deadline=None)(
        given(chosen(message, version))(check)
    )()
