"""The configuration of a node: its settings, and the directory that is formatted by it."""
