"""A broker's own directory: which broker owns it, that no other process uses it, and how the broker was shut down.

    DIR/.lock              held while a broker uses the directory
    DIR/meta.properties    cluster, broker and directory id, as in a node's directory (raft.storage.directory)
    DIR/clean-shutdown     the epoch of the last registration, while the broker is down after a clean shutdown
    DIR/adopted-as         the incarnation as which it registers first in a cluster that has adopted it
    DIR/has-log-directories    there from the broker's first start on, when its log directories were made

A broker that starts for the first time knows no cluster: the directory becomes its own when it has found one, and from
then on no other cluster's controller accepts the broker (INCONSISTENT_CLUSTER_ID). `kraftlog brokers adopt` moves it to
a cluster that was restored.
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
    """The directory of one running broker; locked from `open` if some broker owns it by then, else from `claim`."""

    def __init__(self, files: FileSystem, path: str, broker_id: int) -> None:
        """Use `open`."""
        self._files = files
        self._path = path
        self._broker_id = NodeId(broker_id)
        self._data: DataDirectory | None = None
        self.clean_epoch: int | None = None
        """The epoch that the broker had at its clean shutdown; None if it had none, or never ran."""
        self.adopted_incarnation: UUID | None = None
        """As which the broker registers; None if the cluster has not adopted it, or it has registered there since."""

    @classmethod
    def open(cls, files: FileSystem, path: str, broker_id: int) -> BrokerDirectory:
        """Make it if it does not exist, and read what the broker left in it.

        Raises DirectoryError if another broker owns it or a process uses it; StorageError, also if it is no directory.
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
        """The cluster of the broker that owns it, None if none does."""
        return None if self._data is None else self._data.identity.cluster_id

    @property
    def directory_id(self) -> DirectoryId | None:
        """The id that the directory was claimed with; None if no broker owns it."""
        return None if self._data is None else self._data.identity.directory_id

    @property
    def is_open(self) -> bool:
        """Whether it is in use by this broker, from `claim` to `close`."""
        return self._data is not None

    def claim(self, cluster_id: str, directory_id: DirectoryId) -> None:
        """Make it the directory of that cluster's broker, for ever; one that a cluster's broker owns stays as it is.

        Raises DirectoryError if it is not empty or another process came first; StorageError; ConfigurationError if an
        id is not valid.
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
        """The broker has registered, and its log directories say so. Raises StorageError."""
        if self.adopted_incarnation is not None:
            forget_adopted_incarnation(self._files, self._path)
            self.adopted_incarnation = None

    @property
    def has_log_directories(self) -> bool:
        """Whether the broker has had log directories: then one that is empty now has lost what it had."""
        return self._files.exists(join(self._path, HAS_LOG_DIRECTORIES_NAME))

    def note_log_directories(self) -> None:
        """Note, durably, that the broker has log directories from now on. Raises StorageError."""
        if not self.has_log_directories:
            write_new_file(self._files, join(self._path, HAS_LOG_DIRECTORIES_NAME), encode_properties("version=1\n"))

    def trust_clean_epoch_of_logs(self, clean_epoch: int | None) -> None:
        """The broker was shut down cleanly only if its log directories say so, too: all, with the same epoch (KIP-966).

        Consider a broker that was shut down cleanly, and then gets an empty disk for its logs. By its own directory it
        has lost nothing; so it would stay eligible, be elected, and others would cut what was acknowledged.
        """
        if self.clean_epoch != clean_epoch:
            self.clean_epoch = None

    def close(self, clean_epoch: int | None = None) -> None:
        """Leave the epoch for the next start, if it is given, and unlock it. Raises StorageError."""
        try:
            if clean_epoch is not None:
                leave_clean_epoch(self._files, self._path, clean_epoch)
        finally:
            if self._data is not None:
                self._data.close()
                self._data = None
