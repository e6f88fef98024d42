"""Makes a node's data directory ready for its first start, with the voters (KIP-853, OT-31, OT-32)."""

from __future__ import annotations

from contextlib import closing

from kraftbase.errors import ConfigurationError, DirectoryError
from kraftbase.files.files import join
from kraftbase.files.posix import PosixFileSystem
from kraftbase.types import DirectoryId, NodeId
from kraftbase.uuids import uuid_to_text
from kraftlog.config.config import NodeConfig
from kraftlog.config.endpoints import initial_controllers_text
from raft.core.types import ReplicaKey
from raft.core.voters import VoterSet
from raft.storage.directory import META_NAME, DataDirectory, DirectoryIdentity
from raft.storage.quorum_state import COPY_NAMES
from snapshot.bootstrap import read_bootstrap, write_bootstrap


def format_directory(
    config: NodeConfig,
    cluster_id: str,
    *,
    initial_controllers: VoterSet | None = None,
    ignore_formatted: bool = False,
    is_replacement: bool = False,
) -> DirectoryIdentity:
    """Format the data directory that `config` names; a formatted directory is left unchanged.

    With `initial_controllers` the node knows the voters by their directory ids, and its directory gets the id in there;
    else it knows them by their node ids, as `config` names them. `is_replacement`: it replaces a lost directory, so its
    voter does not form a new cluster (`raft.core.newcomers`). Raises DirectoryError for a directory that is another
    node's or (unless `ignore_formatted`) formatted, ConfigurationError for ids that are malformed or do not fit, and
    StorageError when the directory cannot be written.
    """
    directory_id = None
    if initial_controllers is not None:
        check_voters(config, initial_controllers)
        directory_id = own_directory_id(config, initial_controllers)
    files = PosixFileSystem()
    identity = DataDirectory.format(
        files,
        str(config.directory),
        cluster_id=cluster_id,
        node_id=config.node_id,
        directory_id=directory_id,
        ignore_formatted=ignore_formatted,
        is_replacement=is_replacement,
    )
    if initial_controllers is not None:
        with closing(DataDirectory.open(files, str(config.directory))) as directory:
            _write_first_voters(directory, initial_controllers)
    return identity


def is_formatted(config: NodeConfig) -> bool:
    """Whether the data directory that `config` names has an identity."""
    return PosixFileSystem().exists(join(str(config.directory), META_NAME))


def set_voters(config: NodeConfig, voters: VoterSet) -> VoterSet | None:
    """Set the directory ids by which the node of `config`, which must not run, knows the voters from its next start on.
    Returns the voters it knew, None if it knew node ids only. The voters must stay the same, and at most one directory
    may change: sets that differ in more have majorities that do not overlap. Raises ConfigurationError for a set that
    may not follow, DirectoryError for a directory that is in use or not formatted, StorageError.
    """
    check_voters(config, voters)
    files = PosixFileSystem()
    with closing(DataDirectory.open(files, str(config.directory), node_id=config.node_id)) as directory:
        _check_own(directory, voters)
        cluster_id = directory.identity.cluster_id
        known = read_bootstrap(files, directory.snapshots_path, cluster_id)
        if known is not None:
            changed = [str(key.node_id) for key in voters.replica_keys() if not known.is_voter(key)]
            if len(changed) > 1:
                raise ConfigurationError(
                    f"voters {', '.join(changed)} have other directory ids than in {directory.path}. Replace one disk"
                    " at a time: set the voters with one new id on every node, and wait until that voter has caught up"
                )
        write_bootstrap(files, directory.snapshots_path, cluster_id, voters)
    return known


def check_voters(config: NodeConfig, voters: VoterSet) -> None:
    """Raises ConfigurationError unless these are the voters of `config`, with directory ids of their own."""
    named, given = {node_id for node_id, _ in config.voters}, {key.node_id for key in voters.replica_keys()}
    if named != given:
        raise ConfigurationError(
            f"the voters given are {_ids(given)}, those in controller.quorum.voters {_ids(named)}; name the same voters"
        )
    directory_ids = {key.directory_id for key in voters.replica_keys()}
    if len(directory_ids) < len(voters):
        raise ConfigurationError("two of the voters have the same directory id; each directory has its own")


def own_directory_id(config: NodeConfig, voters: VoterSet) -> DirectoryId | None:
    """The directory id that the voters have for `config`'s node; None for an observer."""
    own = voters.get(config.node_id)
    return None if own is None else own.key.directory_id


def _check_own(directory: DataDirectory, voters: VoterSet) -> None:
    identity = directory.identity
    own = voters.get(identity.node_id)
    if own is not None and not voters.is_voter(ReplicaKey(identity.node_id, identity.directory_id)):
        raise ConfigurationError(
            f"the directory id given for voter {identity.node_id} is not that of {directory.path}, which is"
            f" {uuid_to_text(identity.directory_id)}; name that one"
        )


def _write_first_voters(directory: DataDirectory, voters: VoterSet) -> None:
    """Write the voters of a directory that is new, or was left half-formatted."""
    _check_own(directory, voters)
    known = read_bootstrap(directory.files, directory.snapshots_path, directory.identity.cluster_id)
    if known == voters:
        return
    is_used = any(directory.files.exists(join(directory.path, name)) for name in COPY_NAMES)
    if known is not None or is_used:
        knows = "node ids only" if known is None else initial_controllers_text(known)
        raise DirectoryError(
            f"{directory.path} is in use and knows other voters ({knows}); set these with"
            " `kraftlog voters set`, as docs/operations/voters.md says"
        )
    write_bootstrap(directory.files, directory.snapshots_path, directory.identity.cluster_id, voters)


def _ids(node_ids: set[NodeId]) -> str:
    return ", ".join(map(str, sorted(node_ids)))
