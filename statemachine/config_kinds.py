"""The kinds of values that configs have, with Kafka's types and ranges: what is wrong with a value, and lists."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}\Z")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][+-]?[0-9]{1,3})?\Z")
_THROTTLED: Final = re.compile(r"[0-9]{1,10}:[0-9]{1,10}\Z")


@dataclass(frozen=True, slots=True)
class Whole:
    """An integer from `least` to `most`."""

    least: int
    most: int

    def problem(self, value: str) -> str | None:
        """What is wrong with `value`, if anything."""
        if not _INTEGER.match(value):
            return "it must be an integer"
        if not self.least <= int(value) <= self.most:
            return f"it must be between {self.least} and {self.most}"
        return None


@dataclass(frozen=True, slots=True)
class LevelOrDefault:
    """A compression level from `least` to `most`, or what stands for the codec's own choice."""

    least: int
    most: int
    default: int

    def problem(self, value: str) -> str | None:
        """What is wrong with `value`, if anything."""
        if _INTEGER.match(value) and (int(value) == self.default or self.least <= int(value) <= self.most):
            return None
        return f"it must be an integer between {self.least} and {self.most}, or {self.default}"


@dataclass(frozen=True, slots=True)
class Fraction:
    """A number from 0 to 1."""

    def problem(self, value: str) -> str | None:
        """What is wrong with `value`, if anything."""
        if not _DECIMAL.match(value) or not 0 <= float(value) <= 1:
            return "it must be a number between 0 and 1"
        return None


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of a few words."""

    words: tuple[str, ...]

    def problem(self, value: str) -> str | None:
        """What is wrong with `value`, if anything."""
        return None if value in self.words else f"it must be one of {', '.join(self.words)}"


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false, in any case."""

    def problem(self, value: str) -> str | None:
        """What is wrong with `value`, if anything."""
        return None if value.lower() in ("true", "false") else "it must be true or false"


@dataclass(frozen=True, slots=True)
class SomeOf:
    """At least one of a few words, separated by commas, none of them twice."""

    words: tuple[str, ...]

    def problem(self, value: str) -> str | None:
        """What is wrong with `value`, if anything."""
        given = [word.strip() for word in value.split(",")]
        if len(set(given)) == len(given) and set(given) <= set(self.words):
            return None
        return f"it must be some of {', '.join(self.words)}, each once, separated by commas"


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """`*`, or pairs of partition and broker."""

    def problem(self, value: str) -> str | None:
        """What is wrong with `value`, if anything."""
        pairs = [pair.strip() for pair in value.split(",")]
        if value.strip() in ("", "*") or all(_THROTTLED.match(pair) for pair in pairs):
            return None
        return "it must be * or a list such as 0:101,1:102 (partition:broker)"


ListKind = SomeOf | ThrottledReplicas
"""Those whose values are elements, separated by commas."""

Kind = Whole | LevelOrDefault | Fraction | OneOf | Flag | ListKind


def split_elements(value: str) -> list[str]:
    """The elements of a list, in their order, without the blanks around them; empty ones are none."""
    return [element.strip() for element in value.split(",") if element.strip()]


def join_elements(elements: Iterable[str]) -> str:
    """The value that has these elements."""
    return ",".join(elements)
