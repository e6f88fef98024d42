"""Tables of a state machine in an in-memory SQLite database, which simulated machines use instead of a file."""

from __future__ import annotations

import sqlite3
import weakref
from functools import cache

from statemachine.store.metadata_tables import STATE_DIGEST_INTERVAL_OFFSETS, MetadataTables
from statemachine.tables.database import create_in


def tables_in_memory(image: bytes, *, digest_interval: int = STATE_DIGEST_INTERVAL_OFFSETS) -> MetadataTables:
    """Return the tables of a database with the bytes `image`.

    The connection is closed with the last reference to them.
    """
    connection = connect(image)
    try:
        tables = MetadataTables(connection, digest_interval=digest_interval)
    except BaseException:
        connection.close()
        raise
    weakref.finalize(tables, connection.close)
    return tables


def connect(image: bytes) -> sqlite3.Connection:
    """Return a connection to an in-memory database with the bytes `image`. The caller closes it, in any thread."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.deserialize(image)
    return connection


@cache
def empty_image(cluster_id: str) -> bytes:
    """Return the bytes of a database with empty tables.

    Cached, because creating such a database takes longer than simulating a minute of a cluster.
    """
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("PRAGMA page_size = 512")
    create_in(connection, cluster_id)
    image = connection.serialize()
    connection.close()
    return image
