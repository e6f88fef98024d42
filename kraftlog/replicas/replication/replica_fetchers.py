"""Makes the replicas on this broker follow their leaders, with one fetcher for each leading broker."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from kraftlog.replicas.replication.fetch_session import PartitionKey
from kraftlog.replicas.replication.followed_partition import FollowedPartition
from kraftlog.replicas.replication.follower import Follower
from kraftlog.replicas.replication.ports import Followable
from kraftlog.replicas.replication.replica_fetcher import ReplicaFetcher


class ReplicaFetchers:
    """The fetchers of one broker, driven by committed metadata. For one thread."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._sources: dict[PartitionKey, ReplicaFetcher] = {}
        self._is_tidying = False
        self._is_stopped = False

    def __len__(self) -> int:
        """The number of brokers from which this one fetches."""
        return len(self._fetchers)

    def __iter__(self) -> Iterator[FollowedPartition]:
        """Iterate over all followed partitions."""
        return chain.from_iterable(self._fetchers.values())

    def follow(self, partition: Followable) -> None:
        """Follow the leader of the partition's present leader epoch from now on."""
        key = PartitionKey(partition.topic_id, partition.name.partition_id)
        source_id = partition.record.leader
        self._leave(key, source_id)
        if self._is_stopped:
            return
        fetcher = self._fetchers.get(source_id)
        if fetcher is None:
            fetcher = self._fetchers[source_id] = ReplicaFetcher(source_id, self._follower)
        self._sources[key] = fetcher
        fetcher.follow(key, partition)

    def unfollow(self, partition: Followable) -> None:
        """Stop following a partition, if it is followed; nothing more is appended to its log."""
        self._leave(PartitionKey(partition.topic_id, partition.name.partition_id), None)

    def stop(self) -> None:
        """Stop following all partitions, for good."""
        self._is_stopped = True
        for fetcher in self._fetchers.values():
            fetcher.stop()
        self._fetchers.clear()
        self._sources.clear()

    def _leave(self, key: PartitionKey, new_source_id: int | None) -> None:
        """Stop fetching a partition from its present source, unless the new source is the same."""
        fetcher = self._sources.get(key)
        if fetcher is None or fetcher.source_id == new_source_id:
            return
        del self._sources[key]
        fetcher.unfollow(key)
        if not len(fetcher) and not self._is_tidying:
            self._is_tidying = True
            self._follower.runtime.call_soon(self._tidy)

    def _tidy(self) -> None:
        """Stop fetchers without partitions, after a change of the metadata was applied completely."""
        self._is_tidying = False
        for source_id, fetcher in list(self._fetchers.items()):
            if not len(fetcher):
                fetcher.stop()
                del self._fetchers[source_id]
