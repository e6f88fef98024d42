"""What can go wrong between bytes and values:

KraftlogError
├── MalformedBytes     bytes from outside are not what the format says; a path names the field
│   ├── UnknownFormat      they may be right, but of a version that this program does not know
│   └── TooManyElements    they may be right, but name more than any request of their size or their API means
└── UnwritableValue    a value of ours has no form in the version that is asked for; a path names the field
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
    """Bytes are of a newer version, or of an older one, than those that this program knows."""


class TooManyElements(MalformedBytes):
    """A request has more array elements than the bound of its API, or than a request of so many bytes can mean."""


class ManyElements(Exception):
    """Raised by `kraftlog.kafka.codec`: a value has more array elements than are read or written in one go.

    The caller reads or writes the value in slices instead.
    """


class UnwritableValue(KraftlogError):
    """A value cannot be written in this version of its message. `path` names the field."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
