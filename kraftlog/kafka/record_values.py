"""The values of records in a metadata log: metadata records, framed, and control records.

A metadata record has no key. Its value is, in unsigned varints, the frame's version 1, the record's number and its
version, and then the record (Kafka's MetadataRecordSerde; FM-11, FM-20, and FM-22 for known bytes of each).

A control record's key is two int16: 0, its own version, and its type. Its value starts with its version as an int16: as
its first field; or, in the markers of transactions, before its fields (FM-13).
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

from kraftlog.kafka import metadata_records
from kraftlog.kafka.codec import decode, decode_from, encode, encode_pieces
from kraftlog.kafka.control_records import (
    EndTxnMarker,
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from kraftlog.kafka.errors import MalformedBytes, UnknownFormat, UnwritableValue
from kraftlog.kafka.notation import Buffer, Message
from kraftlog.kafka.primitives import read_varint, varint

FRAME_VERSION: Final = 1

METADATA_RECORDS: Final[dict[int, type[Message]]] = {
    found.KEY: found
    for found in vars(metadata_records).values()
    if isinstance(found, type) and issubclass(found, Message) and found is not Message
}
"""The metadata records by their numbers."""

_SHORT: Final = struct.Struct(">h")
_KEY: Final = struct.Struct(">hh")
_CONTROL_KEY_VERSION: Final = 0


class ControlType(IntEnum):
    """The types of control records."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


CONTROL_RECORDS: Final[dict[ControlType, type[Message]]] = {
    ControlType.ABORT: EndTxnMarker,
    ControlType.COMMIT: EndTxnMarker,
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}


def decode_metadata_record(data: Buffer) -> tuple[Message, int]:
    """Return the metadata record in the value of a record, and its version.

    Raises MalformedBytes, and UnknownFormat for a frame, a number or a version that Kafka 4.3 does not have.
    """
    try:
        frame, key, version, at = _frame(data)
    except (IndexError, ValueError) as error:
        raise MalformedBytes("metadata record", f"its frame is not whole ({error})") from None
    if frame != FRAME_VERSION:
        raise UnknownFormat("metadata record", f"its frame has version {frame}, and only {FRAME_VERSION} is known")
    message = METADATA_RECORDS.get(key)
    if message is None:
        raise UnknownFormat("metadata record", f"its number is {key}, which Kafka 4.3 does not have")
    if version not in message.VERSIONS:
        raise UnknownFormat(message.__name__, f"its version is {version}, and Kafka 4.3 has {message.VERSIONS}")
    value, end = decode_from(message, version, data, at)
    if end != len(data):
        raise MalformedBytes(message.__name__, f"{len(data) - end} extra bytes after version {version}")
    return value, version


def _frame(data: Buffer) -> tuple[int, int, int, int]:
    if len(data) >= 3 and data[0] < 128 and data[1] < 128 and data[2] < 128:
        return data[0], data[1], data[2], 3
    frame, at = read_varint(data, 0)
    key, at = read_varint(data, at)
    version, at = read_varint(data, at)
    return frame, key, version, at


def encode_metadata_record(value: Message, version: int) -> bytes:
    """Return a metadata record as the value of a record. Raises UnwritableValue."""
    return b"".join([varint(FRAME_VERSION), varint(value.KEY), varint(version), *encode_pieces(value, version)])


def decode_control_record(key: Buffer | None, data: Buffer | None) -> tuple[ControlType, Message]:
    """Return the type and the value of a control record.

    Raises MalformedBytes, and UnknownFormat for a type or a version that Kafka 4.3 does not have.
    """
    if key is None or data is None or len(key) < _KEY.size or len(data) < _SHORT.size:
        raise MalformedBytes("control record", f"its key is {_shown(key)} and its value {_shown(data)}")
    number = _KEY.unpack_from(key)[1]
    if number not in ControlType.__members__.values():
        raise UnknownFormat("control record", f"its type is {number}, which Kafka 4.3 does not have")
    kind = ControlType(number)
    message = CONTROL_RECORDS[kind]
    (version,) = _SHORT.unpack_from(data)
    if version not in message.VERSIONS:
        raise UnknownFormat(message.__name__, f"its version is {version}, and Kafka 4.3 has {message.VERSIONS}")
    return kind, decode(message, version, data[_SHORT.size :] if message is EndTxnMarker else data)


def encode_control_record(kind: ControlType, value: Message, version: int) -> tuple[bytes, bytes]:
    """Return the key and the value of a control record. Raises UnwritableValue, also if `version` differs."""
    message = CONTROL_RECORDS[kind]
    if type(value) is not message:
        raise UnwritableValue(
            "control record", f"type {kind.name} has a {message.__name__} as its value, not a {type(value).__name__}"
        )
    body = encode(value, version)
    prefix = _SHORT.pack(version)
    if message is EndTxnMarker:
        body = prefix + body
    elif not body.startswith(prefix):
        raise UnwritableValue(f"{message.__name__}.version", f"is not {version}, the version that is written")
    return _KEY.pack(_CONTROL_KEY_VERSION, kind), body


def _shown(data: Buffer | None) -> str:
    return "null" if data is None else f"{len(data)} bytes"
