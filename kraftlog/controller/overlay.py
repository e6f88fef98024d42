"""The state on which the active controller decides: its own records that are not yet applied, and under them SQLite.
Each read searches the overlay first, then the store. A record enters when its append is prepared, with the end offset
of that append, and leaves when the store has applied that offset; between the store's transaction and `drain` both hold
the same. Losing leadership drops everything. This is not a second copy of the metadata: it holds records in flight, and
a bounded cache of recent reads (`kraftlog.controller.read_cache`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, TypeVar, cast

from kraftbase.checks import check
from kraftbase.types import Offset
from kraftlog.controller.layer import Layer
from kraftlog.controller.read_cache import ReadCache
from kraftpb.v1.metadata_pb2 import MetadataRecord, PartitionRecord
from statemachine.apply.applied import CommittedMetadata
from statemachine.replay.replay import replay
from statemachine.replay.view import merged
from statemachine.tables.table import Condition, Key, Page, Table
from statemachine.tables.topic_tables import PARTITIONS, TOPICS

R = TypeVar("R")


_NOTHING: Final = Layer()

_Partitions = Iterable[tuple[Key, PartitionRecord]]


class Overlay:
    """The latest metadata, committed or not. A `View`. Used on the event loop's thread only."""

    def __init__(self, store: CommittedMetadata, cache: ReadCache | None = None) -> None:
        """`cache`: a cache with other bounds than the default ones."""
        self._store = store
        self._cache = ReadCache() if cache is None else cache
        self._cached_at = Offset(0)
        """The store's applied end offset when the cache was used last."""
        self._first_offset = Offset(0)
        """The base offset of the first append that entered."""
        self._layers: dict[Table[Any], Layer] = {}
        self.last_end_offset = Offset(0)
        """The end of the last append that entered."""
        self._entering = Offset(0)
        self._page: dict[Key, Any] = {}
        """Committed partitions of the last page: a decision on a page mostly changes all of it."""

    def __len__(self) -> int:
        """How many uncommitted records and removals it holds."""
        return sum(len(layer.entries) + len(layer.removed) for layer in self._layers.values())

    # --- the view -----------------------------------------------------------------------------------------------------

    def get(self, table: Table[R], key: Key) -> R | None:
        """The record with that key."""
        layer = self._layers.get(table)
        if layer is not None:
            entry = layer.entries.get(key)
            if entry is not None:
                found: R | None = entry.record
                return found
            if layer.is_removed(key) or (table is PARTITIONS and self._is_new_topic(key[0])):
                return None
        if table is PARTITIONS and key in self._page:
            return cast(R, self._page[key])
        cache = self._valid_cache()
        rows = cache.find_around(table, key)
        if rows is not None:
            return rows.get(key)
        stored = table.get(self._store.reader, key)
        cache.keep(table, key, [] if stored is None else [(key, stored)])
        return stored

    def _is_new_topic(self, topic_id: bytes) -> bool:
        """Whether a topic is uncommitted: then so are all its partitions."""
        topics = self._layers.get(TOPICS)
        entry = None if topics is None else topics.entries.get((topic_id,))
        return entry is not None and entry.record is not None

    def find(
        self, table: Table[R], prefix: Key = (), after: Key | None = None, limit: int = -1, end: Key | None = None
    ) -> Iterator[tuple[Key, R]]:
        """The records whose key begins with `prefix` and is above `after`, up to `end`: see `View`."""
        if after is not None or limit >= 0 or end is not None:
            return iter(self._found(table, prefix, after, limit, end))
        cache = self._valid_cache()
        rows = cache.find(table, prefix)
        if rows is not None:
            return iter(list(rows.items()))  # the cache may change before the caller requests the next one
        found = self._found(table, prefix, after, limit, end)
        cache.keep(table, prefix, found)
        return iter(found)

    # Consider a controller whose appends since it became active have the offsets 101 to 110, and a cache that was used
    # last when the store had applied everything below 104. Now the store has more:
    #
    #     below 107   104 to 106 were in the layers before, and changed the answers as they came: all of them stay right
    #     below 115   111 to 114 never were here: another controller's, one by one or in a snapshot, and this one does
    #                 not know yet that it no longer leads
    #
    # If the cache was used last when the store had applied everything below 99, offsets 99 and 100 never were here
    # either. In both cases everything is forgotten. A control record looks like a record of another controller; then
    # everything is forgotten needlessly.
    #
    # If another controller's records are in the place of 104 to 110, the layers are as wrong as the answers, until this
    # one learns that it no longer leads: what it decides until then is refused by the log, and `clear` follows.
    def _valid_cache(self) -> ReadCache:
        """The cache, emptied if the store has changed by records that did not enter this overlay."""
        applied = self._store.applied_end_offset
        if applied != self._cached_at:
            if not self._first_offset <= self._cached_at < applied <= self.last_end_offset:
                self._cache.clear()
            self._cached_at = applied
        return self._cache

    def _found(
        self, table: Table[R], prefix: Key, after: Key | None, limit: int, end: Key | None
    ) -> list[tuple[Key, R]]:
        layer = self._layers.get(table) or _NOTHING
        # All rows at once: an unfinished statement would keep SQLite from checkpointing its write-ahead log, and the
        # layer may change before the caller requests the next row.
        stored = self._stored(table, layer, prefix, after, limit, end)
        if limit >= 0:
            self._keep_page(table, stored)
        partitions = self._partitions_removed(table)
        found = merged(stored, layer.behind(prefix, after, end), layer.entries)
        left = found if partitions is None else (entry for entry in found if not partitions(entry[1]))
        return list(left if limit < 0 else islice(left, limit))

    def scan(self, table: Table[R], condition: Condition[R], after: Key | None, limit: int) -> Page[R]:
        """Find records that meet `condition` among those above `after`, by key; a page has at most `limit`."""
        layer = self._layers.get(table) or _NOTHING
        stored = table.scan(self._store.reader, condition, after, limit)
        self._keep_page(table, stored.found)
        own = (
            (key, record if record is not None and condition.holds(record) else None)
            for key, record in layer.behind((), after, stored.end)
        )
        kept = (entry for entry in stored.found if not layer.is_removed(entry[0]))
        found = list(islice(merged(kept, own, layer.entries), limit + 1))
        return Page(found, stored.end) if len(found) <= limit else Page(found[:limit], found[limit - 1][0])

    def _keep_page(self, table: Table[R], stored: Iterable[tuple[Key, R]]) -> None:
        """Kept until something changes. Uncommitted changes are looked up before this."""
        if table.name == PARTITIONS.name:
            self._page = {(record.topic_id, record.partition_id): record for _, record in cast(_Partitions, stored)}

    def _stored(
        self, table: Table[R], layer: Layer, prefix: Key, after: Key | None, wanted: int, end: Key | None
    ) -> list[tuple[Key, R]]:
        """The committed rows that are unchanged: at least `wanted` of them, if there are that many; -1: all."""
        is_gone = self._partitions_removed(table)
        found: list[tuple[Key, R]] = []
        while True:
            some = list(table.find(self._store.reader, prefix, after, wanted, end))
            found += [
                (key, record)
                for key, record in some
                if key not in layer.entries
                and not layer.is_removed(key)
                and not (is_gone is not None and is_gone(record))
            ]
            if wanted < 0 or len(some) < wanted or len(found) >= wanted:
                return found
            after = some[-1][0]

    def _partitions_removed(self, table: Table[R]) -> Callable[[R], bool] | None:
        """Returns a test for rows derived from partitions: whether they are removed with a topic. None if none are.

        Such rows are not removed one by one.
        """
        partitions = self._layers.get(PARTITIONS)
        partition_of = table.partition_of
        if partition_of is None or partitions is None or not partitions.removed:
            return None
        return lambda record: partitions.is_removed(partition_of(record))

    def put(self, table: Table[R], record: R) -> None:
        """Set the record, by the append that is entering."""
        key = table.key_of(record)
        self._layer(table).put(key, record, self._entering)
        self._cache.put(table, key, record)

    def remove(self, table: Table[R], key: Key) -> None:
        """Remove the record with that key."""
        self._layer(table).put(key, None, self._entering)
        self._cache.remove(table, key)

    def remove_all(self, table: Table[R], prefix: Key) -> None:
        """Remove every record whose key begins with `prefix`."""
        self._layer(table).remove_all(prefix, self._entering)
        self._cache.remove_all(table)

    def _layer(self, table: Table[Any]) -> Layer:
        """The layer of a table that is about to change."""
        layer = self._layers.get(table)
        if layer is None:
            layer = self._layers[table] = Layer()
        return layer

    # --- changes ------------------------------------------------------------------------------------------------------

    # Consider partition 0 of topic a, which broker 1 leads in leader epoch 0, and a store that has applied everything
    # below offset 100. Three operations are appended, and none of them is committed yet:
    #
    #     end offset 101   a-0 is led by broker 2
    #     end offset 104   topic b is created, with partitions 0 and 1
    #     end offset 105   a-0 is led by broker 3
    #
    # A change of a partition is replayed over what this view has: the first one makes leader epoch 1 of SQLite's 0, the
    # second one 2 of the overlay's 1. The stores get the same when they replay the same records in the same order, so
    # the leader epoch in an answer is the one that every node will have.
    #
    # The overlay now has a-0 as of 105 and topic b as of 104. The store applies the first append. SQLite has broker 2,
    # and `drain(101)` leaves a-0 in the overlay, since a later append has set it: reads still find broker 3. When the
    # store has applied everything below 105, but `drain(105)` has not been called, both have broker 3 in leader epoch
    # 2, and it does not matter which of them is read.
    def replay(self, records: Iterable[MetadataRecord], end_offset: Offset) -> None:
        """Add the records of one prepared append, which ends at `end_offset`. Raises ReplayError."""
        check(end_offset > self.last_end_offset, "appends enter the overlay in order", end_offset=end_offset)
        self._entering = end_offset
        records = list(records)
        base_offset = Offset(end_offset - len(records))
        if self.last_end_offset == 0:
            self._first_offset = base_offset
        replay(self, records, base_offset)
        self._page = {}
        self.last_end_offset = end_offset

    def drain(self, applied_end_offset: Offset) -> None:
        """Drop the records that the store has applied."""
        self._page = {}
        for layer in self._layers.values():
            layer.drain(applied_end_offset)

    def clear(self) -> None:
        """Drop everything: this controller will not commit it, or another controller has changed the store below."""
        self._cache.clear()
        self._layers.clear()
        self._page = {}
        self.last_end_offset = Offset(0)
