"""Moves brokers of a cluster that has lost its voters to the cluster that was restored from a snapshot (CT-39)."""
