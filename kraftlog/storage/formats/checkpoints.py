"""Small text files: offsets of partitions, leader epochs, a partition's topic id, a directory's identity.

0                     the version               version: 0
2                     how many lines follow     topic_id: MkTRi9xBQ0SR0lyFXJwFhA
clicks 0 1200         topic, partition, offset
clicks 1 1180         in the file of epochs: epoch, first offset
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
    """The content of a checkpoint file (FM-05)."""
    entries = list(lines)
    return "".join(f"{line}\n" for line in (str(VERSION), str(len(entries)), *entries)).encode("ascii")


def decode_checkpoint(data: bytes, path: str, fields: int) -> list[list[str]]:
    """The entries of a checkpoint file, each with that many fields. Raises MalformedBytes.

    An empty file has none: Kafka makes its files before it has anything to write.
    """
    if not data:
        return []
    try:
        version, count, *lines = data.decode("ascii").split("\n")
        if int(version) != VERSION:
            raise MalformedBytes(path, f"its version is {version}; only {VERSION} is known")
        if lines[-1:] != [""] or int(count) != len(lines) - 1:
            raise ValueError(f"it has {len(lines) - 1} entries, and says that it has {count}")
        entries = [line.split(" ") for line in lines[:-1]]
        if any(len(entry) != fields for entry in entries):
            raise ValueError(f"an entry has not {fields} fields")
    except ValueError as error:
        raise MalformedBytes(path, str(error)) from None
    return entries


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The content of a file with an offset for each partition."""
    return encode_checkpoint(f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items()))


def decode_offsets(data: bytes, path: str) -> dict[TopicPartition, int]:
    """The offsets in such a file. Raises MalformedBytes."""
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partition, offset in decode_checkpoint(data, path, 3)
        }
    except ValueError as error:
        raise MalformedBytes(path, str(error)) from None


def encode_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    """The content of the file with each leader epoch and its first offset (FM-43)."""
    return encode_checkpoint(f"{epoch} {start_offset}" for epoch, start_offset in entries)


def decode_epochs(data: bytes, path: str) -> list[tuple[int, int]]:
    """The epochs in such a file. Raises MalformedBytes, also unless both columns ascend."""
    try:
        entries = [(int(epoch), int(start_offset)) for epoch, start_offset in decode_checkpoint(data, path, 2)]
    except ValueError as error:
        raise MalformedBytes(path, str(error)) from None
    for (epoch, start), (next_epoch, next_start) in pairwise(entries):
        if next_epoch <= epoch or next_start < start:
            raise MalformedBytes(path, f"epoch {next_epoch} at {next_start} follows epoch {epoch} at {start}")
    return entries


def encode_partition_metadata(topic_id: UUID) -> bytes:
    """The content of `partition.metadata`; its last line has no end."""
    return f"version: {VERSION}\ntopic_id: {uuid_to_text(topic_id)}".encode("ascii")


def decode_partition_metadata(data: bytes, path: str) -> UUID:
    """The topic id in such a file. Raises MalformedBytes."""
    values = dict(line.split(": ", 1) for line in data.decode("ascii", "replace").splitlines() if ": " in line)
    if values.get("version") != str(VERSION) or "topic_id" not in values:
        raise MalformedBytes(path, f"it must have version {VERSION} and a topic id, and has {values}")
    try:
        return uuid_from_text(values["topic_id"])
    except ConfigurationError as error:
        raise MalformedBytes(path, str(error)) from None


def encode_meta(cluster_id: str, node_id: int, directory_id: UUID) -> bytes:
    """The content of a log directory's `meta.properties` (FM-04): Java properties, without the comment of the time."""
    return (
        f"cluster.id={cluster_id}\ndirectory.id={uuid_to_text(directory_id)}\n"
        f"node.id={node_id}\nversion={META_VERSION}\n"
    ).encode("ascii")


def decode_meta(data: bytes, path: str) -> tuple[str, int, UUID]:
    """Cluster id, node id and directory id in such a file, also in one that Kafka wrote. Raises MalformedBytes."""
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
