"""The versions of the kinds of records: the newest that this program knows, and the one that a cluster writes.

A record is written in the version that the cluster's metadata.version allows, so that a node of an older program can
read it; fields that came later are left out then (CT-04, CT-62).
"""

from __future__ import annotations

from typing import Final

from google.protobuf.message import Message

from kraftpb.v1.metadata_pb2 import MetadataRecord

VERSIONS_MAX: Final[dict[str, int]] = {
    **{field.name: 0 for field in MetadataRecord.DESCRIPTOR.oneofs_by_name["record"].fields},
    "register_broker": 4,
    "broker_registration_change": 3,
    "partition": 2,
    "partition_change": 2,
}
"""The newest version of each kind."""

METADATA_VERSION_DIRECTORIES: Final = 17
"""3.7-IV2: brokers report which log directories they have, and partitions have them (JBOD)."""

METADATA_VERSION_CONTROLLED_SHUTDOWN: Final = 7
"""3.3-IV3."""

METADATA_VERSION_ELR: Final = 23
"""4.0-IV1: eligible leader replicas (KIP-966)."""

METADATA_VERSION_CORDONED_DIRECTORIES: Final = 30
"""4.3-IV0: log directories that take no new replicas (KIP-1066)."""

_LATER_FIELDS: Final[dict[str, tuple[tuple[int, int, tuple[str, ...]], ...]]] = {
    "register_broker": (
        (1, METADATA_VERSION_CONTROLLED_SHUTDOWN, ("in_controlled_shutdown",)),
        (3, METADATA_VERSION_DIRECTORIES, ("log_dirs",)),
        (4, METADATA_VERSION_CORDONED_DIRECTORIES, ("cordoned_log_dirs",)),
    ),
    "broker_registration_change": (
        (1, METADATA_VERSION_CONTROLLED_SHUTDOWN, ("in_controlled_shutdown",)),
        (2, METADATA_VERSION_DIRECTORIES, ("log_dirs",)),
        (3, METADATA_VERSION_CORDONED_DIRECTORIES, ("cordoned_log_dirs",)),
    ),
    "partition": (
        (1, METADATA_VERSION_DIRECTORIES, ("directories",)),
        (2, METADATA_VERSION_ELR, ("eligible_leader_replicas", "last_known_elr")),
    ),
    "partition_change": (
        (1, METADATA_VERSION_DIRECTORIES, ("directories",)),
        (2, METADATA_VERSION_ELR, ("eligible_leader_replicas", "last_known_elr")),
    ),
}
"""By kind: a version, the metadata.version that it needs, and the fields that it added."""


def in_version(record: MetadataRecord, metadata_version: int) -> MetadataRecord:
    """Change `record`, in place, to the version that a cluster of that metadata.version writes; return it."""
    kind = record.WhichOneof("record")
    for version, needed, fields in _LATER_FIELDS.get(kind or "", ()):
        if metadata_version >= needed:
            record.version = version
        else:
            message: Message = getattr(record, kind or "")
            for field in fields:
                message.ClearField(field)
    return record
