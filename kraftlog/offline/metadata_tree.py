"""The metadata as a tree of directories and files (OT-12), over a read-only connection to a metadata database.

    /applied/{endOffset,epoch,timestamp,digest}     what is applied; also, if set, stateDigestEndOffset,
                                                    stateDigest and diverged (docs/formats/metadata.md)
    /brokers/<id>/{registration,isFenced,inControlledShutdown}
    /cluster/id
    /configs/brokers/<id or "default">/<key>        the value
    /configs/topics/<name>/<key>                    also of a topic that does not exist
    /topicIds/<id>                                  the name
    /topics/<name>/id
    /topics/<name>/partitions/<number>              a JSON object in the words of Kafka's PartitionRecord
    /topics/<name>/configs/<key>

The names are those of Kafka's kafka-metadata-shell where it has them; its `image/` and `local/` are left out, for there
is nothing else here. Nothing is read before it is needed, and directories are listed row by row.

Names of topics and configs are arbitrary text. Every listed name can be typed or pasted in a path: unprintable
characters, `%`, and those with a meaning in a path or a command (`/`, blanks, quotes, the backslash and `*?[]{}`) are
percent-encoded as in a URL; so is a name that is `.`, `..` or that stands for something else, and an empty one is `%`.
In the content of files, an unprintable character is a backslash and a code.
"""

from __future__ import annotations

import fnmatch
import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import unquote_to_bytes

from statemachine.words.resources import CLUSTER_DEFAULT, ResourceType

DEFAULT_BROKER: Final = "default"
"""The directory of the configs of all brokers."""

_EMPTY_NAME: Final = "%"
_GLOB: Final = re.compile(r"[*?\[]")
_ENCODED: Final = frozenset("%/*?[]{}'\"\\")
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,17}", re.ASCII)


class Directory(Protocol):
    """Names, each of a file or a directory."""

    def entries(self) -> Iterator[tuple[str, Node]]:
        """All names, in order, read as they are consumed."""
        ...

    def entry(self, name: str) -> Node | None:
        """The entry of that name; None if it does not exist."""
        ...

    def count(self) -> int:
        """How many there are."""
        ...


@dataclass(frozen=True, slots=True)
class File:
    """Something with content."""

    read: Callable[[], str]
    """Reads the content, of one line or more, without the end of the last line; all of it is printable."""


Node: TypeAlias = "Directory | File"

Path: TypeAlias = tuple[str, ...]
"""The names from the root on."""


def root(connection: sqlite3.Connection) -> Directory:
    """The root of the tree over a database; consistent as long as a read transaction is open."""
    by_id = "SELECT name FROM topics WHERE topic_id = ?"
    brokers = _resources(connection, ResourceType.BROKER, _BROKER_NAMES)
    topics = _resources(connection, ResourceType.TOPIC, _TEXTS)
    return _Fixed(
        {
            "applied": _applied(connection),
            "brokers": _Rows(connection, "brokers", "broker_id", _INTEGERS, lambda key: _broker(connection, key)),
            "cluster": _Fixed({"id": _value(connection, "SELECT cluster_id FROM applied")}),
            "configs": _Fixed({"brokers": brokers, "topics": topics}),
            "topicIds": _Rows(connection, "topics", "topic_id", _TEXTS, lambda key: _value(connection, by_id, key)),
            "topics": _Rows(connection, "topics", "name", _TEXTS, lambda key: _topic(connection, key)),
        }
    )


def walk(node: Node, wanted: Path, path: Path = ()) -> Iterator[tuple[Path, Node]]:
    """The entries that `wanted`, names or patterns with `*`, `?`, `[...]`, selects from `node` at `path`, in order."""
    if not wanted:
        yield path, node
    elif not isinstance(node, File):
        for name, below in _entries_like(node, wanted[0]):
            yield from walk(below, wanted[1:], (*path, name))


def _entries_like(directory: Directory, pattern: str) -> Iterator[tuple[str, Node]]:
    if _GLOB.search(pattern):
        is_like = re.compile(fnmatch.translate(pattern)).match
        yield from (entry for entry in directory.entries() if is_like(entry[0]))
    elif (node := directory.entry(pattern)) is not None:
        yield pattern, node


# --- names ------------------------------------------------------------------------------------------------------------


def encode_name(text: str) -> str:
    """`text` as a name in a path."""
    if text in (".", ".."):
        return text.replace(".", "%2E")
    return "".join(_encoded(one) if _is_special(one) else one for one in text) or _EMPTY_NAME


def decode_name(name: str) -> str | None:
    """The text that `encode_name` encodes as `name`; None if there is none."""
    try:
        text = "" if name == _EMPTY_NAME else unquote_to_bytes(name).decode("utf-8")
    except UnicodeError:
        return None
    return text if encode_name(text) == name else None


def printable(text: str) -> str:
    """`text` with a backslash and a code for everything that cannot be printed: ends of lines, too."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def _is_special(one: str) -> bool:
    return one in _ENCODED or one.isspace() or not one.isprintable()


def _encoded(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode("utf-8"))


@dataclass(frozen=True, slots=True)
class _Names:
    """How the keys of rows are written as names."""

    encode: Callable[[Any], str]
    decode: Callable[[str], Any]
    """None for a name that is not the encoding of a key."""


def _decode_integer(name: str) -> int | None:
    return int(name) if _INTEGER.fullmatch(name) else None


def _encode_broker_name(text: str) -> str:
    if text == CLUSTER_DEFAULT:
        return DEFAULT_BROKER
    return _encoded(text[0]) + text[1:] if text == DEFAULT_BROKER else encode_name(text)


def _decode_broker_name(name: str) -> str | None:
    if name == DEFAULT_BROKER:
        return CLUSTER_DEFAULT
    text = DEFAULT_BROKER if name == _encode_broker_name(DEFAULT_BROKER) else decode_name(name)
    return text or None  # nothing else is the default's name


_INTEGERS: Final = _Names(str, _decode_integer)
_TEXTS: Final = _Names(encode_name, decode_name)
_BROKER_NAMES: Final = _Names(_encode_broker_name, _decode_broker_name)
"""The keys of resources with broker configs, as text in the database."""


_APPLIED: Final = {
    "endOffset": "end_offset",
    "epoch": "epoch",
    "timestamp": "timestamp_ms",
    "digest": "digest",
    "stateDigestEndOffset": "state_digest_end_offset",
    "stateDigest": "state_digest",
    "diverged": "diverged",
}
"""Names to columns."""

_OF_TOPIC: Final = "topic_id = (SELECT topic_id FROM topics WHERE name = ?)"


# --- directories ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Fixed:
    """A directory that always has the same entries."""

    nodes: Mapping[str, Node]

    def entries(self) -> Iterator[tuple[str, Node]]:
        """See Directory."""
        return iter(sorted(self.nodes.items(), key=lambda entry: entry[0]))

    def entry(self, name: str) -> Node | None:
        """See Directory."""
        return self.nodes.get(name)

    def count(self) -> int:
        """See Directory."""
        return len(self.nodes)


@dataclass(frozen=True, slots=True)
class _Rows:
    """A directory with one entry for each value of a column, found by an index."""

    connection: sqlite3.Connection
    table: str
    key: str
    names: _Names
    node: Callable[[Any], Node]
    """Makes an entry without reading anything."""
    where: str = "1"
    parameters: tuple[object, ...] = ()

    def entries(self) -> Iterator[tuple[str, Node]]:
        """See Directory."""
        sql = f"SELECT DISTINCT {self.key} FROM {self.table} WHERE {self.where} ORDER BY {self.key}"  # noqa: S608
        for (key,) in self.connection.execute(sql, self.parameters):
            yield self.names.encode(key), self.node(key)

    def entry(self, name: str) -> Node | None:
        """See Directory."""
        key = self.names.decode(name)
        sql = f"SELECT 1 FROM {self.table} WHERE {self.where} AND {self.key} = ? LIMIT 1"  # noqa: S608
        if key is None or self.connection.execute(sql, (*self.parameters, key)).fetchone() is None:
            return None
        return self.node(key)

    def count(self) -> int:
        """See Directory."""
        sql = f"SELECT count(*) FROM (SELECT DISTINCT {self.key} FROM {self.table} WHERE {self.where})"  # noqa: S608
        found: int = self.connection.execute(sql, self.parameters).fetchone()[0]
        return found


# --- the tree ---------------------------------------------------------------------------------------------------------


def _applied(connection: sqlite3.Connection) -> Directory:
    row = connection.execute(f"SELECT {', '.join(_APPLIED.values())} FROM applied").fetchone()  # noqa: S608
    return _Fixed({name: _constant(value) for name, value in zip(_APPLIED, row, strict=True) if value is not None})


def _broker(connection: sqlite3.Connection, broker_id: int) -> Directory:
    def flag(column: str) -> File:
        sql = f"SELECT iif({column}, 'true', 'false') FROM brokers WHERE broker_id = ?"  # noqa: S608
        return _value(connection, sql, broker_id)

    return _Fixed(
        {
            "registration": File(lambda: _registration(connection, broker_id)),
            "isFenced": flag("fenced"),
            "inControlledShutdown": flag("in_controlled_shutdown"),
        }
    )


def _registration(connection: sqlite3.Connection, broker_id: int) -> str:
    epoch, incarnation_id, rack, is_fenced, is_shutting_down, listeners, log_dirs = connection.execute(
        "SELECT broker_epoch, incarnation_id, rack, fenced, in_controlled_shutdown, listeners, log_dirs FROM brokers"
        " WHERE broker_id = ?",
        (broker_id,),
    ).fetchone()
    end_points = json.loads(listeners)
    for end_point in end_points:
        end_point["securityProtocol"] = end_point.pop("security_protocol")
    return _json(
        {
            "brokerId": broker_id,
            "brokerEpoch": epoch,
            "incarnationId": incarnation_id,
            "rack": rack,
            "fenced": bool(is_fenced),
            "inControlledShutdown": bool(is_shutting_down),
            "endPoints": end_points,
            "logDirs": json.loads(log_dirs),
        }
    )


def _topic(connection: sqlite3.Connection, name: str) -> Directory:
    def partition(partition_id: int) -> File:
        return File(lambda: _partition(connection, name, partition_id))

    return _Fixed(
        {
            "id": _value(connection, "SELECT topic_id FROM topics WHERE name = ?", name),
            "partitions": _Rows(connection, "partitions", "partition_id", _INTEGERS, partition, _OF_TOPIC, (name,)),
            "configs": _configs(connection, ResourceType.TOPIC, name),
        }
    )


def _partition(connection: sqlite3.Connection, topic: str, partition_id: int) -> str:
    row = connection.execute(
        "SELECT topic_id, replicas, isr, removing_replicas, adding_replicas, leader, leader_recovery_state,"  # noqa: S608
        f" leader_epoch, partition_epoch, directories FROM partitions WHERE {_OF_TOPIC} AND partition_id = ?",
        (topic, partition_id),
    ).fetchone()
    return _json(
        {
            "partitionId": partition_id,
            "topicId": row[0],
            "replicas": json.loads(row[1]),
            "isr": json.loads(row[2]),
            "removingReplicas": json.loads(row[3]),
            "addingReplicas": json.loads(row[4]),
            "leader": row[5],
            "leaderRecoveryState": row[6],
            "leaderEpoch": row[7],
            "partitionEpoch": row[8],
            "directories": json.loads(row[9]),
        }
    )


def _resources(connection: sqlite3.Connection, resource_type: ResourceType, names: _Names) -> Directory:
    def node(name: str) -> Directory:
        return _configs(connection, resource_type, name)

    return _Rows(connection, "configs", "resource_name", names, node, "resource_type = ?", (int(resource_type),))


def _configs(connection: sqlite3.Connection, resource_type: ResourceType, resource_name: str) -> Directory:
    where, resource = "resource_type = ? AND resource_name = ?", (int(resource_type), resource_name)
    sql = f"SELECT value FROM configs WHERE {where} AND name = ?"  # noqa: S608
    return _Rows(
        connection, "configs", "name", _TEXTS, lambda key: _value(connection, sql, *resource, key), where, resource
    )


def _value(connection: sqlite3.Connection, sql: str, *parameters: object) -> File:
    """A file whose content is one column of one row."""
    return File(lambda: printable(connection.execute(sql, parameters).fetchone()[0]))


def _constant(value: object) -> File:
    return File(lambda: printable(str(value)))


def _json(fields: Mapping[str, Any]) -> str:
    """A JSON object with a line for each field. What is not ASCII is escaped."""
    return "{\n" + ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in fields.items()) + "\n}"
