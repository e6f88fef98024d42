"""The data directory: its identity, its lock, and its layout (docs/formats/directory.md).

    .lock              held while a process uses the directory
    meta.properties    format version and identity: made once, by `format`, never changed
    quorum-state-0     \\ the quorum state, two copies (raft.storage.quorum_state)
    quorum-state-1     /
    log/               segments (raft.storage.segmented_log), the mark of a new directory (raft.storage.new_directory)
    snapshots/         snapshots (snapshot.store)
    metadata.db        the state machine's SQLite file: derived data

The directory id names this copy of the data: a directory that is lost or formatted again gets another id, so that its
replica is not mistaken for the one that voted and acknowledged before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from kraftbase.errors import ConfigurationError, DirectoryError, ErrorCode
from kraftbase.files.files import TEMPORARY_SUFFIX, FileSystem, Lock, join, read_whole, write_new_file
from kraftbase.files.properties import decode_properties, encode_properties
from kraftbase.sentinels import ZERO_DIRECTORY_ID
from kraftbase.types import DirectoryId, NodeId
from kraftbase.uuids import random_uuid, uuid_from_text, uuid_to_text
from raft.storage.advice import REPLACE_THE_DISK
from raft.storage.new_directory import NEW_DIRECTORY_NAME, write_new_directory

FORMAT_VERSION = 1
LOCK_NAME = ".lock"
META_NAME = "meta.properties"
LOG_NAME = "log"
SNAPSHOTS_NAME = "snapshots"
METADATA_DATABASE_NAME = "metadata.db"

NODE_DATA_NAMES = (LOG_NAME, SNAPSHOTS_NAME, METADATA_DATABASE_NAME)
QUORUM_STATE_PREFIX = "quorum-state-"
"""Files that only a node makes, after its directory was formatted."""

MAX_NODE_ID = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryIdentity:
    """The node and cluster that a directory belongs to. Raises ConfigurationError when an id is invalid."""

    cluster_id: str
    node_id: NodeId
    directory_id: DirectoryId

    def __post_init__(self) -> None:
        if uuid_from_text(self.cluster_id) == ZERO_DIRECTORY_ID:
            raise ConfigurationError(f"the cluster id {self.cluster_id} is zero; make a random one")
        if not 0 <= self.node_id <= MAX_NODE_ID:
            raise ConfigurationError(f"the node id is {self.node_id}; it must be between 0 and {MAX_NODE_ID}")
        if self.directory_id == ZERO_DIRECTORY_ID:
            raise ConfigurationError("the directory id is zero, which stands for none (RF-02); make a random one")


class DataDirectory:
    """An open data directory, locked until it is closed."""

    def __init__(self, files: FileSystem, path: str, identity: DirectoryIdentity, lock: Lock) -> None:
        """Use `open`."""
        self.files = files
        self.path = path
        self.identity = identity
        self._lock = lock

    @classmethod
    def format(
        cls,
        files: FileSystem,
        path: str,
        *,
        cluster_id: str,
        node_id: NodeId,
        directory_id: DirectoryId | None = None,
        ignore_formatted: bool = False,
        is_replacement: bool = False,
    ) -> DirectoryIdentity:
        """Make `path` the data directory of a node, with a random directory id unless one is given.

        It is marked as new, or as a replacement of a lost one, until its voter is level with a leader.
        With `ignore_formatted` a directory that is already formatted for this cluster and node stays as it is, and
        its identity is returned. Raises DirectoryError when it is formatted otherwise, holds anything else, or is
        in use; ConfigurationError when an id is invalid.
        """
        identity = DirectoryIdentity(cluster_id=cluster_id, node_id=node_id, directory_id=directory_id or random_uuid())
        files.make_directories(path)
        if not files.exists(join(path, META_NAME)):
            _refuse_foreign(files, path)  # before the lock, whose file would stay in the directory
        lock = _lock(files, path)
        try:
            if files.exists(join(path, META_NAME)):
                existing = _read_identity(files, path)
                _check_identity(path, existing, cluster_id, node_id)
                if not ignore_formatted:
                    raise DirectoryError(
                        f"{path} is already formatted, for node {node_id} of cluster {cluster_id}. Start the node,"
                        " or format with the option that ignores formatted directories"
                    )
                return existing
            _refuse_foreign(files, path)
            write_new_directory(files, join(path, LOG_NAME), is_replacement=is_replacement)
            write_new_file(files, join(path, META_NAME), encode_meta(identity))
            return identity
        finally:
            lock.close()

    @classmethod
    def open(
        cls,
        files: FileSystem,
        path: str,
        *,
        cluster_id: str | None = None,
        node_id: NodeId | None = None,
    ) -> DataDirectory:
        """Lock and open a formatted directory. A `cluster_id` or `node_id` that is given must be the directory's.

        Raises DirectoryError when it is not formatted, in use, of another cluster or node, of an unknown format
        version, or its meta file is damaged.
        """
        if not files.exists(join(path, META_NAME)):
            _refuse_without_meta(files, path)
            raise DirectoryError(
                f"{path} is not formatted. Format it if its node is new, or name the directory that is formatted; if"
                " its data is lost, see docs/operations/replacing-a-disk.md"
            )
        lock = _lock(files, path)
        try:
            identity = _read_identity(files, path)
            _check_identity(path, identity, cluster_id, node_id)
        except BaseException:
            lock.close()
            raise
        return cls(files, path, identity, lock)

    @property
    def log_path(self) -> str:
        """The directory of the log's segments."""
        return join(self.path, LOG_NAME)

    @property
    def snapshots_path(self) -> str:
        """The directory of the snapshots; it exists once there are some."""
        return join(self.path, SNAPSHOTS_NAME)

    @property
    def metadata_database_path(self) -> str:
        """The state machine's SQLite file."""
        return join(self.path, METADATA_DATABASE_NAME)

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def encode_meta(identity: DirectoryIdentity) -> bytes:
    """The content of the meta file: lines of `key=value`, the last one the CRC-32C of the lines before."""
    return encode_properties(
        f"version={FORMAT_VERSION}\n"
        f"cluster.id={identity.cluster_id}\n"
        f"node.id={identity.node_id}\n"
        f"directory.id={uuid_to_text(identity.directory_id)}\n"
    )


def decode_meta(data: bytes, path: str) -> DirectoryIdentity:
    """The identity in a meta file's content. Raises DirectoryError naming `path` when it is damaged or too new."""
    values = decode_properties(data)
    if values is None:
        raise _damaged(path)
    version = values.get("version")
    if version != str(FORMAT_VERSION):
        raise DirectoryError(
            f"{path} has format version {version}; this program knows version {FORMAT_VERSION}. Use the program that"
            " wrote it"
        )
    try:
        identity = DirectoryIdentity(
            cluster_id=values["cluster.id"],
            node_id=NodeId(int(values["node.id"])),
            directory_id=uuid_from_text(values["directory.id"]),
        )
    except (KeyError, ValueError, ConfigurationError):
        raise _damaged(path) from None
    if encode_meta(identity) != data:
        raise _damaged(path)
    return identity


_PUT_META_BACK = (
    "This file never changes, so a copy of it alone that was made since the directory was formatted may be put back."
    " Without one:"
)


def _damaged(path: str) -> DirectoryError:
    return DirectoryError(
        f"{path} is damaged: it is unknown whose data this is. Nothing was changed. {_PUT_META_BACK} {REPLACE_THE_DISK}"
    )


def _refuse_without_meta(files: FileSystem, path: str) -> None:
    """Raise DirectoryError if the directory holds a node's data, and only the file with its identity is missing."""
    names = set(files.list_directory(path)) if files.exists(path) else set()
    if LOG_NAME in names and _is_only_marked(files, join(path, LOG_NAME)):
        names.remove(LOG_NAME)
    if any(name in NODE_DATA_NAMES or name.startswith(QUORUM_STATE_PREFIX) for name in names):
        raise DirectoryError(
            f"{path} is not formatted, but holds a node's data: its {META_NAME} is missing, so it is unknown whose"
            " data this is. Nothing was changed. A restore that was interrupted is done again, in an empty directory."
            f" If a node has run here: {_PUT_META_BACK} {REPLACE_THE_DISK}"
        )


def _refuse_foreign(files: FileSystem, path: str) -> None:
    _refuse_without_meta(files, path)
    others = set(files.list_directory(path)) - {LOCK_NAME, META_NAME + TEMPORARY_SUFFIX}
    if others == {LOG_NAME} and _is_only_marked(files, join(path, LOG_NAME)):
        return
    if others:
        raise DirectoryError(
            f"{path} is not formatted but not empty, it holds {', '.join(sorted(others)[:5])}. Name an empty or new"
            " directory"
        )


def _is_only_marked(files: FileSystem, log_path: str) -> bool:
    """Whether formatting was interrupted in it, between the mark of a new directory and the identity."""
    return {NEW_DIRECTORY_NAME, NEW_DIRECTORY_NAME + TEMPORARY_SUFFIX}.issuperset(files.list_directory(log_path))


def _lock(files: FileSystem, path: str) -> Lock:
    lock = files.try_lock(join(path, LOCK_NAME))
    if lock is None:
        raise DirectoryError(f"{path} is in use by another process. Stop it first, or name another directory")
    return lock


def _read_identity(files: FileSystem, path: str) -> DirectoryIdentity:
    meta_path = join(path, META_NAME)
    return decode_meta(read_whole(files, meta_path), meta_path)


def _check_identity(path: str, found: DirectoryIdentity, cluster_id: str | None, node_id: NodeId | None) -> None:
    if cluster_id is not None and found.cluster_id != cluster_id:
        raise DirectoryError(
            f"{path} belongs to cluster {found.cluster_id}, not to cluster {cluster_id}. Correct the cluster id, or"
            " name another directory",
            ErrorCode.INCONSISTENT_CLUSTER_ID,
        )
    if node_id is not None and found.node_id != node_id:
        raise DirectoryError(
            f"{path} belongs to node {found.node_id}, not to node {node_id}. Correct the node id, or name another"
            " directory"
        )
