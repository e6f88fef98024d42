"""The metadata that the log is about: its records applied to SQLite, on every node, and the answers to reads of it.

    committed records ─► apply/ ─► store/ ─► tables/ in SQLite ─► query/   answers to a node's reads
                           │                     ▲      └───────► metadata/  questions, over any view
                           ▼                     │
                       subscribers           replay/   what a record does

What is committed lives in SQLite and nowhere else. Nothing here decides: the controller does, and what it has written
and is not committed lives in its overlay, which replays records with the same code.
"""
