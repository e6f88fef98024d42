"""Topics as files: YAML with one document or several, each in one of two forms.

Our own names any number of topics:

    topics:
      - name: clicks
        partitions: 6
        replication_factor: 3
        configs: {retention.ms: 3600000}

Strimzi's is one topic, as `kubectl get kafkatopic clicks -o yaml` prints it: kind KafkaTopic, and spec with partitions,
replicas, config and, where it is not metadata.name, topicName. Or a list of them, as `kubectl get kafkatopic -o yaml`
prints it: kind List or KafkaTopicList, with items. A topic whose annotation says that it is not managed is not changed.

A property that is left out is not changed, and is the cluster's default in a new topic. If configs are given, the topic
will have these and no others. Numbers and booleans are those of YAML 1.2: `0:101` is a string and `on` is no boolean.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from kraftbase.errors import ApiError, ConfigurationError
from kraftlog.commands.input_files import read_input_file
from kraftlog.commands.yaml_documents import Number, documents
from statemachine.words.names import check_topic_name, quoted

STANDARD_INPUT: Final = Path("-")

INT32_MAX: Final = 2**31 - 1
INT16_MAX: Final = 2**15 - 1

STRIMZI_KIND: Final = "KafkaTopic"
STRIMZI_GROUP: Final = "kafka.strimzi.io/"
LIST_GROUPS: Final = {"List": "", f"{STRIMZI_KIND}List": STRIMZI_GROUP}
"""The group of a list, by its kind: the part of apiVersion before the version."""
UNMANAGED: Final = "strimzi.io/managed"
"""The annotation that makes Strimzi's operator leave a topic alone."""

_OWN_FIELDS: Final = ("topics",)
_OWN_TOPIC_FIELDS: Final = ("name", "partitions", "replication_factor", "configs")
_STRIMZI_FIELDS: Final = ("apiVersion", "kind", "metadata", "spec", "status")
_LIST_FIELDS: Final = ("apiVersion", "kind", "metadata", "items")
_STRIMZI_SPEC_FIELDS: Final = ("topicName", "partitions", "replicas", "config")

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class WantedTopic:
    """A topic as a file defines it; None leaves a property unchanged."""

    name: str
    num_partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str] | None = None
    """All configs that the topic will have."""
    place: str = ""
    """Where it is defined, for messages: file and document."""
    is_managed: bool = True
    """Whether it may be changed; a topic that may not is not deleted either."""


def read_topic_file(path: Path) -> list[WantedTopic]:
    """The topics that a file, or standard input (`-`), defines, in its order.

    Raises ConfigurationError that names the document (counted from 1), the topic and the field.
    """
    if path == STANDARD_INPUT:
        return parse_topic_file(sys.stdin.buffer.read(), "standard input")
    return parse_topic_file(read_input_file(path, "a YAML file with topics"), str(path))


def parse_topic_file(content: bytes, name: str) -> list[WantedTopic]:
    """The topics that `content`, of the file `name`, defines: see `read_topic_file`."""
    topics: dict[str, WantedTopic] = {}
    for place, document in documents(content, name):
        for topic in _topics_of(document, place):
            if topic.name in topics:
                before = topics[topic.name].place
                raise ConfigurationError(
                    f"{topic.place}, topic {quoted(topic.name)}: the topic is also in {before}; keep one of them"
                )
            topics[topic.name] = topic
    return list(topics.values())


# --- documents --------------------------------------------------------------------------------------------------------


def _topics_of(document: Any, place: str) -> Iterator[WantedTopic]:
    fields = _mapping(document, place)
    if _is_list(fields):
        yield from _listed_topics(fields, place)
        return
    if "kind" in fields or "apiVersion" in fields:
        yield _strimzi_topic(fields, place)
        return
    _check_known(fields, _OWN_FIELDS, place)
    if "topics" not in fields:
        _refuse(place, f"it names no topics; write topics: with a list, or a {STRIMZI_KIND} of Strimzi's")
    topics = fields["topics"]
    if not isinstance(topics, list):
        _refuse(f"{place}, topics", f"{_shown(topics)} is not a list; write one topic per item")
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
    _check_version(fields, STRIMZI_GROUP, place)
    metadata = _mapping(fields.get("metadata"), f"{place}, metadata")
    is_managed = _is_managed(metadata)
    spec = _mapping(fields.get("spec", None if is_managed else {}), f"{place}, spec")
    named_by = "spec.topicName" if "topicName" in spec else "metadata.name"
    name = _name(spec.get("topicName", metadata.get("name")), f"{place}, {named_by}")
    if not is_managed:
        return WantedTopic(name, place=place, is_managed=False)
    topic = f"{place}, topic {quoted(name)}"
    _check_known(spec, _STRIMZI_SPEC_FIELDS, topic, "spec.")
    return WantedTopic(
        name,
        num_partitions=_optional(spec, "partitions", topic, _count(INT32_MAX), "spec."),
        replication_factor=_optional(spec, "replicas", topic, _count(INT16_MAX), "spec."),
        configs=_optional(spec, "config", topic, _configs, "spec."),
        place=place,
    )


def _is_list(fields: Mapping[str, Any]) -> bool:
    return any(fields.get("kind") == kind for kind in LIST_GROUPS)


def _listed_topics(fields: Mapping[str, Any], place: str) -> Iterator[WantedTopic]:
    _check_known(fields, _LIST_FIELDS, place)
    _check_version(fields, LIST_GROUPS[fields["kind"]], place)
    items = fields.get("items")
    if not isinstance(items, list):
        _refuse(f"{place}, items", f"{_shown(items)} is not a list; write one {STRIMZI_KIND} per item")
    for number, item in enumerate(items, 1):
        yield _strimzi_topic(_mapping(item, f"{place}, item {number}"), f"{place}, item {number}")


def _check_version(fields: Mapping[str, Any], group: str, place: str) -> None:
    version = fields.get("apiVersion")
    if not isinstance(version, str) or not version.startswith(f"{group}v"):
        whose = "Strimzi's" if group else f"that of a {fields['kind']}"
        _refuse(f"{place}, apiVersion", f"{_shown(version)} is not {whose}; write {group}v1")


def _is_managed(metadata: Mapping[str, Any]) -> bool:
    annotations = metadata.get("annotations")
    return not (isinstance(annotations, dict) and str(annotations.get(UNMANAGED, "true")).lower() == "false")


# --- fields -----------------------------------------------------------------------------------------------------------


def _mapping(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        _refuse(place, f"{_shown(value)} is not a mapping; write fields and their values")
    strange = next((key for key in value if not isinstance(key, str)), None)
    if strange is not None:
        _refuse(place, f"the field {_shown(strange)} is not a string; put it in quotes if it is meant")
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
        missing = "missing; give the topic a name"
        _refuse(place, missing if value is None else f"{_shown(value)} is not a string; put it in quotes")
    try:
        check_topic_name(value)
    except ApiError as error:
        _refuse(place, error.args[0])
    return value


def _count(most: int) -> Callable[[Any, str], int]:
    def parse(value: Any, place: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            _refuse(
                place,
                f"{_shown(value)} is not a whole number from 1 to {most}; write one, or leave the field out for the"
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
    _refuse(place, f"{_shown(value)} is not a value of a config; write a string, a number, true or false, or a list")


def _shown(value: Any) -> str:
    match value:
        case None:
            return "null"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case Number():
            return quoted(str(value))[1:-1]
        case str():
            return quoted(value)
        case bool():
            return str(value).lower()
        case _:
            return str(value)


def _refuse(place: str, reason: str) -> NoReturn:
    raise ConfigurationError(f"{place}: {reason}")
