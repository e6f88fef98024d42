"""Makes a new cluster's data directories from a saved snapshot.

The new cluster begins where the snapshot ends, with another cluster id and an epoch that no node of the old cluster has
reached, or in epoch 1 if epochs were used up. Offsets continue: a broker or client that remembers an offset, such as a
broker epoch, never sees a lower one. Every node gets the same snapshot and makes the same bytes from it.

The snapshot is read through, and loaded as a test, before anything is created. The file without which a directory does
not start (a node's `meta.properties`, a local cluster's `cluster.toml`) is written when everything else is durable:
`start`, `up`, `format` and `restore` refuse the remains of an interruption until they are removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from kraftbase.errors import ConfigurationError, CorruptSnapshot, DirectoryError, FlushFailed, StorageError
from kraftbase.files.files import TEMPORARY_SUFFIX, FileSystem, join, read_whole, write_new_file
from kraftbase.files.posix import PosixFileSystem
from kraftbase.types import Epoch
from kraftbase.uuids import random_uuid
from kraftlog.config.config import NodeConfig
from kraftlog.config.formatting import check_voters, own_directory_id
from kraftlog.local.cluster_directory import CLUSTER_FILE, open_or_create
from kraftlog.offline.adoption.adopted_snapshot import NO_ADOPTION, Adopting, Adoption, adopted_snapshot
from kraftlog.offline.snapshot_files import open_snapshot
from raft.core.election_state import ElectionState
from raft.core.epoch_allowance import EPOCHS_AT_ONCE_MAX
from raft.core.types import OffsetAndEpoch, ReplicaKey
from raft.core.voters import Voter, VoterSet
from raft.storage.batch import batch_body
from raft.storage.directory import (
    LOCK_NAME,
    LOG_NAME,
    META_NAME,
    SNAPSHOTS_NAME,
    DirectoryIdentity,
    decode_meta,
    encode_meta,
)
from raft.storage.log_start_file import write_log_start
from raft.storage.quorum_state import QuorumStateStore
from snapshot.bootstrap import write_bootstrap
from snapshot.format import SnapshotHeader
from snapshot.reader import SnapshotReader, SnapshotSummary
from snapshot.store import SnapshotStore
from statemachine.store.image import load_image
from statemachine.store.metadata_tables import MetadataTables
from statemachine.tables.database import open_database

EPOCH_JUMP: Final = 10_000
"""How much higher than the snapshot's the new cluster's epoch is. The old cluster, which may still run, would need an
election every second for almost three hours to reach it."""

EPOCH_MAX: Final = EPOCHS_AT_ONCE_MAX // 2
"""A higher epoch is not continued: epochs are limited, and a replica with an empty directory accepts no higher epoch at
once. The new cluster begins in epoch 1, and only its cluster id keeps the old nodes away.
"""

_ADVICE: Final = "name an empty directory or a new one"
_ADVICE_IF_HALF_MADE: Final = f"{_ADVICE}; the remains of an interrupted restore may be removed"


class RestoredNode(NamedTuple):
    """A data directory that was made."""

    path: Path
    identity: DirectoryIdentity


class RestoredCluster(NamedTuple):
    """A new cluster, or one node of it."""

    cluster_id: str
    source: SnapshotSummary
    """The snapshot that it was made from."""
    snapshot: SnapshotSummary
    """The snapshot that the new cluster starts from, equal on all nodes."""
    nodes: list[RestoredNode]
    adoption: Adoption | None = None
    """The outcome for partitions and logs; None if no brokers are adopted."""


def restore_node(
    snapshot: Path,
    config: NodeConfig,
    cluster_id: str | None,
    initial_controllers: VoterSet | None = None,
    adopting: Adopting = NO_ADOPTION,
) -> RestoredCluster:
    """Make the data directory that `config` names from the snapshot at `snapshot`, for the new cluster `cluster_id`.

    None keeps the cluster's id, which needs `initial_controllers`: else a former voter that returns would count. With
    `initial_controllers` the voters are known by their directory ids, as in `format_directory`. All nodes of the
    cluster must be made from the same snapshot and the same reports of adopted brokers, in `adopting`. Raises
    ConfigurationError for a cluster id that is invalid or the old cluster's, and for reports that do not fit together;
    DirectoryError for a directory that is in use, formatted or not empty; CorruptSnapshot for a snapshot that is
    damaged or holds no metadata; StorageError for a file that cannot be read or is not named like a snapshot; nothing
    is made then. Raises StorageError if the directory cannot be written.
    """
    files = PosixFileSystem()
    directory_id = None
    if initial_controllers is not None:
        check_voters(config, initial_controllers)
        directory_id = own_directory_id(config, initial_controllers)
    if cluster_id is not None:
        DirectoryIdentity(cluster_id=cluster_id, node_id=config.node_id, directory_id=random_uuid())  # before all else
    _refuse_unless_empty(files, str(config.directory))
    with _beginning(snapshot, adopting) as (reader, source, adoption), _flushes_that_fail():
        identity = DirectoryIdentity(
            cluster_id=cluster_id or reader.header.cluster_id,
            node_id=config.node_id,
            directory_id=directory_id or random_uuid(),
        )
        made = restore_directory(
            files, str(config.directory), reader, identity, initial_controllers, keeps_cluster_id=cluster_id is None
        )
    return RestoredCluster(identity.cluster_id, source, made, [RestoredNode(config.directory, identity)], adoption)


def restore_cluster(
    snapshot: Path,
    path: Path,
    *,
    voters: int | None = None,
    observers: int | None = None,
    adopting: Adopting = NO_ADOPTION,
) -> RestoredCluster:
    """Make the directory of a local cluster, as `open_or_create` does, whose nodes all start from the snapshot.

    Raises as `restore_node` does, and ConfigurationError for counts that no local cluster has.
    """
    files, path = PosixFileSystem(), path.resolve()
    if files.exists(str(path)) and (found := files.list_directory(str(path))):
        advice = _ADVICE if CLUSTER_FILE in found else _ADVICE_IF_HALF_MADE
        raise DirectoryError(f"{path} is not empty, it holds {', '.join(found[:5])}; {advice}")
    with (
        _beginning(snapshot, adopting) as (reader, source, adoption),
        TemporaryDirectory(prefix="kraftlog-restore-") as elsewhere,
        _flushes_that_fail(),
    ):
        # A cluster directory may be moved: its files are those of a cluster created elsewhere, with other data.
        keeps = adopting.keeps_cluster_id
        kept_id = reader.header.cluster_id if keeps else None
        cluster = open_or_create(Path(elsewhere) / "cluster", voters=voters, observers=observers, cluster_id=kept_id)
        nodes = [
            RestoredNode(
                path / cluster.data_path(node_id).name,
                DirectoryIdentity(cluster_id=cluster.cluster_id, node_id=node_id, directory_id=random_uuid()),
            )
            for node_id in cluster.endpoints
        ]
        voter_set = VoterSet(
            Voter(
                ReplicaKey(node.identity.node_id, node.identity.directory_id), cluster.endpoints[node.identity.node_id]
            )
            for node in nodes
            if node.identity.node_id in cluster.voter_ids
        )
        for node in nodes:
            made = restore_directory(files, str(node.path), reader, node.identity, voter_set, keeps_cluster_id=keeps)
        files.make_directories(str(path / "logs"))
        for file in (*map(cluster.config_path, cluster.endpoints), cluster.path / CLUSTER_FILE):
            write_new_file(files, str(path / file.name), file.read_bytes())
    return RestoredCluster(cluster.cluster_id, source, made, nodes, adoption)


def planned_adoption(snapshot: Path, adopting: Adopting) -> Adoption:
    """The outcome for partitions and logs. Makes nothing, and raises as `restore_node` does."""
    with usable_snapshot(snapshot) as (reader, _), adopted_snapshot(reader, adopting) as (_, adoption):
        return adoption


@contextmanager
def _beginning(snapshot: Path, adopting: Adopting) -> Iterator[tuple[SnapshotReader, SnapshotSummary, Adoption | None]]:
    """The first snapshot of the cluster, and the given one."""
    with usable_snapshot(snapshot) as (reader, source):
        if not adopting:
            yield reader, source, None
            return
        with adopted_snapshot(reader, adopting) as (adopted, adoption):
            _load_for_a_trial(adopted)
            yield adopted, source, adoption


@contextmanager
def usable_snapshot(path: Path) -> Iterator[tuple[SnapshotReader, SnapshotSummary]]:
    """A snapshot that a cluster can start from, open.

    Reads all of it twice: to check that it is whole, and to load it into a database as a test. Raises StorageError if
    it cannot be read or is not named like a snapshot, CorruptSnapshot if it is damaged or no node could load it.
    """
    try:
        with open_snapshot(path) as reader:
            summary = reader.verify()
            _load_for_a_trial(reader)
            yield reader, summary
    except CorruptSnapshot as error:
        raise CorruptSnapshot(f"{error}; restore from another copy or an older snapshot") from None


def restore_directory(
    files: FileSystem,
    path: str,
    source: SnapshotReader,
    identity: DirectoryIdentity,
    voters: VoterSet | None = None,
    *,
    keeps_cluster_id: bool = False,
) -> SnapshotSummary:
    """Make `path` a data directory that starts with the content of `source`; return the snapshot in it. The new cluster
    does not have the old cluster's voters: its voters are `voters`, if they are known by directory ids, which
    `keeps_cluster_id` requires.

    Raises as `restore_node` does. A crash leaves the whole directory, or one without identity, which does not start.
    """
    if keeps_cluster_id and voters is None:
        raise ConfigurationError(
            "a cluster that keeps its id must know its voters by new directory ids, or a returning former voter"
            " would count as a voter; give --initial-controllers"
        )
    if not keeps_cluster_id and identity.cluster_id == source.header.cluster_id:
        raise ConfigurationError(
            f"{identity.cluster_id} is the id of the cluster that {source.path} is from; use a new one, which"
            " `kraftlog random-uuid` prints"
        )
    snapshot_id = _new_id(source.snapshot_id)
    _refuse_unless_empty(files, path)  # before the lock, whose file would remain
    files.make_directories(path)
    lock = files.try_lock(join(path, LOCK_NAME))
    if lock is None:
        raise DirectoryError(f"{path} is in use by another process; stop it first, or name another directory")
    with closing(lock):
        _refuse_unless_empty(files, path)
        if voters is not None:
            write_bootstrap(files, join(path, SNAPSHOTS_NAME), identity.cluster_id, voters)
        made = _write_snapshot(files, join(path, SNAPSHOTS_NAME), snapshot_id, source, identity.cluster_id)
        files.make_directories(join(path, LOG_NAME))
        write_log_start(files, join(path, LOG_NAME), snapshot_id)
        with closing(QuorumStateStore(files, path)) as quorum_state:
            quorum_state.load()
            quorum_state.save(ElectionState(epoch=snapshot_id.epoch))
        write_new_file(files, join(path, META_NAME), encode_meta(identity))
    return made


def _new_id(old: OffsetAndEpoch) -> OffsetAndEpoch:
    epoch = old.epoch + EPOCH_JUMP
    return OffsetAndEpoch(epoch=Epoch(epoch if epoch <= EPOCH_MAX else 1), offset=old.offset)


def _load_for_a_trial(reader: SnapshotReader) -> None:
    """Raise CorruptSnapshot if no node could load the snapshot."""
    if reader.snapshot_id.offset == 0:
        raise CorruptSnapshot(f"the snapshot {reader.path} ends at offset 0, so it is empty")
    with TemporaryDirectory(prefix="kraftlog-restore-") as directory:
        path = Path(directory) / "metadata.db"
        with closing(open_database(path, reader.header.cluster_id).conn) as connection:
            connection.execute("PRAGMA journal_mode = MEMORY")  # it is not needed after a crash
            connection.execute("PRAGMA synchronous = OFF")
            load_image(reader, MetadataTables(connection, name=str(path)))


def _write_snapshot(
    files: FileSystem, directory: str, snapshot_id: OffsetAndEpoch, source: SnapshotReader, cluster_id: str
) -> SnapshotSummary:
    """Write the content of `source` under another id and for another cluster, and read it back."""
    snapshots = SnapshotStore(files, directory)
    header = SnapshotHeader(source.header.last_contained_log_timestamp_ms, cluster_id)
    writer = snapshots.create(snapshot_id, header)
    if writer is None:
        raise DirectoryError(f"{directory} already holds a snapshot; {_ADVICE}")
    with writer:
        for batch in source.batches():
            writer.append(batch_body(batch), batch.record_count)
        writer.freeze()
    with snapshots.open(snapshot_id) as reader:
        return reader.verify()


def _refuse_unless_empty(files: FileSystem, path: str) -> None:
    """Raises DirectoryError if a node's data directory cannot be made there. Changes nothing."""
    found = set(files.list_directory(path)) if files.exists(path) else set()
    others = sorted(found - {LOCK_NAME, META_NAME + TEMPORARY_SUFFIX})
    if META_NAME in others:
        meta_path = join(path, META_NAME)
        owner = decode_meta(read_whole(files, meta_path), meta_path)
        raise DirectoryError(f"{path} is formatted, for node {owner.node_id} of cluster {owner.cluster_id}; {_ADVICE}")
    if others:
        raise DirectoryError(f"{path} is not empty, it holds {', '.join(others[:5])}; {_ADVICE_IF_HALF_MADE}")


@contextmanager
def _flushes_that_fail() -> Iterator[None]:
    """Turn a failed flush into an ordinary error: the directory is not yet in use."""
    try:
        yield
    except FlushFailed as error:
        raise StorageError(f"{error}; check the disk, and restore into another directory") from None
