"""All tables that are written, in the order in which snapshots have them."""

from __future__ import annotations

from typing import Any, Final

from statemachine.tables.cluster_tables import (
    ACLS,
    BROKERS,
    CLIENT_QUOTAS,
    CONFIGS,
    CONTROLLERS,
    FEATURES,
    PRODUCER_IDS,
)
from statemachine.tables.opaque_tables import DELEGATION_TOKENS, SCRAM_CREDENTIALS, ZK_MIGRATION_STATES
from statemachine.tables.remote_log_tables import (
    REMOTE_EPOCH_ENDS,
    REMOTE_PARTITION_DELETES,
    REMOTE_SEGMENT_EPOCHS,
    REMOTE_SEGMENTS,
)
from statemachine.tables.table import Table
from statemachine.tables.topic_tables import PARTITIONS, TOPICS

TABLES: Final[tuple[Table[Any], ...]] = (
    FEATURES,
    CONTROLLERS,
    BROKERS,
    TOPICS,
    PARTITIONS,
    CONFIGS,
    CLIENT_QUOTAS,
    PRODUCER_IDS,
    ACLS,
    SCRAM_CREDENTIALS,
    DELEGATION_TOKENS,
    ZK_MIGRATION_STATES,
    REMOTE_EPOCH_ENDS,
    REMOTE_SEGMENTS,
    REMOTE_SEGMENT_EPOCHS,
    REMOTE_PARTITION_DELETES,
)
"""All tables that are written, in the order in which a snapshot has their records (SN-33)."""
