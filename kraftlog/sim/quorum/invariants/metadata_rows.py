"""The tables match the log."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Final

from kraftbase.ids import id_to_text
from kraftlog.sim.quorum.invariants.invariant import Invariant
from kraftlog.sim.quorum.model.keys import SegmentKey
from kraftlog.sim.quorum.model.metadata import MetadataModel, Partition
from kraftlog.sim.quorum.model.registrations import Broker, Listener, SupportedLevels
from kraftlog.sim.quorum.model.tiering import Segment, TieringModel
from kraftlog.sim.quorum.observation.observed import Observed
from kraftlog.sim.quorum.observation.step import Step

STEPS_BETWEEN_LOOKS: Final = 6
"""Only one apply in this many is checked, and the end of the run: reading all rows takes as long as a step.
"""

Row = tuple[Any, ...]
"""A row of a table, or its columns after the key."""


class RowsAreTheLog(Invariant):
    """A node's SQLite database holds what the model of the committed log holds at the same offset.

    Nodes whose state machine a fault made differ are left out, and so are nodes with another applied offset than the
    model.
    """

    number = 57
    title = "the tables match the log"
    source = "(own); etcd #13766, KAFKA-14275"
    looks_at = frozenset({"deliveries"})
    is_about_brokers = True

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._until_look = STEPS_BETWEEN_LOOKS

    def after_step(self, step: Step) -> None:
        """Check the node of the step if a check is due and it has the model's offset."""
        self._until_look -= 1
        if self._until_look <= 0 and self._look(step.node.node_id):
            self._until_look = STEPS_BETWEEN_LOOKS

    def at_end(self) -> None:
        """Check all nodes."""
        if self.world.brokers:
            for node_id in self.world.nodes:
                self._look(node_id)

    def _look(self, node_id: int) -> bool:
        node, metadata = self.world.nodes[node_id], self.world.metadata
        if node.tables is None or node.applied is None or node.has_diverged:
            return False
        if node.applied.end_offset != metadata.end_offset:
            return False
        found, expected = rows_in(node.tables), rows_of(metadata)
        for table, rows in expected.items():
            if found[table] != rows:
                only_found = sorted(map(repr, found[table] - rows))
                only_expected = sorted(map(repr, rows - found[table]))
                self.violated(
                    f"node {node_id} has applied {metadata.end_offset} and has these {table}: {only_found}, but the"
                    f" log has {only_expected}"
                )
        return True


def rows_in(tables: sqlite3.Connection) -> dict[str, set[Any]]:
    """Return the rows of the tables that the model has, too."""
    return {name: set(tables.execute(query).fetchall()) for name, query in _QUERIES.items()}


def rows_of(metadata: MetadataModel) -> dict[str, set[Any]]:
    """Return the rows that the model expects."""
    return {
        "topics": {(id_to_text(topic_id), name) for topic_id, name in metadata.topics.items()},
        "partitions": {(*_shown(key), *_of_partition(row)) for key, row in metadata.partitions.items()},
        "brokers": {(broker_id, *_of_broker(row)) for broker_id, row in metadata.brokers.items()},
        "controllers": {
            (controller_id, id_to_text(row.incarnation_id), _objects(row.listeners), _objects(row.features))
            for controller_id, row in metadata.controllers.items()
        },
        "configs": {(*key, value) for key, value in metadata.configs.items()},
        "features": set(metadata.features.items()),
        **tiering_rows(metadata.tiering),
    }


def tiering_rows(tiering: TieringModel) -> dict[str, set[Any]]:
    """Return the expected rows of tiered storage."""
    return {
        "remote_segments": {
            (*_shown(place), *_of_segment(place, row, tiering)) for place, row in tiering.segments.items()
        },
        "remote_segment_epochs": {
            (*_shown(place[:2]), *part, id_to_text(place[2]), int(tiering.is_found(place, part)))
            for place, row in tiering.segments.items()
            for part in row.parts()
        },
        "remote_epoch_ends": {
            (*_shown(epoch), index.highest_offset)
            for epoch, index in tiering.indexes.items()
            if index.highest_offset is not None
        },
        "remote_partition_deletes": {(*_shown(key), *removal) for key, removal in tiering.removals.items()},
    }


def _of_partition(partition: Partition) -> Row:
    return (
        partition.leader,
        partition.leader_epoch,
        partition.partition_epoch,
        partition.recovery_state,
        _listed(partition.replicas),
        _listed(partition.isr),
        _listed(partition.elr),
        _listed(partition.last_known_elr),
        _listed(partition.adding),
        _listed(partition.removing),
        _listed(map(id_to_text, partition.directories)),
    )


def _of_broker(broker: Broker) -> Row:
    return (
        broker.epoch,
        id_to_text(broker.incarnation_id),
        broker.rack,
        int(broker.fenced),
        int(broker.shutting_down),
        _objects(broker.listeners),
        _listed(map(id_to_text, broker.log_dirs)),
        _objects(broker.features),
        int(broker.unclean_shutdown),
        _listed(()),  # no log directory is cordoned
        broker.last_unfenced_epoch,
        _listed(map(id_to_text, broker.older_log_dirs)),
        json.dumps({id_to_text(name): epoch for name, epoch in broker.unfenced_log_dirs}),
        _listed(map(id_to_text, broker.full_log_dirs)),
    )


def _of_segment(place: SegmentKey, segment: Segment, tiering: TieringModel) -> Row:
    epochs = [(*entry, int((place, entry[0]) in tiering.replaced)) for entry in segment.leader_epochs]
    return (
        segment.start_offset,
        segment.end_offset,
        segment.state,
        segment.broker_id,
        segment.max_timestamp_ms,
        segment.event_timestamp_ms,
        segment.size_bytes,
        _listed(epochs),
        segment.custom_metadata,
        int(segment.txn_index_empty),
    )


_QUERIES: Final = {
    "topics": "SELECT topic_id, name FROM topics",
    "partitions": "SELECT topic_id, partition_id, leader, leader_epoch, partition_epoch, leader_recovery_state,"
    " replicas, isr, eligible_leader_replicas, last_known_elr, adding_replicas, removing_replicas, directories"
    " FROM partitions",
    "brokers": "SELECT broker_id, broker_epoch, incarnation_id, rack, fenced, in_controlled_shutdown, listeners,"
    " log_dirs, features, unclean_shutdown, cordoned_log_dirs, last_unfenced_epoch, older_log_dirs, unfenced_log_dirs,"
    " full_log_dirs FROM brokers",
    "controllers": "SELECT controller_id, incarnation_id, listeners, features FROM controllers",
    "configs": "SELECT resource_type, resource_name, name, value FROM configs",
    "features": "SELECT name, level FROM features",
    "remote_segments": "SELECT topic_id, partition_id, segment_id, start_offset, end_offset, state, broker_id,"
    " max_timestamp_ms, event_timestamp_ms, size_bytes, leader_epochs, custom_metadata, txn_index_empty"
    " FROM remote_segments",
    "remote_segment_epochs": "SELECT topic_id, partition_id, leader_epoch, start_offset, end_offset, segment_id,"
    " is_referenced FROM remote_segment_epochs",
    "remote_epoch_ends": "SELECT topic_id, partition_id, leader_epoch, highest_offset FROM remote_epoch_ends",
    "remote_partition_deletes": "SELECT topic_id, partition_id, state, broker_id, event_timestamp_ms"
    " FROM remote_partition_deletes",
}


def _shown(key: Sequence[Any]) -> Row:
    """Return a key with its ids as text."""
    return tuple(id_to_text(part) if isinstance(part, bytes) else part for part in key)


def _listed(values: Iterable[Any]) -> str:
    return json.dumps(list(values))


def _objects(values: Iterable[Listener | SupportedLevels]) -> str:
    return json.dumps([value._asdict() for value in values])
