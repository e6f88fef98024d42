"""The small files in a directory of Kafka's log.dirs: the node that wrote it, its vote, where its epochs begin.

    meta.properties                                  cluster, node and directory, as Java properties
    __cluster_metadata-0/quorum-state                the epoch, its leader, and the vote in it: one line of JSON
    __cluster_metadata-0/leader-epoch-checkpoint     version, count, and a line "epoch start-offset" each
    __cluster_metadata-0/partition.metadata          the id of the topic, "topic_id: AAAAAAAAAAAAAAAAAAAAAQ"

Each function raises StorageError with the file's path, what is wrong with it and what to do.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

from kraftbase.errors import StorageError

METADATA_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
SMALL_FILE_BYTES_MAX: Final = 16 * 1024 * 1024
"""More bytes than any of these files has: an epoch takes 20."""

COPY_AGAIN: Final = "copy the directory again"
NEWER: Final = "it may be of a newer Kafka than 4.3; read it with a newer kraftlog"

_META_VERSIONS: Final = ("0", "1")
_QUORUM_STATE_VERSIONS: Final = (0, 1)
_NO_DIRECTORY_ID: Final = "A" * 22
_PROPERTY: Final = re.compile(r"\s*([^#!=:\s][^=:\s]*)\s*[=:\s]\s*(.*?)\s*")


class KafkaIdentity(NamedTuple):
    """The owner of the directory."""

    cluster_id: str
    node_id: int
    directory_id: str | None
    """None before Kafka 3.7."""


class KafkaQuorumState(NamedTuple):
    """The election state of a node."""

    data_version: int
    """1: the voters are in the log (KIP-853); 0: they are in each node's configuration, and here."""
    leader_epoch: int
    leader_id: int
    """-1: not known."""
    voted_id: int
    """-1: no vote in this epoch."""
    voted_directory_id: str | None
    voter_ids: tuple[int, ...] | None
    """Of version 0; None in version 1."""


class EpochStart(NamedTuple):
    """Where in the log an epoch begins."""

    epoch: int
    start_offset: int


def read_identity(path: Path) -> KafkaIdentity:
    """What is in meta.properties."""
    lines = map(_PROPERTY.fullmatch, _text(path).splitlines())
    properties = {line[1]: line[2].replace("\\:", ":").replace("\\=", "=") for line in lines if line}
    version = properties.get("version", "0")
    if version not in _META_VERSIONS:
        raise StorageError(f"{path} has version {version}, and 0 and 1 are known; {NEWER}")
    cluster_id = properties.get("cluster.id", "")
    node_id = properties.get("node.id", properties.get("broker.id", ""))
    if not cluster_id or not node_id.isascii() or not node_id.isdigit():
        raise StorageError(
            f"{path} does not name a cluster and a node (cluster.id is {cluster_id!r}, node.id {node_id!r}):"
            " it is not Kafka's; name one of its log.dirs, or the metadata.log.dir"
        )
    return KafkaIdentity(cluster_id, int(node_id), properties.get("directory.id"))


def read_quorum_state(path: Path) -> KafkaQuorumState:
    """What is in quorum-state, of either version."""
    fields = _json_object(path)
    version = fields.get("data_version")
    if type(version) is int and version not in _QUORUM_STATE_VERSIONS:
        raise StorageError(f"{path} has data_version {version}, and 0 and 1 are known; {NEWER}")
    numbers = {name: fields.get(name) for name in ("data_version", "leaderEpoch", "leaderId", "votedId")}
    for name, value in numbers.items():
        if type(value) is not int:
            raise StorageError(f"{path} has {name} {value!r}, which is not a number; {COPY_AGAIN}")
    voters = fields.get("currentVoters") if version == 0 else None
    try:
        voter_ids = None if voters is None else tuple(int(voter["voterId"]) for voter in voters)
    except (TypeError, KeyError, ValueError):
        raise StorageError(f"{path} has currentVoters that are not a list of voters; {COPY_AGAIN}") from None
    directory_id = fields.get("votedDirectoryId")
    return KafkaQuorumState(
        data_version=fields["data_version"],
        leader_epoch=fields["leaderEpoch"],
        leader_id=fields["leaderId"],
        voted_id=fields["votedId"],
        voted_directory_id=None if directory_id in (None, _NO_DIRECTORY_ID) else str(directory_id),
        voter_ids=voter_ids,
    )


def read_epoch_starts(path: Path) -> tuple[EpochStart, ...]:
    """What is in leader-epoch-checkpoint."""
    lines = _text(path).split("\n")
    if lines[0] != "0":
        raise StorageError(f"{path} has version {lines[0][:20]!r}, and only 0 is known; {NEWER}")
    try:
        count = int(lines[1])
        starts = tuple(EpochStart(*map(int, line.split(" "))) for line in lines[2:] if line)
    except (ValueError, IndexError, TypeError):
        raise StorageError(f"{path} is not a list of epochs and offsets; {COPY_AGAIN}") from None
    if len(starts) != count or list(starts) != sorted(set(starts)):
        raise StorageError(
            f"{path} has {len(starts)} epochs instead of {count}, or they are not in order; {COPY_AGAIN}"
        )
    return starts


def check_partition_metadata(path: Path) -> None:
    """Raise StorageError unless the partition is that of the cluster's metadata."""
    fields = dict(line.split(": ", 1) for line in _text(path).splitlines() if ": " in line)
    if fields.get("version") != "0":
        raise StorageError(f"{path} has version {fields.get('version')!r}, and only 0 is known; {NEWER}")
    if fields.get("topic_id") != METADATA_TOPIC_ID:
        raise StorageError(
            f"{path} is of the topic {fields.get('topic_id')!r}, not of the cluster's metadata ({METADATA_TOPIC_ID});"
            " name a directory that has __cluster_metadata-0"
        )


def _json_object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(_text(path))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise StorageError(f"{path} is not a JSON object; {COPY_AGAIN}")
    return found


def _text(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(SMALL_FILE_BYTES_MAX + 1)
    if len(data) > SMALL_FILE_BYTES_MAX:
        raise StorageError(f"{path} has more than {SMALL_FILE_BYTES_MAX} bytes: it is not Kafka's; {COPY_AGAIN}")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise StorageError(f"{path} is not text; {COPY_AGAIN}") from None
