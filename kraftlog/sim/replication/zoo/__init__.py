"""Bugs of replication between brokers, which the checkers of this world must catch."""
