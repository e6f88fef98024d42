"""Small text files: partitions' offsets, leader epochs, a partition's topic id, a directory's identity.

0                     the version               version: 0
2                     number of entries         topic_id: MkTRi9xBQ0SR0lyFXJwFhA
clicks 0 1200         topic, partition, offset
clicks 1 1180         the file of epochs has: epoch, first offset
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final
from uuid import UUID

from kraftbase.errors import ConfigurationError
from kraftbase.partition import TopicPartition
from kraftbase.uuids import uuid_from_text, uuid_to_text
from kraftlog.kafka.errors import MalformedBytes

VERSION: Final = 0
META_VERSION: Final = "1"


def encode_checkpoint(lines: Iterable[str]) -> bytes:
    """Return the content of a checkpoint file (FM-05)."""
    entries = list(lines)
    return "".join(f"{line}\n" for line in (str(VERSION), str(len(entries)), *entries)).encode("ascii")


def decode_checkpoint(data: bytes, path: str, fields: int) -> list[list[str]]:
    """Return the entries of a checkpoint file, each with that many fields. Raises MalformedBytes.

    An empty file has no entries: Kafka creates its files before it has anything to write.
    """
    if not data:
        return []
    try:
        version, count, *lines = data.decode("ascii").split("\n")
        if int(version) != VERSION:
            raise MalformedBytes(path, f"its version is {version}; only {VERSION} is known")
        if lines[-1:] != [""] or int(count) != len(lines) - 1:
            raise ValueError(f"it has {len(lines) - 1} entries, and its second line is {count}")
        entries = [line.split(" ") for line in lines[:-1]]
        if any(len(entry) != fields for entry in entries):
            raise ValueError(f"an entry does not have {fields} fields")
    except ValueError as error:
        raise MalformedBytes(path, str(error)) from None
    return entries


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return the content of a file with an offset for each partition."""
    return encode_checkpoint(f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items()))


def decode_offsets(data: bytes, path: str) -> dict[TopicPartition, int]:
    """Return the offsets in a file with an offset for each partition. Raises MalformedBytes."""
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partition, offset in decode_checkpoint(data, path, 3)
        }
    except ValueError as error:
        raise MalformedBytes(path, str(error)) from None


def encode_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    """Return the content of the file with each leader epoch and its first offset (FM-43)."""
    return encode_checkpoint(f"{epoch} {start_offset}" for epoch, start_offset in entries)


def decode_epochs(data: bytes, path: str) -> list[tuple[int, int]]:
    """Return the epochs and first offsets in a file of epochs. Raises MalformedBytes, also if a column descends."""
    try:
        entries = [(int(epoch), int(start_offset)) for epoch, start_offset in decode_checkpoint(data, path, 2)]
    except ValueError as error:
        raise MalformedBytes(path, str(error)) from None
    for (epoch, start), (next_epoch, next_start) in pairwise(entries):
        if next_epoch <= epoch or next_start < start:
            raise MalformedBytes(path, f"epoch {next_epoch} at {next_start} follows epoch {epoch} at {start}")
    return entries


def encode_partition_metadata(topic_id: UUID) -> bytes:
    """Return the content of `partition.metadata`; the last line has no newline."""
    return f"version: {VERSION}\ntopic_id: {uuid_to_text(topic_id)}".encode("ascii")


def decode_partition_metadata(data: bytes, path: str) -> UUID:
    """Return the topic id in a `partition.metadata`. Raises MalformedBytes."""
    values = dict(line.split(": ", 1) for line in data.decode("ascii", "replace").splitlines() if ": " in line)
    if values.get("version") != str(VERSION) or "topic_id" not in values:
        raise MalformedBytes(path, f"it must have version {VERSION} and a topic id, and has {values}")
    try:
        return uuid_from_text(values["topic_id"])
    except ConfigurationError as error:
        raise MalformedBytes(path, str(error)) from None


def encode_meta(cluster_id: str, node_id: int, directory_id: UUID) -> bytes:
    """Return the content of a log directory's `meta.properties` (FM-04): Java properties, without a time comment."""
    return (
        f"cluster.id={cluster_id}\ndirectory.id={uuid_to_text(directory_id)}\n"
        f"node.id={node_id}\nversion={META_VERSION}\n"
    ).encode("ascii")


def decode_meta(data: bytes, path: str) -> tuple[str, int, UUID]:
    """Return the cluster id, node id and directory id in a `meta.properties`, also Kafka's. Raises MalformedBytes."""
    lines = data.decode("utf-8", "replace").splitlines()
    values = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    if values.get("version") != META_VERSION:
        raise MalformedBytes(path, f"its version is {values.get('version')}; only {META_VERSION} is known")
    try:
        return values["cluster.id"], int(values["node.id"]), uuid_from_text(values["directory.id"])
    except KeyError as error:
        raise MalformedBytes(path, f"it has no {error.args[0]}") from None
    except (ValueError, ConfigurationError) as error:
        raise MalformedBytes(path, str(error)) from None
