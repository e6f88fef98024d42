"""Documents of YAML files, with the numbers and booleans of YAML 1.2, and each key of a mapping once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from kraftbase.errors import ConfigurationError
from statemachine.words.names import quoted

NESTING_MAX: Final = 50
"""The C parser's stack overflows at some ten thousand levels; no file of topics has ten."""

ALIASED_NODES_MAX: Final = 100_000
"""Each use of an alias counts all its values: 1 KB of aliases of aliases, or of merges of merges, yields 2^60."""


class Number(str):
    """A number that is not whole, as in the file."""

    __slots__ = ()


class _DuplicateKey(yaml.MarkedYAMLError):
    """A mapping has a key twice."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The safe loader, in C where that was built: with the scalars of YAML 1.2, and each key of a mapping once."""

    yaml_implicit_resolvers: Final[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}

    def __init__(self, stream: bytes) -> None:
        super().__init__(stream)
        self._checked: set[yaml.MappingNode] = set()

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Add the merged keys (`<<`) to the mapping, as the safe loader does; refuse a key that the mapping itself has
        twice.
        """
        if node not in self._checked:
            self._checked.add(node)
            seen: set[str] = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    continue  # not a string, which is refused later
                if key.value in seen:
                    raise _DuplicateKey(problem=f"{quoted(key.value)} appears twice", problem_mark=key.start_mark)
                seen.add(key.value)
        super().flatten_mapping(node)


for _tag, _pattern, _first in (
    ("null", r"(~|null|Null|NULL|)\Z", ["~", "n", "N", ""]),
    ("bool", r"(true|True|TRUE|false|False|FALSE)\Z", list("tTfF")),
    ("int", r"[-+]?[0-9]{1,19}\Z", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z", list("-+.0123456789")),
    ("merge", r"<<\Z", ["<"]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)
# The safe loader's own scalars read a leading 0 as octal and know only some of the notations of a float.
_Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(loader.construct_scalar(node)))
# A float stays the original string, which is the value of the config.
_Loader.add_constructor("tag:yaml.org,2002:float", lambda loader, node: Number(loader.construct_scalar(node)))


def documents(content: bytes, name: str) -> Iterator[tuple[str, Any]]:
    """Each document that is not empty, and where it is: file and document, counted from 1.

    Raises ConfigurationError for content that is not YAML, a key that appears twice, too deep nesting, and aliases that
    stand for too much.
    """
    _check_expansion(content, name)
    number = 1
    loader = _Loader(content)
    try:
        while loader.check_data():
            document = loader.get_data()
            if document is not None:
                yield f"{name}, document {number}", document
            number += 1
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{name}, document {number}: {_yaml_problem(error)}; correct the file") from None
    except ValueError as error:
        raise ConfigurationError(f"{name}, document {number}: {error}; correct the file") from None
    finally:
        loader.dispose()


def _check_expansion(content: bytes, name: str) -> None:
    """Raise ConfigurationError if a document is nested too deeply, or its aliases stand for too much."""
    found = _Expansion()
    try:
        for event in yaml.parse(content, Loader=_Loader):
            found.take(event)
            if found.height > NESTING_MAX:
                raise ConfigurationError(f"{name}: it is nested more than {NESTING_MAX} levels; correct the file")
            if found.aliased_count > ALIASED_NODES_MAX:
                raise ConfigurationError(
                    f"{name}: its aliases (*) stand for more than {ALIASED_NODES_MAX} values; write them out"
                )
    except yaml.YAMLError:
        return  # reported with its document later


class _Collection:
    """A list or mapping that is being read: its anchor, and its nodes and levels with its aliases expanded."""

    def __init__(self, anchor: str | None) -> None:
        self.anchor = anchor
        self.node_count = 1
        self.height = 1


class _Expansion:
    """How large a document is with each alias expanded, event by event."""

    def __init__(self) -> None:
        self.aliased_count = 0
        """Nodes that replace aliases, in all documents."""
        self.height = 0
        """Levels down to the deepest node of the last event."""
        self._open: list[_Collection] = []
        self._anchored: dict[str, _Collection] = {}

    def take(self, event: yaml.Event) -> None:
        """Count one event."""
        if isinstance(event, yaml.DocumentStartEvent):
            self._anchored.clear()
        elif isinstance(event, yaml.CollectionStartEvent):
            self._open.append(_Collection(event.anchor))
            self.height = len(self._open)
        elif isinstance(event, yaml.CollectionEndEvent):
            closed = self._open.pop()
            if closed.anchor is not None:
                self._anchored[closed.anchor] = closed
            self._add(closed.node_count, closed.height)
        elif isinstance(event, yaml.AliasEvent):
            self._take_alias(event)
        elif isinstance(event, yaml.ScalarEvent):
            self._add(1, 0)

    def _take_alias(self, event: yaml.AliasEvent) -> None:
        if any(collection.anchor == event.anchor for collection in self._open):
            self.height = NESTING_MAX + 1  # the alias is inside its own anchor: it expands without end
            return
        named = self._anchored.get(event.anchor or "")
        node_count, height = (named.node_count, named.height) if named is not None else (1, 0)
        self.aliased_count += node_count
        self.height = len(self._open) + height
        self._add(node_count, height)

    def _add(self, node_count: int, height: int) -> None:
        """A node has ended in the collection that is read."""
        if self._open:
            self._open[-1].node_count += node_count
            self._open[-1].height = max(self._open[-1].height, 1 + height)


def _yaml_problem(error: yaml.YAMLError) -> str:
    if not isinstance(error, yaml.MarkedYAMLError):
        return f"it is not YAML: {error}"
    mark = error.problem_mark or error.context_mark
    at = f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
    problem = error.problem or error.context or "it cannot be parsed"
    return f"{problem}{at}" if isinstance(error, _DuplicateKey) else f"it is not YAML: {problem}{at}"
