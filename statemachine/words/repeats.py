"""Whether a request names something more than once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, KeysView
from typing import TypeVar

T = TypeVar("T")


def repeats(values: Iterable[T]) -> KeysView[T]:
    """The values that occur more than once, by first occurrence: answers must not depend on hashes."""
    return {value: occurrences for value, occurrences in Counter(values).items() if occurrences > 1}.keys()
