"""The tables say what the log does."""

from __future__ import annotations

import json
import sqlite3
from typing import Any, Final

from sim.invariants.invariant import Invariant
from sim.observation import Observed, Step
from sim.plain_metadata import PlainMetadata
from statemachine.ids import id_to_text

STEPS_BETWEEN_LOOKS: Final = 6
"""Reading all rows takes as long as a step: one in so many applies is looked at, and the end of the run."""


class RowsAreTheLog(Invariant):
    """What a node has in SQLite is what a plain model of the committed log comes to at the same offset.

    A node whose state machine a fault made differ is left out, as is one that is not exactly as far as the model.
    """

    number = 57
    title = "the tables say what the log does"
    source = "(own); etcd #13766, KAFKA-14275"
    looks_at = frozenset({"deliveries"})
    is_about_brokers = True

    def __init__(self, world: Observed) -> None:
        super().__init__(world)
        self._until_look = STEPS_BETWEEN_LOOKS

    def after_step(self, step: Step) -> None:
        """Now and then, look at a node that has applied something."""
        self._until_look -= 1
        if self._until_look <= 0 and self._look(step.node.node_id):
            self._until_look = STEPS_BETWEEN_LOOKS

    def at_end(self) -> None:
        """Look at all of them."""
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
                    f"node {node_id} has applied {metadata.end_offset} and has these {table}: {only_found}, where the"
                    f" log says {only_expected}"
                )
        return True


def rows_in(tables: sqlite3.Connection) -> dict[str, set[Any]]:
    """The rows that the model has too."""
    return {name: set(tables.execute(query).fetchall()) for name, query in _QUERIES.items()}


def rows_of(metadata: PlainMetadata) -> dict[str, set[Any]]:
    """The rows that there must be."""
    partitions = {
        (id_to_text(topic_id), partition_id): partition
        for (topic_id, partition_id), partition in metadata.partitions.items()
    }
    return {
        "topics": {(id_to_text(topic_id), name) for topic_id, name in metadata.topics.items()},
        "partitions": {
            (
                *key,
                one.leader,
                one.leader_epoch,
                one.partition_epoch,
                one.recovery_state,
                _listed(one.replicas),
                _listed(one.isr),
                _listed(one.elr),
                _listed(one.last_known_elr),
                _listed(one.adding),
                _listed(one.removing),
                _listed(map(id_to_text, one.directories)),
            )
            for key, one in partitions.items()
        },
        "brokers": {
            (
                broker_id,
                one.epoch,
                id_to_text(one.incarnation_id),
                int(one.fenced),
                int(one.shutting_down),
                _listed(map(id_to_text, one.log_dirs)),
                int(one.unclean_shutdown),
            )
            for broker_id, one in metadata.brokers.items()
        },
        "configs": {(*key, value) for key, value in metadata.configs.items()},
        "features": set(metadata.features.items()),
        "remote_segments": {
            (id_to_text(key[0]), key[1], id_to_text(key[2]), one.start_offset, one.end_offset, one.state)
            for key, one in metadata.segments.items()
        },
    }


_QUERIES: Final = {
    "topics": "SELECT topic_id, name FROM topics",
    "partitions": "SELECT topic_id, partition_id, leader, leader_epoch, partition_epoch, leader_recovery_state,"
    " replicas, isr, eligible_leader_replicas, last_known_elr, adding_replicas, removing_replicas, directories"
    " FROM partitions",
    "brokers": "SELECT broker_id, broker_epoch, incarnation_id, fenced, in_controlled_shutdown, log_dirs,"
    " unclean_shutdown FROM brokers",
    "configs": "SELECT resource_type, resource_name, name, value FROM configs",
    "features": "SELECT name, level FROM features",
    "remote_segments": "SELECT topic_id, partition_id, segment_id, start_offset, end_offset, state"
    " FROM remote_segments",
}


def _listed(values: Any) -> str:
    return json.dumps(list(values))
