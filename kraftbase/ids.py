"""Topic, broker and directory ids: 16 bytes in records and messages, Kafka's 22 characters of text in SQLite."""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import Final
from uuid import UUID

from kraftbase.uuids import uuid_from_text, uuid_to_text

ID_BYTES: Final = 16

RESERVED_IDS_END: Final = 100
"""Ids below this, read as a number, have a meaning of their own in Kafka: 0 is "none", 1 is the metadata topic."""

MIGRATING_DIRECTORY: Final = (0).to_bytes(ID_BYTES, "big")
"""The directory of a replica from before directories were known; in older logs of ours also of an unassigned one."""
UNASSIGNED_DIRECTORY: Final = (1).to_bytes(ID_BYTES, "big")
"""The directory of a replica whose broker has more than one and has not reported which one it uses."""
LOST_DIRECTORY: Final = (2).to_bytes(ID_BYTES, "big")
"""The directory of a replica whose broker knows only that the replica's directory has failed."""
DAMAGED_DIRECTORY: Final = (3).to_bytes(ID_BYTES, "big")
"""Our own: for the only replica with its records, when its log is damaged: it leads uncleanly or not at all."""


@lru_cache(maxsize=16_384)
def id_to_text(value: bytes) -> str:
    """An id as Kafka prints it; raises ValueError unless it has 16 bytes."""
    return uuid_to_text(UUID(bytes=value))


@lru_cache(maxsize=16_384)
def id_to_bytes(text: str) -> bytes:
    """The id that prints as `text`; raises ConfigurationError if none does."""
    return uuid_from_text(text).bytes


def is_reserved(value: bytes) -> bool:
    """Whether this id is reserved."""
    return int.from_bytes(value, "big") < RESERVED_IDS_END


def random_id(random: Random) -> bytes:
    """A random id (uuid version 4) whose text does not start with a dash, which would look like an option."""
    while True:
        value = UUID(int=random.getrandbits(128), version=4)
        if not uuid_to_text(value).startswith("-"):
            return value.bytes
