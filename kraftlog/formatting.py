"""Makes a node's data directory ready for its first start."""

from __future__ import annotations

from kraftlog.config import NodeConfig
from raft.storage.directory import DataDirectory, DirectoryIdentity
from raft.storage.posix import PosixFileSystem


def format_directory(config: NodeConfig, cluster_id: str, *, ignore_formatted: bool = False) -> DirectoryIdentity:
    """Format the data directory that `config` names; what is formatted already stays as it is.

    Raises DirectoryError for a directory that is another's or (unless `ignore_formatted`) formatted, ConfigurationError
    for a cluster id that is none, StorageError when the directory cannot be written.
    """
    return DataDirectory.format(
        PosixFileSystem(),
        str(config.directory),
        cluster_id=cluster_id,
        node_id=config.node_id,
        ignore_formatted=ignore_formatted,
    )
