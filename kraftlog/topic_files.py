"""Topics as files: YAML with one document or several, each in one of two forms.

Our own names any number of topics:

    topics:
      - name: clicks
        partitions: 6
        replication_factor: 3
        configs: {retention.ms: 3600000}

Strimzi's is one topic, as `kubectl get kafkatopic clicks -o yaml` prints it: kind KafkaTopic, and spec with partitions,
replicas, config and, where it is not metadata.name, topicName.

What is left out is left alone, and the cluster's default in a new topic. Configs that are given are all that the topic
shall have. Numbers and truth values are those of YAML 1.2: `0:101` is a text and `on` is no truth value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import yaml

from raft.core.errors import ConfigurationError, ProtocolError
from statemachine.names import check_topic_name, quoted

INT32_MAX: Final = 2**31 - 1
INT16_MAX: Final = 2**15 - 1

NESTING_MAX: Final = 50
"""The C parser has its stack overflow with some ten thousand levels; no topic has ten."""

STRIMZI_KIND: Final = "KafkaTopic"
STRIMZI_GROUP: Final = "kafka.strimzi.io/"
UNMANAGED: Final = "strimzi.io/managed"
"""The annotation by which Strimzi's operator is told to leave a topic alone."""

_OWN_FIELDS: Final = ("topics",)
_OWN_TOPIC_FIELDS: Final = ("name", "partitions", "replication_factor", "configs")
_STRIMZI_FIELDS: Final = ("apiVersion", "kind", "metadata", "spec", "status")
_STRIMZI_SPEC_FIELDS: Final = ("topicName", "partitions", "replicas", "config")

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class WantedTopic:
    """A topic as a file wants it; None leaves a property alone."""

    name: str
    num_partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str] | None = None
    """All that shall be set."""
    place: str = ""
    """Where it is written, for messages: file and document."""


def read_topic_file(path: Path) -> list[WantedTopic]:
    """The topics that a file wants, in its order.

    Raises ConfigurationError that names the document (counted from 1), the topic and the field.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ConfigurationError(f"there is no file {path}; give the path of a YAML file with topics") from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read ({error.strerror}); check the path and its rights") from None
    return parse_topic_file(content, str(path))


def parse_topic_file(content: bytes, name: str) -> list[WantedTopic]:
    """The topics that `content`, of the file `name`, wants: see `read_topic_file`."""
    topics: dict[str, WantedTopic] = {}
    for place, document in _documents(content, name):
        for topic in _topics_of(document, place):
            if topic.name in topics:
                before = topics[topic.name].place
                raise ConfigurationError(
                    f"{place}, topic {quoted(topic.name)}: it was named before, in {before}; keep one of them"
                )
            topics[topic.name] = topic
    return list(topics.values())


# --- YAML -------------------------------------------------------------------------------------------------------------


class _DuplicateKey(yaml.MarkedYAMLError):
    """A mapping has a key twice."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The safe loader, in C where that was built: with the scalars of YAML 1.2, and each key of a mapping once."""

    yaml_implicit_resolvers: Final[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}

    def __init__(self, stream: bytes) -> None:
        super().__init__(stream)
        self._checked: set[yaml.MappingNode] = set()

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Take in what the mapping merges (`<<`), as the safe loader does; refuse a key that it has twice itself."""
        if node not in self._checked:
            self._checked.add(node)
            seen: set[str] = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    continue  # no text, which is refused later on
                if key.value in seen:
                    raise _DuplicateKey(problem=f"{quoted(key.value)} is there twice", problem_mark=key.start_mark)
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
# The safe loader's own take a leading 0 for octal and read only some of the notations of a float.
_Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(loader.construct_scalar(node)))
# A float stays the text that it was, which is how a config says it.
_Loader.add_constructor("tag:yaml.org,2002:float", lambda loader, node: _Number(loader.construct_scalar(node)))


class _Number(str):
    """A number that is not whole, as it was written."""

    __slots__ = ()


def _documents(content: bytes, name: str) -> Iterator[tuple[str, Any]]:
    """Each document that is not empty, and where it is."""
    _check_nesting(content, name)
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


def _check_nesting(content: bytes, name: str) -> None:
    """Raise ConfigurationError if lists and mappings are nested so deeply that nobody could read them."""
    depth = 0
    try:
        for event in yaml.parse(content, Loader=_Loader):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > NESTING_MAX:
                raise ConfigurationError(f"{name}: it is nested more than {NESTING_MAX} levels; correct the file")
    except yaml.YAMLError:
        return  # told with the document where it is


def _yaml_problem(error: yaml.YAMLError) -> str:
    if not isinstance(error, yaml.MarkedYAMLError):
        return f"it is no YAML: {error}"
    mark = error.problem_mark or error.context_mark
    at = f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
    problem = error.problem or error.context or "it cannot be parsed"
    return f"{problem}{at}" if isinstance(error, _DuplicateKey) else f"it is no YAML: {problem}{at}"


# --- documents --------------------------------------------------------------------------------------------------------


def _topics_of(document: Any, place: str) -> Iterator[WantedTopic]:
    fields = _mapping(document, place)
    if "kind" in fields or "apiVersion" in fields:
        yield _strimzi_topic(fields, place)
        return
    _check_known(fields, _OWN_FIELDS, place)
    if "topics" not in fields:
        _refuse(place, f"it names no topics; write topics: with a list, or a {STRIMZI_KIND} of Strimzi's")
    topics = fields["topics"]
    if not isinstance(topics, list):
        _refuse(f"{place}, topics", f"{_shown(topics)} is no list; write one topic per item")
    for number, topic in enumerate(topics, 1):
        yield _own_topic(topic, number, place)


def _own_topic(value: Any, number: int, place: str) -> WantedTopic:
    fields = _mapping(value, f"{place}, topic {number}")
    if "name" not in fields:
        _check_known(fields, _OWN_TOPIC_FIELDS, f"{place}, topic {number}")
    name = _name(fields.get("name"), f"{place}, topic {number}, name")
    topic = f"{place}, topic {quoted(name)}"
    _check_known(fields, _OWN_TOPIC_FIELDS, topic)
    return WantedTopic(
        name,
        num_partitions=_optional(fields, "partitions", topic, _count(INT32_MAX)),
        replication_factor=_optional(fields, "replication_factor", topic, _count(INT16_MAX)),
        configs=_optional(fields, "configs", topic, _configs),
        place=place,
    )


def _strimzi_topic(fields: Mapping[str, Any], place: str) -> WantedTopic:
    _check_known(fields, _STRIMZI_FIELDS, place)
    if fields.get("kind") != STRIMZI_KIND:
        _refuse(f"{place}, kind", f"{_shown(fields.get('kind'))} is not {STRIMZI_KIND}; leave other kinds out")
    version = fields.get("apiVersion")
    if not isinstance(version, str) or not version.startswith(STRIMZI_GROUP):
        _refuse(f"{place}, apiVersion", f"{_shown(version)} is not Strimzi's; write {STRIMZI_GROUP}v1")
    metadata = _mapping(fields.get("metadata"), f"{place}, metadata")
    spec = _mapping(fields.get("spec"), f"{place}, spec")
    named_by = "spec.topicName" if "topicName" in spec else "metadata.name"
    name = _name(spec.get("topicName", metadata.get("name")), f"{place}, {named_by}")
    topic = f"{place}, topic {quoted(name)}"
    _check_managed(metadata, topic)
    _check_known(spec, _STRIMZI_SPEC_FIELDS, topic, "spec.")
    return WantedTopic(
        name,
        num_partitions=_optional(spec, "partitions", topic, _count(INT32_MAX), "spec."),
        replication_factor=_optional(spec, "replicas", topic, _count(INT16_MAX), "spec."),
        configs=_optional(spec, "config", topic, _configs, "spec."),
        place=place,
    )


def _check_managed(metadata: Mapping[str, Any], topic: str) -> None:
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict) and str(annotations.get(UNMANAGED, "true")).lower() == "false":
        _refuse(
            f"{topic}, metadata.annotations",
            f"{UNMANAGED} is false, so nobody may change it by this document; leave the document out",
        )


# --- fields -----------------------------------------------------------------------------------------------------------


def _mapping(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        _refuse(place, f"{_shown(value)} is no mapping; write fields and their values")
    strange = next((key for key in value if not isinstance(key, str)), None)
    if strange is not None:
        _refuse(place, f"the field {_shown(strange)} is no text; put it in quotes if it is meant")
    return value


def _check_known(fields: Mapping[str, Any], known: tuple[str, ...], place: str, path: str = "") -> None:
    unknown = next((field for field in fields if field not in known), None)
    if unknown is not None:
        _refuse(place, f"there is no field {quoted(path + unknown)}; there are {', '.join(path + of for of in known)}")


def _optional(
    fields: Mapping[str, Any], field: str, place: str, parse: Callable[[Any, str], Value], path: str = ""
) -> Value | None:
    return parse(fields[field], f"{place}, {path}{field}") if field in fields else None


def _name(value: Any, place: str) -> str:
    if type(value) is not str:
        missing = "it is missing; give the topic a name"
        _refuse(place, missing if value is None else f"{_shown(value)} is no text; put it in quotes")
    try:
        check_topic_name(value)
    except ProtocolError as error:
        _refuse(place, error.args[0])
    return value


def _count(most: int) -> Callable[[Any, str], int]:
    def parse(value: Any, place: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            _refuse(
                place,
                f"{_shown(value)} is no whole number from 1 to {most}; write one, or leave the field out for the"
                " cluster's default",
            )
        return value

    return parse


def _configs(value: Any, place: str) -> dict[str, str]:
    return {key: _config_value(of, f"{place}, {key}") for key, of in _mapping(value, place).items()}


def _config_value(value: Any, place: str) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str() | int():
            return str(value)
        case list():
            if not any(isinstance(element, list) for element in value):
                return ",".join(_config_value(element, place) for element in value)
    _refuse(place, f"{_shown(value)} is no value of a config; write a text, a number, true or false, or a list of them")


def _shown(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case _Number():
            return quoted(str(value))[1:-1]
        case str():
            return quoted(value)
        case bool():
            return str(value).lower()
        case _:
            return str(value)


def _refuse(place: str, reason: str) -> NoReturn:
    raise ConfigurationError(f"{place}: {reason}")
