"""Every message in every version: what is written is read, and written again as the same bytes."""

from __future__ import annotations

import pytest

from kraftlog.kafka.codec import decode, encode
from kraftlog.kafka.errors import MalformedBytes
from kraftlog.kafka.notation import Message
from tests.kraftlog.kafka.random_values import for_values
from tests.kraftlog.kafka.values import MESSAGES

EXAMPLES = 5


def test_all_pairs_of_message_and_version_are_tried() -> None:
    assert sum(len(list(message.VERSIONS)) for message in MESSAGES) == 472


def test_what_is_written_is_read() -> None:
    for message in MESSAGES:
        for version in message.VERSIONS:
            _round_trips(message, version)


def _round_trips(message: type[Message], version: int) -> None:
    def check(value: Message) -> None:
        data = encode(value, version)
        read = decode(message, version, data)
        assert read == value
        assert encode(read, version) == data
        assert decode(message, version, memoryview(data)) == value
        with pytest.raises(MalformedBytes, match=f"{message.__name__}: 1 extra bytes after version {version}"):
            decode(message, version, data + b"\0")

    for_values(check, message, version, EXAMPLES)
