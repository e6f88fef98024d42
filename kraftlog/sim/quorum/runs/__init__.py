"""Runs: one seed from start to end, many seeds, and shrinking one that fails."""
