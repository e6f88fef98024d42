"""Tables of a state machine in a SQLite database in memory: what simulated machines have in place of a file."""

from __future__ import annotations

import sqlite3
import weakref
from functools import cache

from statemachine.store.metadata_tables import STATE_DIGEST_INTERVAL_OFFSETS, MetadataTables
from statemachine.tables.database import create_in


def tables_in_memory(image: bytes, *, digest_interval: int = STATE_DIGEST_INTERVAL_OFFSETS) -> MetadataTables:
    """The tables of a database whose bytes are `image`. The connection is closed when nothing refers to the tables."""
    connection = connect(image)
    try:
        tables = MetadataTables(connection, digest_interval=digest_interval)
    except BaseException:
        connection.close()
        raise
    weakref.finalize(tables, connection.close)
    return tables


def connect(image: bytes) -> sqlite3.Connection:
    """A connection to a database in memory whose bytes are `image`. The caller closes it, in any thread."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.deserialize(image)
    return connection


@cache
def empty_image(cluster_id: str) -> bytes:
    """The bytes of a database with empty tables. Made once: that takes longer than a simulated minute."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("PRAGMA page_size = 512")
    create_in(connection, cluster_id)
    image = connection.serialize()
    connection.close()
    return image
