"""Frames of metadata records, and control records."""

from __future__ import annotations

import pytest

from kraftlog.kafka.control_records import EndTxnMarker, KRaftVersionRecord, LeaderChangeMessage, Voter
from kraftlog.kafka.errors import MalformedBytes, UnknownFormat, UnwritableValue
from kraftlog.kafka.metadata_records import ClearElrRecord, NoOpRecord, PartitionRecord
from kraftlog.kafka.record_values import (
    ControlType,
    decode_control_record,
    decode_metadata_record,
    encode_control_record,
    encode_metadata_record,
)


def test_a_metadata_record_is_in_a_frame() -> None:
    """FM-20."""
    assert encode_metadata_record(NoOpRecord(), 0) == bytes.fromhex("01 14 00 00")
    assert encode_metadata_record(ClearElrRecord(topic_name="t"), 0) == bytes.fromhex("01 1c 00 02 74 00")
    assert decode_metadata_record(memoryview(b"\1\x1c\0\2t\0")) == (ClearElrRecord(topic_name="t"), 0)
    assert decode_metadata_record(bytes.fromhex("81 00 94 00 80 00 00")) == (NoOpRecord(), 0)


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        ("", MalformedBytes, "^metadata record: its frame is not whole"),
        ("01 14", MalformedBytes, "^metadata record: its frame is not whole"),
        ("81 81 81 81 81 81", MalformedBytes, "^metadata record: its frame is not whole"),
        ("00 14 00 00", UnknownFormat, "^metadata record: its frame has version 0, and only 1 is known"),
        ("02 14 00 00", UnknownFormat, "^metadata record: its frame has version 2, and only 1 is known"),
        ("01 1d 00 00", UnknownFormat, "^metadata record: its number is 29, which Kafka 4.3 does not have"),
        ("01 03 03 00", UnknownFormat, "^PartitionRecord: its version is 3, and Kafka 4.3 has 0-2"),
        ("01 14 00 00 00", MalformedBytes, "^NoOpRecord: 1 extra bytes after version 0"),
        ("01 14 00", MalformedBytes, "^NoOpRecord.unknown_tags: the 3 bytes end here"),
    ],
)
def test_what_is_no_metadata_record_is_refused(data: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        decode_metadata_record(bytes.fromhex(data))


def test_a_version_that_there_is_not_is_not_written() -> None:
    with pytest.raises(UnwritableValue, match="PartitionRecord: has no version 3"):
        encode_metadata_record(PartitionRecord(), 3)


def test_control_records_start_with_their_version() -> None:
    """Keys and values (FM-11, FM-13)."""
    change = LeaderChangeMessage(version=1, leader_id=3, voters=(Voter(voter_id=3, voter_directory_id=bytes(16)),))
    key, value = encode_control_record(ControlType.LEADER_CHANGE, change, 1)
    assert key == bytes.fromhex("00 00 00 02")
    assert value.startswith(bytes.fromhex("00 01 00 00 00 03"))
    assert decode_control_record(key, value) == (ControlType.LEADER_CHANGE, change)
    key, value = encode_control_record(ControlType.COMMIT, EndTxnMarker(coordinator_epoch=5), 0)
    assert (key, value) == (bytes.fromhex("00 00 00 01"), bytes.fromhex("00 00 00 00 00 05"))
    assert decode_control_record(key, value) == (ControlType.COMMIT, EndTxnMarker(coordinator_epoch=5))


@pytest.mark.parametrize(
    ("key", "value", "error", "words"),
    [
        (None, b"\0\0", MalformedBytes, "its key is null and its value 2 bytes"),
        (b"\0\0\0", b"\0\0", MalformedBytes, "its key is 3 bytes"),
        (b"\0\0\0\2", b"\0", MalformedBytes, "its value 1 bytes"),
        (b"\0\0\0\2", None, MalformedBytes, "its value null"),
        (b"\0\0\0\7", b"\0\0", UnknownFormat, "its type is 7, which Kafka 4.3 does not have"),
        (b"\0\0\0\5", b"\0\1\0\1\0", UnknownFormat, "KRaftVersionRecord: its version is 1, and Kafka 4.3 has 0"),
        (b"\0\0\0\5", b"\0\0\0", MalformedBytes, "KRaftVersionRecord.kraft_version: the 3 bytes end here"),
    ],
)
def test_what_is_no_control_record_is_refused(
    key: bytes | None, value: bytes | None, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        decode_control_record(key, value)


def test_a_control_record_is_of_its_type_and_says_its_version() -> None:
    with pytest.raises(UnwritableValue, match="type COMMIT has a EndTxnMarker as its value, not a KRaftVersionRecord"):
        encode_control_record(ControlType.COMMIT, KRaftVersionRecord(), 0)
    with pytest.raises(UnwritableValue, match=r"KRaftVersionRecord\.version: is not 0, the version that is written"):
        encode_control_record(ControlType.KRAFT_VERSION, KRaftVersionRecord(version=1), 0)
