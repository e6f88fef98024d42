"""Which replicas are in log directories that have no room (CT-66)."""

from __future__ import annotations

from kraftbase.ids import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from kraftpb.v1.metadata_pb2 import RegisterBrokerRecord


def is_known(log_dir: bytes) -> bool:
    """Whether the metadata names the directory of a replica."""
    return log_dir not in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY)


def is_full(broker: RegisterBrokerRecord, log_dir: bytes) -> bool:
    """Whether the directory of one of a broker's replicas has no room; if it is not known, whether none has room."""
    if not broker.full_log_dirs:
        return False
    if is_known(log_dir):
        return log_dir in broker.full_log_dirs
    return bool(broker.log_dirs) and set(broker.log_dirs) <= set(broker.full_log_dirs)
