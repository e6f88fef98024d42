"""The errors of reading and writing Kafka's bytes:

KraftlogError
├── MalformedBytes     bytes from outside are not what the format says; a path names the field
│   ├── UnknownFormat      they may be valid, but in a version that this program does not know
│   └── TooManyElements    they may be valid, but have more elements than a request of their API or size may have
└── UnwritableValue    a value cannot be written in the requested version; a path names the field
"""

from __future__ import annotations

from kraftbase.errors import KraftlogError


class MalformedBytes(KraftlogError):
    """Bytes are not what Kafka's format says.

    `path` names the field that could not be read, for example `FetchRequest.topics[2].partitions[0].fetch_offset`.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path


class UnknownFormat(MalformedBytes):
    """The bytes are in a newer or an older version than this program knows."""


class TooManyElements(MalformedBytes):
    """A request has more array elements than the bound for its API, or for its size."""


class ManyElements(Exception):
    """Raised by `kraftlog.kafka.codec`: a value has more array elements than may be read or written at once.

    The caller reads or writes the value in slices instead.
    """


class UnwritableValue(KraftlogError):
    """A value cannot be written in this version of its message. `path` names the field."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
