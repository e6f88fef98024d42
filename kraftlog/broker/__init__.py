"""Data brokers: they live by the committed metadata."""
