"""The metadata of one node in SQLite: applied, read, scrubbed, and written into snapshots."""
