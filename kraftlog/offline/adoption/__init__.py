"""Brokers of a cluster that has lost its voters come to the cluster that was restored from a snapshot (CT-39)."""
