"""The tables of a node's metadata database, as SQL (docs/formats/metadata.md, docs/sql.md).

All are STRICT. Ids are the 22 characters that Kafka prints; lists are JSON arrays, for `json_each`; flags are 0 or 1.
"""

from __future__ import annotations

from typing import Final

OPAQUE_STATEMENTS: Final = tuple(
    f"CREATE TABLE {name} (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID"
    for name in ("scram_credentials", "delegation_tokens", "zk_migration_states")
)
"""Of records that only Kafka uses; see `statemachine.tables.opaque_tables`."""

TABLE_STATEMENTS: Final = (
    """
    CREATE TABLE topics (
        topic_id TEXT PRIMARY KEY,
        name TEXT NOT NULL UNIQUE
    ) STRICT, WITHOUT ROWID
    """,
    # Names that differ only in '.' and '_' collide: this finds them.
    "CREATE INDEX topics_by_collision ON topics (replace(name, '.', '_'))",
    """
    CREATE TABLE partitions (
        topic_id TEXT NOT NULL,
        partition_id INTEGER NOT NULL,
        leader INTEGER NOT NULL,
        leader_epoch INTEGER NOT NULL,
        partition_epoch INTEGER NOT NULL,
        leader_recovery_state INTEGER NOT NULL,
        replicas TEXT NOT NULL,
        isr TEXT NOT NULL,
        removing_replicas TEXT NOT NULL,
        adding_replicas TEXT NOT NULL,
        directories TEXT NOT NULL,
        eligible_leader_replicas TEXT NOT NULL,
        last_known_elr TEXT NOT NULL,
        PRIMARY KEY (topic_id, partition_id)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX partitions_by_leader ON partitions (leader, topic_id, partition_id)",
    """
    CREATE INDEX partitions_with_elr ON partitions (topic_id, partition_id)
        WHERE eligible_leader_replicas || last_known_elr != '[][]'
    """,
    """
    CREATE TABLE brokers (
        broker_id INTEGER PRIMARY KEY,
        broker_epoch INTEGER NOT NULL,
        incarnation_id TEXT NOT NULL,
        rack TEXT,
        fenced INTEGER NOT NULL,
        in_controlled_shutdown INTEGER NOT NULL,
        listeners TEXT NOT NULL,
        log_dirs TEXT NOT NULL,
        features TEXT NOT NULL,
        unclean_shutdown INTEGER NOT NULL,
        cordoned_log_dirs TEXT NOT NULL DEFAULT '[]',
        last_unfenced_epoch INTEGER,
        older_log_dirs TEXT NOT NULL DEFAULT '[]',
        unfenced_log_dirs TEXT NOT NULL DEFAULT '{}',
        full_log_dirs TEXT NOT NULL DEFAULT '[]'
    ) STRICT
    """,
    """
    CREATE TABLE controllers (
        controller_id INTEGER PRIMARY KEY,
        incarnation_id TEXT NOT NULL,
        listeners TEXT NOT NULL,
        features TEXT NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE features (
        name TEXT PRIMARY KEY,
        level INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE configs (
        resource_type INTEGER NOT NULL,
        resource_name TEXT NOT NULL,
        name TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (resource_type, resource_name, name)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE client_quotas (
        entity TEXT NOT NULL,
        key TEXT NOT NULL,
        value REAL NOT NULL,
        PRIMARY KEY (entity, key)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE producer_ids (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        broker_id INTEGER NOT NULL,
        broker_epoch INTEGER NOT NULL,
        next_producer_id INTEGER NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE acls (
        id TEXT PRIMARY KEY,
        resource_type INTEGER NOT NULL,
        resource_name TEXT NOT NULL,
        pattern_type INTEGER NOT NULL,
        principal TEXT NOT NULL,
        host TEXT NOT NULL,
        operation INTEGER NOT NULL,
        permission_type INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
    # An entry that exists already is not created again: this finds it.
    """
    CREATE INDEX acls_by_content ON acls (
        resource_type, resource_name, pattern_type, principal, host, operation, permission_type
    )
    """,
    """
    CREATE TABLE remote_segments (
        topic_id TEXT NOT NULL,
        partition_id INTEGER NOT NULL,
        segment_id TEXT NOT NULL,
        start_offset INTEGER NOT NULL,
        end_offset INTEGER NOT NULL,
        state INTEGER NOT NULL,
        broker_id INTEGER NOT NULL,
        max_timestamp_ms INTEGER NOT NULL,
        event_timestamp_ms INTEGER NOT NULL,
        size_bytes INTEGER NOT NULL,
        leader_epochs TEXT NOT NULL,
        custom_metadata BLOB,
        txn_index_empty INTEGER NOT NULL,
        PRIMARY KEY (topic_id, partition_id, segment_id)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE remote_segment_epochs (
        topic_id TEXT NOT NULL,
        partition_id INTEGER NOT NULL,
        leader_epoch INTEGER NOT NULL,
        start_offset INTEGER NOT NULL,
        segment_id TEXT NOT NULL,
        end_offset INTEGER NOT NULL,
        is_referenced INTEGER NOT NULL,
        PRIMARY KEY (topic_id, partition_id, leader_epoch, start_offset, segment_id)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE remote_epoch_ends (
        topic_id TEXT NOT NULL,
        partition_id INTEGER NOT NULL,
        leader_epoch INTEGER NOT NULL,
        highest_offset INTEGER NOT NULL,
        PRIMARY KEY (topic_id, partition_id, leader_epoch)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE remote_partition_deletes (
        topic_id TEXT NOT NULL,
        partition_id INTEGER NOT NULL,
        state INTEGER NOT NULL,
        broker_id INTEGER NOT NULL,
        event_timestamp_ms INTEGER NOT NULL,
        PRIMARY KEY (topic_id, partition_id)
    ) STRICT, WITHOUT ROWID
    """,
    *OPAQUE_STATEMENTS,
    """
    CREATE TABLE applied (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        cluster_id TEXT NOT NULL,
        end_offset INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        timestamp_ms INTEGER NOT NULL,
        digest TEXT NOT NULL,
        state_digest_end_offset INTEGER,
        state_digest TEXT,
        diverged TEXT,
        row_sums BLOB
    ) STRICT
    """,
)
