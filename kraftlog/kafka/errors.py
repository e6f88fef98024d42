"""What can go wrong between bytes and values:

KraftlogError
├── MalformedBytes     bytes from outside are not what the format says; a path names the field
│   └── UnknownFormat      they may be right, but of a version that this program does not know
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


class UnwritableValue(KraftlogError):
    """A value cannot be written in this version of its message. `path` names the field."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
