"""The JSON of kafka-leader-election and of kafka-reassign-partitions: partitions, assignments, topics to move.

    {"partitions": [{"topic": "clicks", "partition": 0}]}
    {"version": 1, "partitions": [{"topic": "clicks", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]}]}
    {"version": 1, "topics": [{"topic": "clicks"}]}

Unlike in Kafka's tools, an unknown key is refused: the user expects it to have an effect. Every reading function raises
ConfigurationError, which names the file, the fault and what to write.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kraftbase.errors import ApiError, ConfigurationError
from kraftbase.partition import TopicPartition
from kraftlog.commands.input_files import read_input_file
from kraftlog.config.endpoints import NODE_ID_MAX
from statemachine.words.names import check_topic_name, quoted

VERSION: Final = 1
ANY_DIRECTORY: Final = "any"
"""Kafka's word for leaving the choice to the broker."""
PARTITION_ID_MAX: Final = 2**31 - 1

_TOPIC_KEYS: Final = ("topic",)
_ELECTION_KEYS: Final = ("topic", "partition")
_REASSIGNMENT_KEYS: Final = ("topic", "partition", "replicas", "log_dirs")


def read_election(path: Path) -> list[TopicPartition]:
    """The partitions that a file for an election names, each once."""
    return [at for at, _ in _partitions(path, _ELECTION_KEYS)]


def read_reassignment(path: Path) -> dict[TopicPartition, list[int]]:
    """The replicas that a file gives each partition, the preferred leader first."""
    replicas = {}
    for at, entry in _partitions(path, _REASSIGNMENT_KEYS):
        what = f"{path}: partition {at.partition_id} of topic {quoted(at.topic)}"
        replicas[at] = _replicas(what, entry)
        _check_directories(what, entry, len(replicas[at]))
    return replicas


def read_topics(path: Path) -> list[str]:
    """The topics that a file names to be moved, each once."""
    topics: list[str] = []
    for where, value in _entries(path, "topics"):
        name = _topic(where, _object(where, value, _TOPIC_KEYS))
        if name in topics:
            raise ConfigurationError(f"{path}: topic {quoted(name)} appears twice; keep one of them")
        topics.append(name)
    return topics


def reassignment_json(replicas: Mapping[TopicPartition, Sequence[int]]) -> dict[str, Any]:
    """The JSON that `read_reassignment` and kafka-reassign-partitions read, by topic and partition."""
    return {
        "version": VERSION,
        "partitions": [
            {
                "topic": at.topic,
                "partition": at.partition_id,
                "replicas": list(brokers),
                "log_dirs": [ANY_DIRECTORY] * len(brokers),
            }
            for at, brokers in sorted(replicas.items())
        ],
    }


def _partitions(path: Path, keys: Sequence[str]) -> Iterator[tuple[TopicPartition, dict[str, Any]]]:
    """Each partition of a file with all its fields. At least one."""
    seen: set[TopicPartition] = set()
    for where, value in _entries(path, "partitions"):
        entry = _object(where, value, keys)
        at = TopicPartition(_topic(where, entry), _number(where, entry.get("partition"), "partition", PARTITION_ID_MAX))
        if at in seen:
            raise ConfigurationError(
                f"{path}: partition {at.partition_id} of topic {quoted(at.topic)} appears twice; keep one of them"
            )
        seen.add(at)
        yield at, entry


def _entries(path: Path, key: str) -> Iterator[tuple[str, Any]]:
    """The entries, at least one, that a file lists under `key`, each with its place for messages."""
    content = _object(f"{path}", _parsed(path, key), ("version", key))
    version = content.get("version", VERSION)
    if version is True or version != VERSION:
        raise ConfigurationError(f"{path}: the version is {_shown(version)}; only {VERSION} can be read")
    entries = content.get(key)
    if not isinstance(entries, list) or not entries:
        raise ConfigurationError(f'{path}: there are no {key}: "{key}" is {_shown(entries)}; list them there')
    for number, value in enumerate(entries, 1):
        yield f"{path}: number {number} of the {key}", value


def _parsed(path: Path, key: str) -> Any:
    content = read_input_file(path, f'a JSON file with "{key}"')
    try:
        return json.loads(content.decode("utf-8-sig"))  # editors of Windows begin a file with a byte order mark
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise ConfigurationError(
            f'{path}: it is not JSON: {error}; write {{"version": {VERSION}, "{key}": [...]}}, as Kafka\'s tools do'
        ) from None


def _object(where: str, value: Any, keys: Sequence[str]) -> dict[str, Any]:
    """`value`, which must be an object with no other keys."""
    if not isinstance(value, dict):
        raise ConfigurationError(f"{where}: {_shown(value)} is not an object; write {{...}} with {_listed(keys)}")
    for key in value:
        if "throttle" in key.lower():
            raise ConfigurationError(
                f"{where}: {quoted(key)} asks for a throttle, which kraftlog does not have; leave the key out"
            )
        if key not in keys:
            raise ConfigurationError(f"{where}: {quoted(key)} is not a known key; use {_listed(keys)}")
    return value


def _topic(where: str, entry: Mapping[str, Any]) -> str:
    name = entry.get("topic")
    if not isinstance(name, str):
        raise ConfigurationError(f'{where}: the topic is {_shown(name)}; write its name, as in "topic": "clicks"')
    try:
        check_topic_name(name)
    except ApiError as error:
        raise ConfigurationError(f"{where}: {error.args[0]}") from None
    return name


def _replicas(what: str, entry: Mapping[str, Any]) -> list[int]:
    brokers = entry.get("replicas")
    if not isinstance(brokers, list) or not brokers:
        raise ConfigurationError(f'{what}: it has no replicas; list its brokers, as in "replicas": [1, 2]')
    replicas = [_number(what, broker, "replica", NODE_ID_MAX) for broker in brokers]
    repeated = next((broker for broker in replicas if replicas.count(broker) > 1), None)
    if repeated is not None:
        raise ConfigurationError(f"{what}: broker {repeated} appears more than once; name each broker once")
    return replicas


def _check_directories(what: str, entry: Mapping[str, Any], num_replicas: int) -> None:
    """Only "any" is accepted, which leaves the directory to the broker."""
    directories = entry.get("log_dirs", [ANY_DIRECTORY] * num_replicas)
    if not isinstance(directories, list) or len(directories) != num_replicas:
        raise ConfigurationError(
            f'{what}: the log_dirs are {_shown(directories)}; write "{ANY_DIRECTORY}" for each replica, or leave them'
            " out"
        )
    for directory in directories:
        if directory != ANY_DIRECTORY:
            raise ConfigurationError(
                f"{what}: a log directory cannot be chosen for a replica, but log_dirs has {_shown(directory)}; write"
                f' "{ANY_DIRECTORY}", and the broker chooses'
            )


def _number(where: str, value: Any, name: str, maximum: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= maximum:
        raise ConfigurationError(f"{where}: the {name} is {_shown(value)}; write a whole number from 0 to {maximum}")
    return value


def _shown(value: Any) -> str:
    return "missing" if value is None else quoted(json.dumps(value))


def _listed(keys: Sequence[str]) -> str:
    return ", ".join(f'"{key}"' for key in keys)
