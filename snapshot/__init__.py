"""Snapshots of a state machine that stand for the log below them (KIP-630)."""
