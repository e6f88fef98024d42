"""A broker's own directory: which broker owns it, which process uses it, and how the broker was shut down.

    DIR/.lock              held while a broker uses the directory
    DIR/meta.properties    cluster, broker and directory id, as in a node's directory (raft.storage.directory)
    DIR/clean-shutdown     the epoch of the last registration, if the broker is down after a clean shutdown
    DIR/adopted-as         the incarnation as which it first registers in a cluster that has adopted it
    DIR/has-log-directories    made at the broker's first start, when it has made its log directories

A broker that starts for the first time knows no cluster. Once it has found one, it claims the directory for that
cluster, and from then on the controller of any other cluster refuses the broker (INCONSISTENT_CLUSTER_ID). `kraftlog
brokers adopt` moves the directory to a cluster that was restored.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from kraftbase.files.files import FileSystem, join, write_new_file
from kraftbase.files.properties import encode_properties
from kraftbase.types import DirectoryId, NodeId
from kraftlog.broker.adopted_incarnation import adopted_incarnation, forget_adopted_incarnation
from kraftlog.broker.clean_shutdown import leave_clean_epoch, take_clean_epoch
from raft.storage.directory import META_NAME, DataDirectory

HAS_LOG_DIRECTORIES_NAME: Final = "has-log-directories"


class BrokerDirectory:
    """The directory of one running broker; locked from `open` if a broker owns it already, else from `claim`."""

    def __init__(self, files: FileSystem, path: str, broker_id: int) -> None:
        """Use `open`."""
        self._files = files
        self._path = path
        self._broker_id = NodeId(broker_id)
        self._data: DataDirectory | None = None
        self.clean_epoch: int | None = None
        """The broker's epoch at its last clean shutdown; None if the last shutdown was not clean, or it never ran."""
        self.adopted_incarnation: UUID | None = None
        """The incarnation as which an adopted broker registers; None if it is not adopted, or has registered since."""

    @classmethod
    def open(cls, files: FileSystem, path: str, broker_id: int) -> BrokerDirectory:
        """Make the directory if it does not exist, and read what the broker left in it.

        Raises DirectoryError if another broker owns it or a process uses it; StorageError, also if it is not a
        directory.
        """
        directory = cls(files, path, broker_id)
        if files.exists(join(path, META_NAME)):
            directory._data = DataDirectory.open(files, path, node_id=directory._broker_id)
        try:
            directory.clean_epoch = take_clean_epoch(files, path)
            directory.adopted_incarnation = adopted_incarnation(files, path)
        except BaseException:
            directory.close()
            raise
        return directory

    @property
    def cluster_id(self) -> str | None:
        """The cluster of the broker that owns the directory; None if no broker does."""
        return None if self._data is None else self._data.identity.cluster_id

    @property
    def directory_id(self) -> DirectoryId | None:
        """The id with which the directory was claimed; None if no broker owns it."""
        return None if self._data is None else self._data.identity.directory_id

    @property
    def is_open(self) -> bool:
        """Whether this broker uses the directory: it is claimed and not closed."""
        return self._data is not None

    def claim(self, cluster_id: str, directory_id: DirectoryId) -> None:
        """Make this the directory of a broker of the cluster, for ever; nothing changes if a broker owns it already.

        Raises DirectoryError if the directory is not empty or another process came first; StorageError;
        ConfigurationError if an id is invalid.
        """
        if self._data is None:
            DataDirectory.format(
                self._files,
                self._path,
                cluster_id=cluster_id,
                node_id=self._broker_id,
                directory_id=directory_id,
                ignore_formatted=True,
            )
            self._data = DataDirectory.open(self._files, self._path, cluster_id=cluster_id, node_id=self._broker_id)

    def forget_adoption(self) -> None:
        """Delete the adoption: the broker has registered, and its log directories know it. Raises StorageError."""
        if self.adopted_incarnation is not None:
            forget_adopted_incarnation(self._files, self._path)
            self.adopted_incarnation = None

    @property
    def has_log_directories(self) -> bool:
        """Whether the broker has had log directories: if so, one that is empty now has lost its content."""
        return self._files.exists(join(self._path, HAS_LOG_DIRECTORIES_NAME))

    def note_log_directories(self) -> None:
        """Record, durably, that the broker has log directories from now on. Raises StorageError."""
        if not self.has_log_directories:
            write_new_file(self._files, join(self._path, HAS_LOG_DIRECTORIES_NAME), encode_properties("version=1\n"))

    def trust_clean_epoch_of_logs(self, clean_epoch: int | None) -> None:
        """Forget the clean epoch unless all log directories have the same one, `clean_epoch` (KIP-966).

        Consider a broker that was shut down cleanly, and then gets an empty disk for its logs. By its own directory it
        has lost nothing; so it would stay eligible, could be elected, and other replicas would truncate acknowledged
        records.
        """
        if self.clean_epoch != clean_epoch:
            self.clean_epoch = None

    def close(self, clean_epoch: int | None = None) -> None:
        """Unlock the directory. If `clean_epoch` is given, write it for the next start first. Raises StorageError."""
        try:
            if clean_epoch is not None:
                leave_clean_epoch(self._files, self._path, clean_epoch)
        finally:
            if self._data is not None:
                self._data.close()
                self._data = None
