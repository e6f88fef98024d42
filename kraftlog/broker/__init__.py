"""Data brokers: they follow the committed metadata."""
