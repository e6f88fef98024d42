"""Runs: one seed from beginning to end, many seeds, and less and less of one that fails."""
