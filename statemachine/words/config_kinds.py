"""The kinds of values that configs have, with Kafka's types and ranges: what is wrong with a value, and lists.

As Kafka's `ConfigDef.parseType` does, each accepts a value without the blanks around it; `parsed` is how it is shown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

INT_MIN: Final = -(2**31)
INT_MAX: Final = 2**31 - 1
LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}\Z")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][+-]?[0-9]{1,3})?\Z")
_THROTTLED: Final = re.compile(r"[0-9]{1,10}:[0-9]{1,10}\Z")
_HOST: Final = re.compile(r"[0-9a-zA-Z\-%._:]*\Z")
_BLANKS: Final = "".join(map(chr, range(0x21)))

_PLAIN_LEAST: Final = 1e-3
_PLAIN_END: Final = 1e7
"""Java writes numbers in this range without an exponent."""


def trimmed(value: str) -> str:
    """The value without the characters around it that Java counts as blanks (CT-71)."""
    return value.strip(_BLANKS)


@dataclass(frozen=True, slots=True)
class Whole:
    """An integer from `least` to `most`."""

    least: int
    most: int

    def problem(self, value: str) -> str | None:
        """What is wrong with `value`, if anything."""
        value = trimmed(value)
        if not _INTEGER.match(value):
            return "it must be an integer"
        if not self.least <= int(value) <= self.most:
            return f"it must be between {self.least} and {self.most}"
        return None

    def parsed(self, value: str) -> str:
        """The number as it is shown: `7` for `007`."""
        return str(int(value))


@dataclass(frozen=True, slots=True)
class LevelOrDefault:
    """A compression level from `least` to `most`, or the number for the codec's own default."""

    least: int
    most: int
    default: int

    def problem(self, value: str) -> str | None:
        """What is wrong with `value`, if anything."""
        value = trimmed(value)
        if _INTEGER.match(value) and (int(value) == self.default or self.least <= int(value) <= self.most):
            return None
        return f"it must be an integer between {self.least} and {self.most}, or {self.default}"

    def parsed(self, value: str) -> str:
        """The number as it is shown."""
        return str(int(value))


@dataclass(frozen=True, slots=True)
class Fraction:
    """A number from 0 to 1."""

    def problem(self, value: str) -> str | None:
        """What is wrong with `value`, if anything."""
        value = trimmed(value)
        if not _DECIMAL.match(value) or not 0 <= float(value) <= 1:
            return "it must be a number between 0 and 1"
        return None

    def parsed(self, value: str) -> str:
        """The number as it is shown: `0.5` for `.50`."""
        return _as_java_writes(float(value))


@dataclass(frozen=True, slots=True)
class Number:
    """Any finite number."""

    def problem(self, value: str) -> str | None:
        """What is wrong with `value`, if anything."""
        value = trimmed(value)
        return None if _DECIMAL.match(value) and math.isfinite(float(value)) else "it must be a number"

    def parsed(self, value: str) -> str:
        """The number as it is shown: `1.0E7` for `10000000`."""
        return _as_java_writes(float(value))


def _as_java_writes(number: float) -> str:
    """A finite number as `Double.toString` formats it: Python's digits, and another exponent."""
    if number == 0 or _PLAIN_LEAST <= abs(number) < _PLAIN_END:
        return repr(number)
    mantissa, _, exponent = f"{Decimal(repr(number)).normalize():E}".partition("E")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of a few words."""

    words: tuple[str, ...]

    def problem(self, value: str) -> str | None:
        """What is wrong with `value`, if anything."""
        return None if trimmed(value) in self.words else f"it must be one of {', '.join(self.words)}"

    def parsed(self, value: str) -> str:
        """The word."""
        return trimmed(value)


@dataclass(frozen=True, slots=True)
class Text:
    """Any text, which may be empty."""

    def problem(self, value: str) -> str | None:
        """Every value is valid."""
        return None

    def parsed(self, value: str) -> str:
        """The text, without blanks around it."""
        return trimmed(value)


@dataclass(frozen=True, slots=True)
class Flag:
    """true or false, in any case."""

    def problem(self, value: str) -> str | None:
        """What is wrong with `value`, if anything."""
        return None if trimmed(value).lower() in ("true", "false") else "it must be true or false"

    def parsed(self, value: str) -> str:
        """`true` or `false`."""
        return trimmed(value).lower()


@dataclass(frozen=True, slots=True)
class SomeOf:
    """Some of a few words, separated by commas, none of them twice; empty for none of them (KIP-1161)."""

    words: tuple[str, ...]

    def problem(self, value: str) -> str | None:
        """What is wrong with `value`, if anything."""
        if not value.strip():
            return None
        given = [word.strip() for word in value.split(",")]
        if len(set(given)) == len(given) and set(given) <= set(self.words):
            return None
        return f"it must be some of {', '.join(self.words)}, each once, separated by commas, or empty"

    def parsed(self, value: str) -> str:
        """The elements, without blanks around them."""
        return _parsed_list(value)


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """`*`, or pairs of partition and broker."""

    def problem(self, value: str) -> str | None:
        """What is wrong with `value`, if anything."""
        pairs = [pair.strip() for pair in value.split(",")]
        if value.strip() in ("", "*") or all(_THROTTLED.match(pair) for pair in pairs):
            return None
        return "it must be * or a list such as 0:101,1:102 (partition:broker)"

    def parsed(self, value: str) -> str:
        """The elements, without blanks around them."""
        return _parsed_list(value)


@dataclass(frozen=True, slots=True)
class ClassNames:
    """Names of Java classes, separated by commas, none of them twice; empty for none of them."""

    def problem(self, value: str) -> str | None:
        """What is wrong with `value`, if anything."""
        if not value.strip():
            return None
        names = [name.strip() for name in value.split(",")]
        if len(set(names)) == len(names) and all(map(_is_class_name, names)):
            return None
        return "it must be names of classes such as org.example.Reporter, each once, separated by commas, or empty"

    def parsed(self, value: str) -> str:
        """The elements, without blanks around them."""
        return _parsed_list(value)


def _is_class_name(name: str) -> bool:
    return all(part.replace("$", "_").isidentifier() for part in name.split("."))


@dataclass(frozen=True, slots=True)
class HostLimits:
    """Pairs of host and count, separated by commas: one text to Kafka, not a list that could be appended to.

    The last colon of a pair separates it, so that a host may be an IPv6 address.
    """

    def problem(self, value: str) -> str | None:
        """What is wrong with `value`, if anything."""
        value = trimmed(value)
        pairs = [pair.strip().rpartition(":") for pair in value.split(",")] if value else []
        count_kind = Whole(INT_MIN, INT_MAX)
        if all(colon and _HOST.match(host) and not count_kind.problem(count) for host, colon, count in pairs):
            return None
        return "it must be a list such as host1:100,127.0.0.1:200 (host:count), or empty"

    def parsed(self, value: str) -> str:
        """The text, without blanks around it."""
        return trimmed(value)


ListKind = SomeOf | ThrottledReplicas | ClassNames
"""Kinds whose values are elements, separated by commas."""

Kind = Whole | LevelOrDefault | Fraction | Number | OneOf | Text | Flag | HostLimits | ListKind


def _parsed_list(value: str) -> str:
    return join_elements(element.strip() for element in trimmed(value).split(","))


def shown(kind: Kind, value: str) -> str:
    """A stored value as it is shown: unchanged if the kind has no such value (an older Kafka may have accepted it)."""
    return value if kind.problem(value) else kind.parsed(value)


def split_elements(value: str) -> list[str]:
    """The elements of a list, in their order, without the blanks around them; empty ones are left out."""
    return [element.strip() for element in value.split(",") if element.strip()]


def join_elements(elements: Iterable[str]) -> str:
    """The value that has these elements."""
    return ",".join(elements)
