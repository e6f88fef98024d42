"""A table in one version: which fields exist, and the fewest bytes that they can take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from kraftlog.kafka.generated_code import Step
from kraftlog.kafka.notation import NONE, Field, Message, Struct
from kraftlog.kafka.primitives import FORMATS, SIZES


@dataclass(frozen=True, slots=True)
class Layout:
    """A version of a message."""

    message: type[Message]
    version: int

    @property
    def is_flexible(self) -> bool:
        """Whether it has compact lengths and tagged fields (KIP-482)."""
        return self.version in self.message.FLEXIBLE

    def has(self, field: Field) -> bool:
        """Whether a field exists, tagged or not."""
        return self.version in field.versions

    def is_tagged(self, field: Field) -> bool:
        """Whether a field exists as a tagged one."""
        return field.tag is not None and self.has(field)

    def plain(self, struct: type[Struct]) -> list[Field]:
        """The existing fields that are not tagged, in order."""
        return [field for field in struct.FIELDS if self.has(field) and field.tag is None]

    def tagged(self, struct: type[Struct]) -> list[Field]:
        """The existing tagged fields, by tag."""
        return sorted((f for f in struct.FIELDS if self.is_tagged(f)), key=lambda field: cast(int, field.tag))

    def can_be_null(self, field: Field) -> bool:
        """Whether null is a value of a field."""
        return self.version in field.null

    def is_compact(self, field: Field) -> bool:
        """Whether a field's length is a varint."""
        return self.is_flexible and field.is_flexible

    def size_min(self, struct: type[Struct]) -> int:
        """The fewest bytes that a struct can have."""
        return sum(map(self._field_size_min, self.plain(struct))) + self.is_flexible

    def element_size_min(self, field: Field) -> int:
        """The fewest bytes that an element of an array can have."""
        return self._field_size_min(element_of(field))

    def _field_size_min(self, field: Field) -> int:
        if field.is_array:
            return 1 if self.is_compact(field) else 4
        if field.kind == "struct":
            return 1 if self.can_be_null(field) else self.size_min(cast(type[Struct], field.struct))
        return SIZES.get(field.kind) or self._length_size(field)

    def _length_size(self, field: Field) -> int:
        if self.is_compact(field):
            return 1
        return 2 if field.kind == "string" else 4


def is_fixed(field: Field) -> bool:
    """Whether a field has the same number of bytes in each value."""
    return field.kind in SIZES and not field.is_array


def element_of(field: Field) -> Field:
    """Return the description of an array's element, as a field."""
    return replace(field, null=NONE, tag=None, is_array=False)


def run_step(run: list[Field], value: str) -> Step:
    """Return the step of a line that reads or writes these fields at once. `value` is the variable with the struct."""
    return Step(run[0].name, run=tuple((field.name, FORMATS[field.kind]) for field in run), value=value)
