"""Bugs of replication between brokers, which this world must catch."""
