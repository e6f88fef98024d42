"""The tables of records that only Kafka uses: credentials, delegation tokens, and what was left of ZooKeeper.

They arrive with a snapshot imported from a Kafka cluster, and leave with a checkpoint exported to one. Nothing else
uses them; no command, statement or publisher shows their content.
"""

from __future__ import annotations

from typing import Final

from kraftpb.v1.metadata_pb2 import OpaqueRecord
from statemachine.tables.table import Table


def _opaque_table(name: str, kind: str) -> Table[OpaqueRecord]:
    return Table(
        name=name,
        key=("key",),
        columns=("key", "value"),
        kind=kind,
        key_of=lambda record: (record.key,),
        to_row=lambda record: (record.key, record.value),
        from_row=lambda row: OpaqueRecord(key=row[0], value=row[1]),
    )


SCRAM_CREDENTIALS: Final = _opaque_table("scram_credentials", "user_scram_credential")
DELEGATION_TOKENS: Final = _opaque_table("delegation_tokens", "delegation_token")
ZK_MIGRATION_STATES: Final = _opaque_table("zk_migration_states", "zk_migration_state")

OPAQUE_TABLES: Final = (SCRAM_CREDENTIALS, DELEGATION_TOKENS, ZK_MIGRATION_STATES)
OPAQUE_NAMES: Final = frozenset(table.name for table in OPAQUE_TABLES)
