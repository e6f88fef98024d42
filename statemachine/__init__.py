"""The metadata that the log describes: its records applied to SQLite, on every node, and the answers to reads.

    committed records ─► apply/ ─► store/ ─► tables/ in SQLite ─► query/   answers to a node's reads
                           │                     ▲      └───────► metadata/  questions, over any view
                           ▼                     │
                       subscribers           replay/   what a record does

Committed metadata is in SQLite and nowhere else. Nothing here decides: the controller does, and its uncommitted records
are in its overlay, which replays records with the same code.
"""
